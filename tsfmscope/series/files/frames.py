"""A user's table in plain form, with one row per time, and the roles of its columns: times, ids, values."""

from __future__ import annotations

import re
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api import types

from tsfmscope.errors import DataError
from tsfmscope.series.files.options import Reading
from tsfmscope.series.files.times import is_clock, row_of

# Names of columns of times, in lower case; index levels may also be years.
TIMES = {"ds", "timestamp", "date", "datetime", "time"}
# Beginning of a date in any order, a quarter, month or week of a year.
DATE_START = re.compile(
    r"(\d{1,4}([./-])\d{1,2}\2\d{1,4}|\d{1,2}([ ./-])[a-z]{3,9}\3\d{2,4}|\d{4}-\d\d|\d{4}-?[QMW]\d{1,2})(?!\d)", re.I
)
# Smallest number of dates in a header that shows a table with one row per series.
LEAST_DATES = 3


def make_plain(frame: pd.DataFrame, reading: Reading, location: str) -> tuple[pd.DataFrame, Reading]:
    """Return the table with all that it contains in columns, and the options with the ids that its index contains.

    Levels of the index that contain times, text or repeated labels become columns, those of a MultiIndex ids. Columns
    become text, times or numbers. A table with one row per series, and dates as its header, is transposed.

    Raises:
        DataError: a column is complex or occurs twice, also if once in the index.
    """
    # The column names of a MultiIndex are tuples.
    names = [":".join(filter(None, map(str, name))) if isinstance(name, tuple) else str(name) for name in frame]
    frame, keys = _without_index(frame.set_axis(names, axis=1), location)
    if duplicated := sorted(frame.columns[frame.columns.duplicated()]):
        raise DataError(f"{location}: column {duplicated[0]!r} occurs twice, perhaps in the index; rename one of them")
    frame = _unnest(frame, reading, location)
    frame = pd.DataFrame({name: _plain_column(frame[name], location) for name in frame}, index=frame.index)
    if labels := transposed_labels([str(name) for name in frame]):
        named = [str(name) for name in frame[labels].astype(str).agg("/".join, axis=1)]
        frame = frame.drop(columns=labels).set_axis(named, axis=0).T.reset_index(names="timestamp")
        if duplicated := sorted(frame.columns[frame.columns.duplicated()]):
            raise DataError(f"{location}: the header contains dates, but two rows are named {duplicated[0]!r}")
    return frame, reading if reading.ids else reading.model_copy(update={"id": keys})


def is_list(column: pd.Series) -> bool:
    """Return whether the cells of a column are lists, judged by the first one."""
    if column.dtype != object and not isinstance(column.dtype, pd.ArrowDtype):
        return False
    cells = column.dropna()
    return len(cells) > 0 and isinstance(cells.iloc[0], list | tuple | np.ndarray)


def _unnest(frame: pd.DataFrame, reading: Reading, location: str) -> pd.DataFrame:
    """Return a table with one row per element of the lists in its cells.

    A table without lists stays as it is. If columns of values are named, other lists are left out, but for those of
    times. Rows without a column of ids get ids by their numbers. Raises DataError if a row's lists differ in length.
    """
    lists = [str(name) for name in frame if is_list(frame[name])]
    if not lists:
        return frame
    if reading.values:
        kept = {*reading.values, *reading.times}
        left_out = [name for name in lists if name not in kept and name.lower() not in TIMES]
        frame, lists = frame.drop(columns=left_out), [name for name in lists if name not in left_out]
    cells: dict[str, list[Any]] = {name: [() if _is_missing(cell) else cell for cell in frame[name]] for name in lists}
    lengths = np.array([len(cell) for cell in cells[lists[0]]])
    for name in lists[1:]:
        if (wrong := np.array([len(cell) for cell in cells[name]]) != lengths).any():
            row = int(wrong.argmax())
            raise DataError(
                f"{location}, row {row + 1}: expected lists of one length, got {lengths[row]} in {lists[0]!r} and "
                f"{len(cells[name][row])} in {name!r}; correct the row, or name the columns of values with --value"
            )
    first = {name: next((cell[0] for cell in parts if len(cell)), None) for name, parts in cells.items()}
    if nested := next((name for name, cell in first.items() if isinstance(cell, list | tuple | np.ndarray)), None):
        raise DataError(
            f"{location}, column {nested!r}: expected lists of numbers or times, got lists of lists; give each variate "
            "a column, or state start and freq of each row in place of its times"
        )
    long = {str(name): np.repeat(frame[name].to_numpy(), lengths) for name in frame if name not in lists}
    long |= {name: np.concatenate([np.asarray(cell) for cell in parts if len(cell)]) for name, parts in cells.items()}
    if not {name.lower() for name in long} & IDS:
        long["item_id"] = np.repeat([f"series-{row}" for row in range(len(frame))], lengths)
    return pd.DataFrame(long)


