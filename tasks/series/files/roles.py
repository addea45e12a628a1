"""Roles of the columns of a user's table (times, ids, values), and the reader of its times."""

from __future__ import annotations

import re
from typing import NamedTuple

import pandas as pd
from pandas.api import types

from tsfmscope.tasks.errors import DataError
from tsfmscope.tasks.series.files.columns import Columns

# Names that give a column its role, in lower case.
TIMES = {"ds", "timestamp", "date", "datetime", "time"}
IDS = {"unique_id", "item_id", "series_id", "series", "item", "id"}
VALUES = {"y", "target", "value", "values"}
# Columns that count the rows. DuckDB and pandas give the last two names to a column without a name.
COUNTERS = {"year", "index", "step", "t", "column0", "unnamed: 0"}
# A date in another order than that of ISO 8601, with or without a time of day.
DATE = re.compile(r"\d{1,2}([./-])\d{1,2}\1(\d{4}|\d{2})(?: \d{1,2}:\d{2}(:\d{2})?)?")
# Beginning of a date in any order.
DATE_START = re.compile(r"(\d{1,4}([./-])\d{1,2}\2\d{1,4}|\d{4}-\d\d)(?!\d)")
# A plain number. pandas.to_numeric (2.3) ends the process on exponents of many digits.
NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf"
# A number with separators of thousands, another decimal sign or a unit.
NUMBER_LIKE = r"[^\w]*\d[\d.,'’\s]*[^\w]*"
# Unit of numbers since 1970 -> number of digits, for the years 1973 to 2286.
DIGITS = {"s": {9, 10}, "ms": {12, 13}, "us": {15, 16}, "ns": {18, 19}}
# Largest number of columns that a message lists by name.
NAMED = 5


class Roles(NamedTuple):
    """Columns of times, of ids and of values."""

    time: str | None
    id: str | None
    values: list[str]


def assign_roles(frame: pd.DataFrame, columns: Columns, location: str) -> Roles:
    """Return the roles of the columns: as the user names them, else by their names and types.

    location: file, for messages.

    Raises:
        DataError: a named column does not exist, several columns could have a role, a column of values
            contains text, or a column of text may be the ids.
    """
    names = list(frame.columns)
    for option, name in [("time", columns.time), ("id", columns.id), *(("value", name) for name in columns.values)]:
        if name is not None and name not in names:
            raise DataError(
                f"{location}: expected a column of the table for --{option}, got {name!r}; it has {join(names)}"
            )
    time = columns.time or _time_column(frame, columns, location)
    others = [name for name in names if name not in (time, columns.id, *columns.values)]
    ids = [name for name in others if name.lower() in IDS and not types.is_float_dtype(frame[name])]
    if columns.id is None and len(ids) > 1:
        raise DataError(f"{location}: expected one column of ids, got {join(ids)}; name it with --id")
    series_id = columns.id or next(iter(ids), None)
    return Roles(time, series_id, _value_columns(frame, columns, time, series_id, location))


def parse_times(column: pd.Series, time_format: str | None, location: str) -> pd.Series:
    """Return times: those of a column of times, else in UTC. An empty cell becomes NaT.

    Text is read in the given format, else as ISO 8601, else with day or month first if only one of them fits
    all cells. Numbers are years, 20240131, or seconds, milli-, micro- or nanoseconds since 1970.

    location: file and column, for messages.

    Raises:
        DataError: a cell is no time, or day and month cannot be distinguished.
    """
    if types.is_datetime64_any_dtype(column):
        return column
    formats = [time_format] if time_format else ["ISO8601", *_formats(column)]
    if types.is_numeric_dtype(column):
        whole: pd.Series = column.where(column % 1 == 0).astype("Int64")
        digits = {len(str(abs(number))) for number in whole.dropna().unique()}
        unit = next((unit for unit, lengths in DIGITS.items() if digits and digits <= lengths), None)
        if unit and time_format is None and whole.notna().equals(column.notna()):
            since: pd.Series = pd.to_datetime(whole, unit=unit, utc=True)  # type: ignore[call-overload]
            return since
        column = column.astype(object).where(whole.isna(), whole.astype("string"))
        formats = [time_format or ("%Y" if digits == {4} else "%Y%m%d")]
    readings = {form: _read(column, form) for form in formats}
    best, times = max(readings.items(), key=lambda item: item[1].notna().sum())
    wrong = times.isna() & column.notna()
    if wrong.any():
        expected = (
            f"a time in the format {time_format}" if time_format else "a time such as 2024-01-31 or 2024-01-31 13:00"
        )
        raise DataError(
            f"{location}, {row_of(wrong)}: expected {expected}, got {str(column[wrong].iloc[0])!r}; correct the cell, "
            "remove the row, give the format with --time-format, or rename the column to 'step' if it counts the rows"
        )
    for form, other in readings.items():
        if other.notna().equals(times.notna()) and (differs := (other != times) & times.notna()).any():
            raise DataError(
                f"{location}, {row_of(differs)}: {column[differs].iloc[0]!r} is {times[differs].iloc[0]:%d %B %Y} or "
                f"{other[differs].iloc[0]:%d %B %Y}; add --time-format {best!r} or {form!r}"
            )
    return times


