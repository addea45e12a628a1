"""Reader of CSV and Excel files with the dialect and the types that DuckDB detects."""

from __future__ import annotations

import codecs
import csv
import glob
import gzip
import math
import re
import statistics
import zipfile
import zlib
from collections.abc import Collection, Sequence
from datetime import datetime, time, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import numpy as np
import pandas as pd
from pandas.api import types

from tsfmscope.errors import DataError
from tsfmscope.series.files.frames import IDS, TIMES, is_text, transposed_labels
from tsfmscope.series.files.options import Reading
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
# Marks between thousands other than the decimal signs: apostrophes and spaces.
MARKS = "'’ \N{NO-BREAK SPACE}\N{THIN SPACE}\N{NARROW NO-BREAK SPACE}"
OTHER_SIGN = {",": ".", ".": ","}
# Bytes of a cell's text in an Excel file, at least.
CELL_BYTES = 8


def read_csv(path: Path, reading: Reading) -> tuple[pd.DataFrame, list[str]]:
    """Read a CSV file with a header, and notes for the user. Cells of `MISSING` are missing values.

    Comments, a title and a line such as `sep=;` before the header are skipped. A file that is not UTF-8 is read as
    UTF-16 if it begins with a byte order mark, else as Windows-1252.

    The decimal sign is a comma if a column contains only numbers such as 0,5, or 1.303,00. Numbers such as 1,100 do
    not show that, because the comma may separate thousands.

    Raises:
        DataError: the file is no CSV table, has no header, does not fit into memory, or has numbers that can be read
            in two ways.
    """
    try:
        return _read_text(path, path, reading)
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
            frame, notes = _read_text(copy, path, reading)
        except (duckdb.Error, UnicodeError):
            raise failure from None
    return frame, [f"{path}: not UTF-8, read as {encoding}; if names are wrong, save the file as UTF-8", *notes]