def _is_missing(cell: object) -> bool:
    return cell is None or (isinstance(cell, float) and np.isnan(cell))


def transposed_labels(names: list[str]) -> list[str]:
    """Return the columns before the dates of a header, such as those of page, 2024-01-01, 2024-01-02; [] without dates.

    Years count as dates where each follows the one before.
    """
    n_labels = next((n for n, name in enumerate(names) if DATE_START.match(name) or re.fullmatch(r"\d{4}", name)), 0)
    dates = names[n_labels:]
    if not n_labels or len(dates) < LEAST_DATES:
        return []
    are_years = all(re.fullmatch(r"\d{4}", name) for name in dates)
    if are_years and any(int(year) != int(dates[0]) + n for n, year in enumerate(dates)):
        return []
    return names[:n_labels] if are_years or all(map(DATE_START.match, dates)) else []


def _without_index(frame: pd.DataFrame, location: str) -> tuple[pd.DataFrame, list[str]]:
    """Return the table with the levels of its index as columns, and the names of those that are ids.

    Numbers that are no times and do not repeat count the rows. The last level of numbers next to ids, or of durations,
    orders them.
    """
    frame, index = frame.reset_index(drop=True), frame.index
    levels = [_plain_column(index.get_level_values(n).to_series(frame.index), location) for n in range(index.nlevels)]
    is_time = [
        str(level.name).lower() in {*TIMES, "year"} or types.is_datetime64_any_dtype(level) or begins_with_date(level)
        for level in levels
    ]
    has_durations = types.is_timedelta64_dtype(levels[-1])
    if not any(is_time) and (has_durations or (len(levels) > 1 and types.is_numeric_dtype(levels[-1]))):
        frame = frame.loc[levels.pop().sort_values(kind="stable").index]
    keys = []
    for number, level in enumerate(levels):
        is_key = not is_time[number] and (index.nlevels > 1 or (level.name is not None and not level.is_unique))
        if types.is_numeric_dtype(level) and not is_key and not is_time[number]:
            continue
        name = str(level.name) if level.name is not None else "timestamp" if is_time[number] else f"index {number}"
        frame = pd.concat([level.rename(name).loc[frame.index], frame], axis=1)
        if is_key:
            keys.append(name)
    return frame.reset_index(drop=True), keys


def begins_with_date(column: pd.Series) -> bool:
    """Return whether a column contains text, the first of which begins with a date."""
    cells = column.dropna()
    return is_text(column) and not cells.empty and DATE_START.match(str(cells.iloc[0]).strip()) is not None


def is_text(column: pd.Series) -> bool:
    """Return whether a column contains text, and nothing else but missing cells."""
    return types.infer_dtype(column, skipna=True) in {"string", "categorical", "bytes"}


