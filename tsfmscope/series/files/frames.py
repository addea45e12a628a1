"""Plain form of a user's table: index levels as columns, columns of plain types, one row per time."""

from __future__ import annotations

import dataclasses
import re
from decimal import Decimal
from numbers import Real

import numpy as np
import pandas as pd
from pandas.api import types

from tsfmscope.errors import DataError
from tsfmscope.series.files.columns import Columns

# Names of columns of times, in lower case; index levels may also be years.
TIMES = {"ds", "timestamp", "date", "datetime", "time"}
# Beginning of a date in any order, a quarter, month or week of a year.
DATE_START = re.compile(
    r"(\d{1,4}([./-])\d{1,2}\2\d{1,4}|\d{1,2}([ ./-])[a-z]{3,9}\3\d{2,4}|\d{4}-\d\d|\d{4}-?[QMW]\d{1,2})(?!\d)", re.I
)
# Smallest number of dates in a header that shows a table with one row per series.
LEAST_DATES = 3


def make_plain(frame: pd.DataFrame, columns: Columns, location: str) -> tuple[pd.DataFrame, Columns]:
    """Return the table with all that it contains in columns, and the columns with the ids that its index contains.

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
    frame = pd.DataFrame({name: _plain_column(frame[name], location) for name in frame}, index=frame.index)
    if labels := transposed_labels([str(name) for name in frame]):
        named = [str(name) for name in frame[labels].astype(str).agg("/".join, axis=1)]
        frame = frame.drop(columns=labels).set_axis(named, axis=0).T.reset_index(names="timestamp")
        if duplicated := sorted(frame.columns[frame.columns.duplicated()]):
            raise DataError(f"{location}: the header contains dates, but two rows are named {duplicated[0]!r}")
    return frame, columns if columns.ids else dataclasses.replace(columns, id=keys)


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
    if isinstance(column.dtype, pd.CategoricalDtype):
        # Categories may have no row.
        column = column.astype(object).infer_objects()
    elif isinstance(column.dtype, pd.ArrowDtype) and column.dtype.kind in "MmOU":
        # Dates, times, durations, decimals and text of pyarrow.
        column = column.astype(object).infer_objects()
    kind = types.infer_dtype(column, skipna=True)
    if "complex" in kind:
        raise DataError(
            f"{location}, column {column.name!r}: expected real numbers, got {column.dtype}; use their absolute values"
        )
    if kind == "period":
        return pd.Series(pd.PeriodIndex(column).to_timestamp(), column.index, name=column.name)
    if column.dtype != object:
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