def read_excel(path: Path, reading: Reading) -> tuple[pd.DataFrame, list[str]]:
    """Read one sheet of an Excel file, as the CSV file of its cells, and notes.

    Formulas have the values that were saved.

    Raises:
        DataError: as `read_csv`; also if the file is no .xlsx file, lacks the sheet, or has several and none is named.
    """
    import openpyxl
    from openpyxl.utils import get_column_letter

    try:
        with zipfile.ZipFile(path) as archive:
            check_room(sum(item.file_size for item in archive.infolist()) // CELL_BYTES, path)
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    # openpyxl raises whatever the parts of a damaged file cause.
    except (OSError, zipfile.BadZipFile, ValueError, LookupError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: expected an Excel file .xlsx, got {type(error).__name__}: {error}") from error
    try:
        sheets = {sheet.title: sheet for sheet in book.worksheets if sheet.sheet_state == "visible"}
        if reading.sheet is not None and reading.sheet not in sheets:
            raise DataError(f"{path}: no sheet is named {reading.sheet!r}; it has {', '.join(map(repr, sheets))}")
        names = [*sheets] if reading.sheet is None else [reading.sheet]
        cells = {name: rows for name in names if (rows := _cells(sheets[name], reading.decimal or "."))}
    finally:
        book.close()
    if len(cells) != 1:
        problem = f"sheets {', '.join(map(repr, cells))}; name one with --sheet" if cells else "no cell; fill a sheet"
        raise DataError(f"{path}: expected one sheet with values, got {problem}")
    ((name, rows),) = cells.items()
    counts = [sum(cell != "" for cell in row) for row in rows]
    usual = statistics.mode(counts)
    header = next(number for number, count in enumerate(counts) if count >= usual)
    width = len(rows[header])
    if wide := next((number for number, row in enumerate(rows[header:], header) if len(row) > width), None):
        cell = f"{get_column_letter(len(rows[wide]))}{wide + 1}"
        raise DataError(
            f"{path}, sheet {name!r}: cell {cell} lies beside the table, whose header is row {header + 1} and ends in "
            f"column {get_column_letter(width)}; empty the cell, or name its column"
        )
    with TemporaryDirectory() as folder:
        copy = Path(folder, "copy.csv")
        with copy.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerows(rows[:header])
            writer.writerows([*row, *[""] * (width - len(row))] for row in rows[header:] if row)
        try:
            frame, notes = _read_text(copy, path, reading)
        except duckdb.Error as error:
            problem = " ".join(str(error).partition("Possible")[0].split())[:200]
            raise DataError(f"{path}, sheet {name!r}: expected a table with a header, got {problem}") from error
    return frame, [f"{path}: sheet {name!r}", *notes]


def _cells(sheet: Any, decimal: str) -> list[list[Any]]:
    """Return the rows of a sheet up to the last cell of each that has a value."""
    sheet.reset_dimensions()
    rows = [[_cell(value, decimal) for value in row] for row in sheet.iter_rows(values_only=True)]
    for row in rows:
        while row and row[-1] == "":
            row.pop()
    while rows and not rows[-1]:
        rows.pop()
    return rows


def _cell(value: Any, decimal: str) -> Any:
    """Return the text of a fraction or of a time, rounded to the milliseconds that Excel keeps, or another value."""
    if isinstance(value, float):
        # With an exponent, which no number with marks between thousands has.
        text = repr(value).replace(".", decimal)
        return text if "e" in text or not math.isfinite(value) else f"{text}e0"
    if isinstance(value, datetime):
        value += timedelta(microseconds=500)
        value = value.replace(microsecond=value.microsecond // 1000 * 1000)
        return f"{value:%Y-%m-%d}" if value.time() == time() else value.isoformat(sep=" ")
    return "" if value is None else value


def _read_text(file: Path, path: Path, reading: Reading) -> tuple[pd.DataFrame, list[str]]:
    """Read a file in UTF-8. path: name for messages. Raises the errors of `read_csv` and of DuckDB."""
    skip, separator = _find_header(file)
    decimal, first = reading.decimal, pd.DataFrame()
    with duckdb.connect() as connection:
        frame, delimiter = _read(connection, file, path, reading, decimal or ".", skip, separator)
        text = [frame[name].dropna() for name in frame if is_text(frame[name])]
        if decimal is None and any(_has_decimal_comma(cells) or _is_grouped(cells, ",", ".") for cells in text):
            decimal, first = ",", frame
            frame, _ = _read(connection, file, path, reading, decimal, skip, separator)
        elif decimal is None and delimiter != "," and (doubtful := _thousandths(frame)):
            raw, _ = _read(connection, file, path, reading, ".", skip, separator, as_text=doubtful)
            _check_thousands(raw, doubtful, path)
    named = {*IDS, *reading.ids, *reading.times}
    text_names = [name for name in map(str, frame) if is_text(frame[name]) and not {name, name.lower()} & named]
    frame = frame.assign(**{name: _ungroup(frame[name], decimal) for name in text_names})
    # A column such as 0.125 has a point, whatever other columns have.
    left = [name for name in text_names if is_text(frame[name]) and name in first]
    points = [name for name in left if types.is_numeric_dtype(first[name])]
    frame = frame.assign(**{name: first[name] for name in points})
    notes = [f"{path}: the header is line {skip + 1}"] if skip else []
    return frame, notes + ([f"{path}: numbers have a decimal comma"] if decimal == "," != reading.decimal else [])


def _thousandths(frame: pd.DataFrame) -> list[str]:
    """Return the columns of numbers below 1,000 with at most three decimals, of which some have decimals."""
    names = []
    for name in frame.select_dtypes("float"):
        values = np.abs(frame[name].dropna().to_numpy())
        scaled = values * 1000
        is_whole = np.abs(scaled - np.round(scaled)) < 1e-6
        if len(values) and values.max() < 1000 and is_whole.all() and (values % 1 > 0).any():
            names.append(str(name))
    return names


def _check_thousands(raw: pd.DataFrame, names: Sequence[str], path: Path) -> None:
    """Raise DataError for a column of cells such as 1.303, all of which may be whole numbers with thousands."""
    for name in names:
        cells = raw[name].dropna().astype(str)
        if cells.str.fullmatch(r"[+-]?([1-9]\d{0,2}\.\d{3}|\d{1,3})").all():
            cell = cells[cells.str.contains(".", regex=False)].iloc[0]
            raise DataError(
                f"{path}, column {name!r}: {cell} is {float(cell)} or {cell.replace('.', '')}; add --decimal . or "
                "--decimal ,"
            )


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


def _ungroup(column: pd.Series, decimal: str | None) -> pd.Series:
    """Return the numbers of a column of text such as 1.303,00, 1,303.00, 1'303.00 or 1 303; else the column.

    decimal: decimal sign of the file; None: a column must show it, or that thousands have another mark.
    """
    cells = column.dropna()
    for sign in OTHER_SIGN if decimal is None else decimal:
        for mark in (OTHER_SIGN[sign], *MARKS):
            if _is_grouped(cells, sign, mark, is_known=decimal is not None):
                plain = column.str.replace(mark, "", regex=False).str.replace(sign, ".", regex=False)
                return plain.astype(np.float64)
    return column


def _is_grouped(cells: pd.Series, decimal: str, mark: str, *, is_known: bool = False) -> bool:
    """Return whether all cells are numbers, some with `mark` between thousands.

    is_known: whether the decimal sign is known; else one of the cells must show that the mark is not.
    """
    fraction = rf"(\{decimal}\d+)?"
    pattern = rf"[+-]?(\d+{fraction}(e[+-]?\d+)?|[1-9]\d{{0,2}}({re.escape(mark)}\d{{3}})+{fraction})"
    # The first cell decides most columns, such as a million ids.
    if cells.empty or not re.fullmatch(pattern, cells.iloc[0]):
        return False
    has_mark = cells.str.contains(mark, regex=False)
    if mark in OTHER_SIGN and not is_known:
        has_mark &= cells.str.contains(decimal, regex=False)
    return bool(has_mark.any() and cells.str.fullmatch(pattern).all())


def _read(
    connection: duckdb.DuckDBPyConnection, file: Path, path: Path, reading: Reading, decimal: str, skip: int, sep: str,
    as_text: Collection[str] = (),
) -> tuple[pd.DataFrame, str]:  # fmt: skip
    """Read the file with a decimal sign; return its delimiter too. Raises the errors of `read_csv` and of DuckDB."""
    names, found, signs = _sniff(connection, file, path, decimal, skip, sep)
    # Text keeps the zeros of ids and of dates such as 01012024.
    as_text = {*as_text, *IDS, *reading.ids}
    if reading.time_format not in {None, *DIGITS}:
        as_text |= TIMES | {*reading.times}
    kinds = {
        name: kind if kind in KEPT and not {name, name.lower()} & as_text else "VARCHAR"
        for name, kind in zip(names, found, strict=True)
    }
    read = """
        from read_csv(
            ?, delim = ?, quote = ?, escape = ?, skip = ?, decimal_separator = ?, nullstr = ?, columns = ?,
            header = true, auto_detect = false, hive_partitioning = false
        )
    """
    arguments = [glob.escape(str(file)), *signs, skip, decimal, MISSING, kinds]
    (n_rows,) = connection.execute("select count(*) " + read, arguments).fetchall()[0]
    check_room(n_rows * len(kinds), path)
    frame: pd.DataFrame = connection.execute(read, arguments).df().set_axis(names, axis=1)
    ids = [name for name in names if {name, name.lower()} & {*IDS, *reading.ids} and frame[name].isna().any()]
    if ids:
        # Of ids, only empty cells are missing: NA is Namibia.
        arguments[-2:] = [[""], dict.fromkeys(names, "VARCHAR")]
        texts = connection.execute(read, arguments).df().set_axis(names, axis=1)
        frame = frame.assign(**{name: texts[name] for name in ids})
    # A column without values is one of numbers, all of them missing.
    return frame.assign(**{name: np.nan for name in names if frame[name].isna().all()}), signs[0]


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
            ?, delim = ?, quote = ?, escape = ?, skip = ?, columns = ?, header = false, auto_detect = false,
            hive_partitioning = false
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