def _plain_column(column: pd.Series, location: str) -> pd.Series:
    """Return a column of numbers, times or text. Types that cannot be read stay as they are."""
    # Dates, times, durations, decimals and text of pyarrow.
    is_arrow = isinstance(column.dtype, pd.ArrowDtype) and column.dtype.kind in "MmOU"
    # Categories may have no row.
    if is_arrow or isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object).infer_objects()
    kind = types.infer_dtype(column, skipna=True)
    if "complex" in kind:
        raise DataError(
            f"{location}, column {column.name!r}: expected real numbers, got {column.dtype}; use their absolute values"
        )
    if kind == "period":
        return pd.Series(pd.PeriodIndex(column).to_timestamp(), column.index, name=column.name)
    if column.dtype != object or kind == "string":
        return column
    if kind in {"date", "datetime"}:
        try:
            return pd.to_datetime(column)
        except (ValueError, TypeError):
            return column
    if kind == "integer":
        return column.astype("Int64") if all(abs(n) < 2**63 for n in column.dropna()) else _to_float(column)
    cells = column.dropna()
    is_number = cells.map(lambda cell: isinstance(cell, Real | Decimal) and not isinstance(cell, bool | np.bool_))
    return _to_float(column) if len(cells) and is_number.all() else column


def _to_float(column: pd.Series) -> pd.Series:
    return column.where(column.notna(), np.nan).map(float).astype(np.float64)


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


def assign_roles(frame: pd.DataFrame, reading: Reading, location: str) -> Roles:
    """Return the roles of the columns: as the user names them, else by their names and types.

    location: file, for messages.

    Raises:
        DataError: a named column does not exist, several columns could have a role, a column of values
            contains text, or a column of text may be the ids.
    """
    names = list(frame.columns)
    named = {"time": reading.times, "id": reading.ids, "value": reading.values}
    for option, name in ((option, name) for option, chosen in named.items() for name in chosen):
        if name not in names:
            raise DataError(
                f"{location}: expected a column of the table for --{option}, got {name!r}; it has {join(names)}"
            )
    times = reading.times or _time_columns(frame, reading, location)
    others = [name for name in names if name not in (*times, *reading.ids, *reading.values)]
    ids = [name for name in others if name.lower() in IDS and not has_fractions(frame[name])]
    if not reading.ids and len(ids) > 1:
        raise DataError(f"{location}: expected one column of ids, got {join(ids)}; name it, or each of them, with --id")
    ids = reading.ids or ids
    return Roles(times, ids, _value_columns(frame, reading, times, ids, location))


def join(names: list[str]) -> str:
    """List column names, at most NAMED of them."""
    others = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(map(repr, names[:NAMED])) + others


def _time_columns(frame: pd.DataFrame, reading: Reading, location: str) -> list[str]:
    """Return the columns of times by name, else by type or first cell; a time of day follows its date."""
    free = [name for name in frame.columns if name not in (*reading.ids, *reading.values)]
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


def _value_columns(frame: pd.DataFrame, reading: Reading, times: list[str], ids: list[str], location: str) -> list[str]:
    """Return the columns of values. Raises DataError as `assign_roles`."""
    others = [name for name in frame.columns if name not in (*times, *ids)]
    text = [name for name in others if is_text(frame[name])]
    for name in reading.values or text:
        cells = frame[name].dropna()
        if not reading.values and cells.astype(str).str.fullmatch(NUMBER_LIKE).mean() < 0.5:
            continue
        if is_text(cells):
            wrong = frame[name].notna() & ~frame[name].astype(str).str.fullmatch(NUMBER, case=False)
            wrong = wrong if wrong.any() else frame[name].notna()
            raise DataError(
                f"{location}, column {name!r}, {row_of(wrong)}: expected a number such as 1100.5, got "
                f"{frame[name][wrong].iloc[0]!r}; correct it, state the decimal sign with --decimal, or name the "
                "columns of values with --value"
            )
        if not types.is_numeric_dtype(frame[name]):
            raise DataError(
                f"{location}, column {name!r}: expected numbers, got {frame[name].dtype}; name the columns of values "
                "with --value"
            )
    if reading.values:
        return reading.values
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
            transpose = "transpose the table, so that each series is a column"
            fix = transpose if is_wide else "name it with --value, or all columns of ids with --id"
            raise DataError(
                f"{location}: expected one column of values next to the ids in {join(ids)}, got {join(numbers)}; {fix}"
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