def row_of(bad: pd.Series) -> str:
    """Return the number of the first row where `bad` is true, counted from 1 below the header."""
    return f"row {int(bad.to_numpy().argmax()) + 1} below the header"


def join(names: list[str]) -> str:
    """List column names, at most NAMED of them."""
    others = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(map(repr, names[:NAMED])) + others


def _time_column(frame: pd.DataFrame, columns: Columns, location: str) -> str | None:
    """Return the column of times by its name, else by its type or first cell; None if there is none."""
    free = [name for name in frame.columns if name not in (columns.id, *columns.values)]
    choices = (
        [name for name in free if name.lower() in TIMES],
        [name for name in free if types.is_datetime64_any_dtype(frame[name]) or _begins_with_date(frame[name])],
        [name for name in free if name.lower() == "year"],
    )
    found = next(filter(None, choices), [])
    if len(found) > 1:
        raise DataError(f"{location}: expected one column of times, got {join(found)}; name it with --time")
    return next(iter(found), None)


def _value_columns(
    frame: pd.DataFrame, columns: Columns, time: str | None, series_id: str | None, location: str
) -> list[str]:
    """Return the columns of values. Raises DataError as `assign_roles`."""
    others = [name for name in frame.columns if name not in (time, series_id)]
    text = [name for name in others if is_text(frame[name])]
    for name in columns.values or text:
        cells = frame[name].dropna()
        if not columns.values and cells.astype(str).str.fullmatch(NUMBER_LIKE).mean() < 0.5:
            continue
        if is_text(cells):
            wrong = frame[name].notna() & ~frame[name].astype(str).str.fullmatch(NUMBER, case=False)
            wrong = wrong if wrong.any() else frame[name].notna()
            raise DataError(
                f"{location}, column {name!r}, {row_of(wrong)}: expected a number such as 1100.5, got "
                f"{frame[name][wrong].iloc[0]!r}; correct it, or name the columns of values with --value"
            )
    if columns.values:
        return columns.values
    numbers = [
        name for name in others
        if types.is_numeric_dtype(frame[name]) and not types.is_bool_dtype(frame[name])
        and name.lower() not in COUNTERS | TIMES
    ]  # fmt: skip
    if not numbers:
        kinds = ", ".join(f"{name!r} ({frame[name].dtype})" for name in frame) or "none"
        raise DataError(
            f"{location}: expected a column of numbers, got {kinds}; check that all rows have the same columns"
        )
    if series_id is not None and len(numbers) > 1:
        known = [name for name in numbers if name.lower() in VALUES]
        if len(known) != 1:
            raise DataError(
                f"{location}: expected one column of values next to the ids in {series_id!r}, got {join(numbers)}; "
                "name it with --value"
            )
        return known
    if series_id is None and time is None and text:
        raise DataError(
            f"{location}: expected times or only numbers, got text in {join(text)}; name the column of times with "
            "--time, that of ids with --id, or the columns of values with --value"
        )
    return numbers


def _formats(column: pd.Series) -> list[str]:
    """Return the formats that the first cell may have, with the day, the month or a short year first."""
    cells = column.dropna()
    if cells.empty or not (match := DATE.fullmatch(str(cells.iloc[0]).strip())):
        return []
    separator, year = match[1], "%Y" if len(match[2]) == 4 else "%y"
    clock = (" %H:%M:%S" if match[3] else " %H:%M") if " " in match[0] else ""
    orders = [("%d", "%m", year), ("%m", "%d", year), *([("%y", "%m", "%d")] if year == "%y" else [])]
    return [separator.join(order) + clock for order in orders]


def _read(column: pd.Series, time_format: str) -> pd.Series:
    try:
        return pd.to_datetime(column.astype("string").str.strip(), format=time_format, utc=True, errors="coerce")
    except ValueError as error:
        raise DataError(f"--time-format {time_format!r}: {error}") from error


def _begins_with_date(column: pd.Series) -> bool:
    cells = column.dropna()
    return is_text(column) and not cells.empty and DATE_START.match(str(cells.iloc[0]).strip()) is not None


def is_text(column: pd.Series) -> bool:
    """Return whether a column holds text, and nothing else but missing cells."""
    return types.infer_dtype(column, skipna=True) in {"string", "categorical", "bytes"}
