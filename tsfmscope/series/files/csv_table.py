"""Reader of CSV files with the dialect and the types that DuckDB detects."""

from __future__ import annotations

import codecs
import glob
import gzip
import re
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import numpy as np
import pandas as pd

from tsfmscope.errors import DataError
from tsfmscope.series.files.frames import IDS, TIMES, Columns, is_text, transposed_labels
from tsfmscope.series.files.sources import check_room
from tsfmscope.series.files.times import DIGITS

# Cells that stand for a missing value.
MISSING = [
    "", "-", "--", "–", "—", ".", "..", "...", "?", "n/a", "N/A", "#N/A", "n.a.", "na", "NA", "nan", "NaN", "nil",
    "none", "None", "null", "NULL", "NaT", "<NA>", r"\N", "#DIV/0!", "#NAME?", "#NULL!", "#NUM!", "#REF!", "#VALUE!",
]  # fmt: skip
# Bytes at the beginning of a file, and lines of them, in which the header is searched.
HEAD_BYTES, HEAD_LINES = 65_536, 30
# Bytes that are decoded at once.
CHUNK = 1 << 20
# Delimiters that DuckDB detects.
DELIMITERS = ",;\t|"
# Names that are values: dates, times of day, fractions.
NO_NAME = re.compile(
    r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}(?!\d)|\d{1,2}:\d\d|[+-]?\d*[.,]\d+(e[+-]?\d+)?$|\d{1,2} [a-z]{3,9} \d{4}$", re.I
)
# Types that are kept. Columns of any other type, such as dates, are read as text.
KEPT = {"BIGINT", "HUGEINT", "DOUBLE", "BOOLEAN"}
# A number, perhaps with a decimal comma, and one whose commas may separate thousands.
NUMBER, THOUSANDS = r"[+-]?\d+(,\d+)?", r"[+-]?[1-9]\d{0,2}(,\d{3})+"
# Numbers with separators of thousands, decimal sign last: 1.303,00 and 1,303.00.
GROUPED = {
    ",": r"[+-]?\d{1,3}(\.\d{3})*(,\d+)?|[+-]?\d+(,\d+)?",
    ".": r"[+-]?\d{1,3}(,\d{3})*(\.\d+)?|[+-]?\d+(\.\d+)?",
}


def read_csv(path: Path, columns: Columns) -> tuple[pd.DataFrame, list[str]]:
    """Read a CSV file with a header, and notes for the user. Cells of `MISSING` are missing values.

    Comments, a title and a line such as `sep=;` before the header are skipped. A file that is not UTF-8 is read as
    UTF-16 if it begins with a byte order mark, else as Windows-1252.

    The decimal sign is a comma if a column contains only numbers such as 0,5. Numbers such as 1,100 do not
    show that, because the comma may separate thousands.

    Raises:
        DataError: the file is no CSV table, has no header, or does not fit into memory.
    """
    try:
        return _read_text(path, path, columns)
    except (duckdb.Error, UnicodeDecodeError) as error:
        problem = " ".join(str(error).partition("Possible")[0].split())[:200]
        failure = DataError(f"{path}: expected a CSV table in UTF-8 with a header, got {problem}; correct the file")
        if path.suffix == ".gz" or (encoding := _other_encoding(path)) is None:
            raise failure from error
    with TemporaryDirectory() as folder:
        copy = Path(folder, "copy.csv")
        try:
            with path.open(encoding=encoding, newline="") as source, copy.open("w", encoding="utf-8", newline="") as to:
                while text := source.read(CHUNK):
                    to.write(text)
            frame, notes = _read_text(copy, path, columns)
        except (duckdb.Error, UnicodeError):
            raise failure from None
    return frame, [f"{path}: not UTF-8, read as {encoding}; if names are wrong, save the file as UTF-8", *notes]


def _read_text(file: Path, path: Path, columns: Columns) -> tuple[pd.DataFrame, list[str]]:
    """Read a file in UTF-8. path: name for messages. Raises the errors of `read_csv` and of DuckDB."""
    skip, separator = _find_header(file)
    with duckdb.connect() as connection:
        frame = _read(connection, file, path, columns, ".", skip, separator)
        text = [frame[name].dropna() for name in frame if is_text(frame[name])]
        if any(_has_decimal_comma(cells) or _is_grouped(cells, ",") for cells in text):
            frame = _read(connection, file, path, columns, ",", skip, separator)
    frame = frame.assign(**{name: _ungroup(frame[name]) for name in map(str, frame) if is_text(frame[name])})
    return frame, [f"{path}: the header is line {skip + 1}"] if skip else []


