"""Roles of the columns of a user's table: times, ids, values."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd
from pandas.api import types

from tsfmscope.errors import DataError
from tsfmscope.series.files.columns import Columns
from tsfmscope.series.files.frames import TIMES, begins_with_date, is_text
from tsfmscope.series.files.times import is_clock, row_of

# Names that give a column its role, in lower case.
IDS = {"unique_id", "item_id", "series_id", "series", "item", "id"}
VALUES = {"y", "target", "value", "values"}
# Columns that count the rows. DuckDB and pandas give the last two names to a column without a name.
COUNTERS = {"year", "index", "step", "t", "column0", "unnamed: 0"}
# A plain number. pandas.to_numeric (2.3) ends the process on exponents of many digits.
NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf"
# A number with separators of thousands, another decimal sign or a unit.
NUMBER_LIKE = r"[^\w]*\d[\d.,'’\s]*[^\w]*"
# Largest number of columns that a message lists by name.
NAMED = 5


class Roles(NamedTuple):
    """Columns of times, of ids and of values."""

    times: list[str]
    ids: list[str]
    values: list[str]


def assign_roles(frame: pd.DataFrame, columns: Columns, location: str) -> Roles:
    """Return the roles of the columns: as the user names them, else by their names and types.

    location: file, for messages.

    Raises:
        DataError: a named column does not exist, several columns could have a role, a column of values
            contains text, or a column of text may be the ids.
    """
    names = list(frame.columns)
    named = {"time": columns.times, "id": columns.ids, "value": columns.values}
    for option, name in ((option, name) for option, chosen in named.items() for name in chosen):
        if name not in names:
            raise DataError(
                f"{location}: expected a column of the table for --{option}, got {name!r}; it has {join(names)}"
            )
    times = columns.times or _time_columns(frame, columns, location)
    others = [name for name in names if name not in (*times, *columns.ids, *columns.values)]
    ids = [name for name in others if name.lower() in IDS and not has_fractions(frame[name])]
    if not columns.ids and len(ids) > 1:
        raise DataError(f"{location}: expected one column of ids, got {join(ids)}; name it, or each of them, with --id")
    ids = columns.ids or ids
    return Roles(times, ids, _value_columns(frame, columns, times, ids, location))


def join(names: list[str]) -> str:
    """List column names, at most NAMED of them."""
    others = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(map(repr, names[:NAMED])) + others


def _time_columns(frame: pd.DataFrame, columns: Columns, location: str) -> list[str]:
    """Return the columns of times by name, else by type or first cell; a time of day follows its date."""
    free = [name for name in frame.columns if name not in (*columns.ids, *columns.values)]
    clocks = [name for name in free if name.lower() in TIMES and is_clock(frame[name])]
    choices = (
        [name for name in free if name.lower() in TIMES and name not in clocks],
        [name for name in free if types.is_datetime64_any_dtype(frame[name]) or begins_with_date(frame[name])],
        [name for name in free if name.lower() == "year"],
    )
    found = next(filter(None, choices), [])
    if len(found) > 1 or len(clocks) > 1:
        names = join(found + clocks)
        raise DataError(f"{location}: expected one column of times, got {names}; name it, or each of them, with --time")
    return found + clocks


def _value_columns(frame: pd.DataFrame, columns: Columns, times: list[str], ids: list[str], location: str) -> list[str]:
    """Return the columns of values. Raises DataError as `assign_roles`."""
    others = [name for name in frame.columns if name not in (*times, *ids)]
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
        if not types.is_numeric_dtype(frame[name]):
            raise DataError(
                f"{location}, column {name!r}: expected numbers, got {frame[name].dtype}; name the columns of values "
                "with --value"
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
            f"{location}: expected a column of numbers, got {kinds}; check that all rows have the same columns, and "
            "that the first line has their names"
        )
    if ids and len(numbers) > 1:
        known = [name for name in numbers if name.lower() in VALUES]
        if len(known) != 1:
            is_wide = not times and not frame[ids].duplicated().any()
            raise DataError(
                f"{location}: expected one column of values next to the ids in {join(ids)}, got {join(numbers)}; "
                + (
                    "transpose the table, so that each series is a column"
                    if is_wide
                    else "name it with --value, or all columns of ids with --id"
                )
            )
        return known
    if not ids and not times and text:
        raise DataError(
            f"{location}: expected times or only numbers, got text in {join(text)}; name the column of times with "
            "--time, that of ids with --id, or the columns of values with --value"
        )
    return numbers


def has_fractions(column: pd.Series) -> bool:
    """Return whether a column contains numbers that are not whole."""
    return types.is_float_dtype(column) and bool((column.dropna() % 1 != 0).any())
