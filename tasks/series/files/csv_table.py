"""Reader of CSV files with the dialect and the types that DuckDB detects."""

from __future__ import annotations

import glob
import re
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd

from tsfmscope.tasks.errors import DataError
from tsfmscope.tasks.series.files.columns import Columns
from tsfmscope.tasks.series.files.parquet import check_room
from tsfmscope.tasks.series.files.roles import IDS, TIMES, is_text

# Cells that stand for a missing value.
MISSING = [
    "", "-", "--", "–", "—", ".", "..", "...", "?", "n/a", "N/A", "#N/A", "n.a.", "na", "NA", "nan", "NaN", "nil",
    "none", "None", "null", "NULL",
]  # fmt: skip
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


def read_csv(path: Path, columns: Columns) -> pd.DataFrame:
    """Read a CSV file with a header. Cells of `MISSING` are missing values.

    The decimal sign is a comma if a column contains only numbers such as 0,5. Numbers such as 1,100 do not
    show that, because the comma may separate thousands.

    Raises:
        DataError: the file is no CSV table in UTF-8, has no header, or does not fit into memory.
    """
    try:
        with duckdb.connect() as connection:
            frame = _read(connection, path, columns, ".")
            text = [frame[name].dropna() for name in frame if is_text(frame[name])]
            if any(map(_has_decimal_comma, text)):
                frame = _read(connection, path, columns, ",")
            return frame
    except (duckdb.Error, UnicodeDecodeError) as error:
        problem = " ".join(str(error).partition("Possible")[0].split())[:200]
        raise DataError(f"{path}: expected a CSV table in UTF-8 with a header, got {problem}") from error


def _has_decimal_comma(cells: pd.Series) -> bool:
    if cells.empty or not re.fullmatch(NUMBER, cells.iloc[0]) or not cells.str.fullmatch(NUMBER).all():
        return False
    with_comma = cells[cells.str.contains(",")]
    return not with_comma.str.fullmatch(THOUSANDS).all()


def _read(connection: duckdb.DuckDBPyConnection, path: Path, columns: Columns, decimal: str) -> pd.DataFrame:
    """Read the file with a decimal sign. Raises the errors of `read_csv` and of DuckDB."""
    file = glob.escape(str(path))
    types, signs = _sniff(connection, path, decimal)
    # Text keeps the zeros of ids and of dates such as 01012024.
    as_text = IDS | {columns.id} | ({columns.time} | TIMES if columns.time_format else set())
    kinds = {
        name: kind if kind in KEPT and not {name, name.lower()} & as_text else "VARCHAR" for name, kind in types.items()
    }
    read = """
        from read_csv(
            ?, delim = ?, quote = ?, escape = ?, decimal_separator = ?, nullstr = ?, columns = ?, header = true,
            auto_detect = false
        )
    """
    arguments = [file, *signs, decimal, MISSING, kinds]
    (n_rows,) = connection.execute("select count(*) " + read, arguments).fetchall()[0]
    check_room(n_rows * len(types), path)
    frame: pd.DataFrame = connection.execute(read, arguments).df()
    # With nullstr, DuckDB renames a column whose name stands for a missing value, such as NA.
    named = "select Columns from sniff_csv(?, delim = ?, quote = ?, escape = ?, header = true, skip = 0)"
    (names,) = connection.execute(named, [file, *signs]).fetchall()[0]
    if len(names) == len(types):
        frame.columns = pd.Index([column["name"] for column in names])
    # A column without values is one of numbers, all of them missing.
    return frame.assign(**{str(name): np.nan for name in frame.columns if frame[name].isna().all()})


def _sniff(
    connection: duckdb.DuckDBPyConnection, path: Path, decimal: str
) -> tuple[dict[str, str], tuple[str, str, str]]:
    """Return the types of the columns by name, and delimiter, quote and escape. Raises DataError without a header."""
    sniff = "from sniff_csv(?, sample_size = -1, skip = 0, decimal_separator = ?, nullstr = ?)"
    arguments = [glob.escape(str(path)), decimal, MISSING]
    (dialect,) = connection.execute(sniff, arguments).df().to_dict("records")
    types = {column["name"]: column["type"] for column in dialect["Columns"]}
    first = next(iter(types))
    # DuckDB takes a first row of other types for names, such as 5.5 above whole numbers.
    if not dialect["HasHeader"] or first.isdecimal() or any(NO_NAME.match(name.strip()) for name in types):
        raise DataError(
            f"{path}: expected a header with the names of the columns, got values in the first row or an empty file; "
            "add a line of column names, none of which is a date or a fraction"
        )
    delimiter = dialect["Delimiter"]
    is_unquoted = dialect["Quote"] == "(empty)"
    if len(types) == 1 and is_unquoted and (others := [sign for sign in DELIMITERS if sign in first]):
        # DuckDB detects one column where rows differ in length. The read then names such a row.
        delimiter, types = others[0], dict.fromkeys(first.split(others[0]), "VARCHAR")
    quote, escape = (dialect[sign].removeprefix("(empty)") for sign in ("Quote", "Escape"))
    return types, (delimiter, quote, escape)