def _other_encoding(path: Path) -> str | None:
    """Return the encoding of a file that is not UTF-8; None if it is."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as file:
        if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return "utf-16"
        file.seek(0)
        try:
            while block := file.read(CHUNK):
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return "cp1252"
    return None


def _find_header(file: Path) -> tuple[int, str]:
    """Return the number of lines before the header, and the delimiter that one of them names, else "".

    These lines are empty, comments, `sep=;`, a title without any delimiter, and a preamble that ends in an empty line
    and has fewer of each delimiter than the header.
    """
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            text = stream.read(HEAD_BYTES).decode("utf-8-sig", errors="replace")
    except (OSError, EOFError, zlib.error):
        # DuckDB names what is wrong.
        return 0, ""
    lines = [line.strip() for line in text.splitlines()[:HEAD_LINES]]
    signs = [sign for sign in DELIMITERS if sum(sign in line for line in lines) > 1]
    skip, separator = 0, ""
    for number, line in enumerate(lines[:-1]):
        named = re.fullmatch(r'"?sep=(.)"?', line)
        separator = named[1] if named else separator
        is_title = signs and not any(sign in line for sign in DELIMITERS)
        is_before = number == skip and (named or not line or line.startswith("#") or is_title)
        counts = [max(before.count(sign) for before in lines[: number + 1]) for sign in signs]
        following = [lines[number + 1].count(sign) for sign in signs]
        ends_preamble = not line and any(counts) and all(
            after > count for after, count in zip(following, counts, strict=True) if count
        )  # fmt: skip
        if is_before or ends_preamble:
            skip = number + 1
    return skip, separator


def _has_decimal_comma(cells: pd.Series) -> bool:
    if cells.empty or not re.fullmatch(NUMBER, cells.iloc[0]) or not cells.str.fullmatch(NUMBER).all():
        return False
    with_comma = cells[cells.str.contains(",")]
    return not with_comma.str.fullmatch(THOUSANDS).all()


def _ungroup(column: pd.Series) -> pd.Series:
    """Return the numbers of a column of text such as 1.303,00 or 1,303.00, which show both signs; else the column."""
    for decimal, group in (",.", ".,"):
        if _is_grouped(column.dropna(), decimal):
            return column.str.replace(group, "").str.replace(decimal, ".").astype(np.float64)
    return column


def _is_grouped(cells: pd.Series, decimal: str) -> bool:
    # The first cell decides most columns, such as a million ids.
    if cells.empty or not re.fullmatch(GROUPED[decimal], cells.iloc[0]):
        return False
    has_both = cells.str.contains(".", regex=False) & cells.str.contains(",", regex=False)
    return bool(has_both.any() and cells.str.fullmatch(GROUPED[decimal]).all())


def _read(
    connection: duckdb.DuckDBPyConnection, file: Path, path: Path, columns: Columns, decimal: str, skip: int, sep: str
) -> pd.DataFrame:
    """Read the file with a decimal sign. Raises the errors of `read_csv` and of DuckDB."""
    names, types, signs = _sniff(connection, file, path, decimal, skip, sep)
    # Text keeps the zeros of ids and of dates such as 01012024.
    as_text = IDS | {*columns.ids}
    if columns.time_format not in {None, *DIGITS}:
        as_text |= TIMES | {*columns.times}
    kinds = {
        name: kind if kind in KEPT and not {name, name.lower()} & as_text else "VARCHAR"
        for name, kind in zip(names, types, strict=True)
    }
    read = """
        from read_csv(
            ?, delim = ?, quote = ?, escape = ?, skip = ?, decimal_separator = ?, nullstr = ?, columns = ?,
            header = true, auto_detect = false
        )
    """
    arguments = [glob.escape(str(file)), *signs, skip, decimal, MISSING, kinds]
    (n_rows,) = connection.execute("select count(*) " + read, arguments).fetchall()[0]
    check_room(n_rows * len(kinds), path)
    frame: pd.DataFrame = connection.execute(read, arguments).df().set_axis(names, axis=1)
    # A column without values is one of numbers, all of them missing.
    return frame.assign(**{name: np.nan for name in names if frame[name].isna().all()})


def _sniff(
    connection: duckdb.DuckDBPyConnection, file: Path, path: Path, decimal: str, skip: int, sep: str
) -> tuple[list[str], list[str], list[str]]:
    """Return names and types of the columns, and the signs: delimiter, quote and escape.

    Raises DataError without a header, or if a name occurs twice in it.
    """
    location = glob.escape(str(file))
    sniff = "from sniff_csv(?, sample_size = -1, skip = ?, decimal_separator = ?, nullstr = ?"
    arguments = [location, skip, decimal, MISSING, *([sep] if sep else [])]
    (found,) = connection.execute(sniff + (", delim = ?)" if sep else ")"), arguments).df().to_dict("records")
    names, kinds = ([column[key] for column in found["Columns"]] for key in ("name", "type"))
    delimiter = found["Delimiter"]
    quote, escape = (found[sign].removeprefix("(empty)") for sign in ("Quote", "Escape"))
    has_header = found["HasHeader"]
    if has_header and len(names) == 1 and not quote and (others := [sign for sign in DELIMITERS if sign in names[0]]):
        # DuckDB detects one column where rows differ in length. The read then names such a row.
        delimiter = others[0]
        names = names[0].split(delimiter)
        kinds = ["VARCHAR"] * len(names)
    header = """
        from read_csv(
            ?, delim = ?, quote = ?, escape = ?, skip = ?, columns = ?, header = false, auto_detect = false
        ) limit 1
    """
    text = {f"column {number}": "VARCHAR" for number in range(len(names))}
    cells = connection.execute(header, [location, delimiter, quote, escape, skip, text]).fetchone() or ()
    # DuckDB renames a column whose name occurs twice or stands for a missing value, such as NA.
    written = [name if cell is None else str(cell) for name, cell in zip(names, cells, strict=False)]
    # Years are numbers, as the values below them.
    has_header = has_header or bool(transposed_labels(written))
    names = written if has_header and len(written) == len(names) else names
    # DuckDB takes a first row of other types for names, such as 5.5 above whole numbers.
    is_value = [bool(NO_NAME.match(name.strip())) for name in names]
    if not has_header or names[0].isdecimal() or (any(is_value) and not transposed_labels(names)):
        raise DataError(
            f"{path}, line {skip + 1}: expected a header with the names of the columns, got values in the first row "
            "or an empty file; add a line of column names, none of which is a date or a fraction"
        )
    if duplicated := [name for number, name in enumerate(names) if name in names[:number]]:
        raise DataError(f"{path}: column {duplicated[0]!r} occurs twice; rename one of them")
    return names, kinds, [delimiter, quote, escape]
