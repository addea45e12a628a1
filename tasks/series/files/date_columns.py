"""Parser of text or number columns of times, with one order of day and month for the whole column."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float64

from tsfmscope.tasks.errors import DataError
from tsfmscope.tasks.series.files.time_grid import frequency

DATE = r"^\s*(?P<first>[0-9]{1,2})([./-])(?P<second>[0-9]{1,2})\2(?P<year>[0-9]{4}|[0-9]{2})(?P<rest>(?![0-9]).*)$"
# First two-digit year that belongs to the 20th century, as in POSIX strptime.
PIVOT = 69
# Units of numeric times: unit -> units per second.
SINCE: dict[Literal["s", "ms", "us", "ns"], int] = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
# Accepted range in seconds since 1970. It begins in 1973, so that the ranges of the units do not
# overlap.
EARLIEST, LATEST = 10**8, 10**10 - 1
# Factor by which one order of day and month must beat the other (fewer turns, or more even steps).
CLEARLY = 2


def parse_times(column: pd.Series, location: str) -> tuple[pd.Series, str]:
    """Parse times in UTC, with a note if the order of day and month is a guess.

    A cell without a time becomes NaT. Dates such as 13/01/2024 and 13.01.24 are all read in one order. Cells
    with a field above 12 decide it. Where there are none, the order in which the times are regular is taken,
    or the order that is clearly more sorted or more even; else month-first. ISO dates and names of months
    are unambiguous.

    location: file and column, for messages.

    Raises:
        DataError: some cells have a day above 12 in the first field and others in the second.
    """
    fields = column.astype(str).str.extract(DATE)
    first, second = (pd.to_numeric(fields[name]) for name in ("first", "second"))
    dates = first.between(1, 31) & second.between(1, 31) & ((first <= 12) | (second <= 12))
    fields = fields[dates]
    days, months = (column[dates & (field > 12)] for field in (first, second))
    if len(days) and len(months):
        raise DataError(
            f"{location}: expected one order of day and month, got {days.iloc[0]!r} and {months.iloc[0]!r}; "
            "write dates as 2024-01-31"
        )
    if len(days) or len(months) or fields.empty:
        return _read(column, fields, day_first=len(days) > 0), ""
    day_first, month_first = (_read(column, fields, day_first=order) for order in (True, False))
    if day_first.equals(month_first):
        return month_first, ""
    decided = _is_day_first(day_first, month_first)
    if decided is not None:
        return (day_first if decided else month_first), ""
    differs = (day_first != month_first) & dates
    value, read = column[differs].iloc[0], month_first[differs].iloc[0]
    return month_first, (
        f"{location}: no day above 12 shows whether day or month comes first; read month-first, {value} as "
        f"{read:%Y-%m-%d}; if that is wrong, write dates as 2024-01-31"
    )


def parse_numeric_times(column: pd.Series) -> pd.Series | None:
    """Parse times in UTC from whole numbers: 20240131, or seconds, milli-, micro- or nanoseconds since 1970.

    Return None where the numbers are none of these, such as years or a count of rows. A missing number
    becomes NaT.
    """
    values = column.dropna()
    if values.empty or (values != values.round()).any():
        return None
    low, high = float(values.min()), float(values.max())
    if low >= 1800_01_01 and high <= 2200_12_31:
        text = column.astype("Int64").astype("string")
        times = pd.to_datetime(text, format="%Y%m%d", utc=True, errors="coerce")
        return times if times.notna().sum() == len(values) else None
    for unit, scale in SINCE.items():
        if low >= EARLIEST * scale and high <= LATEST * scale:
            return pd.to_datetime(column, unit=unit, utc=True)
    return None


def _read(column: pd.Series, fields: pd.DataFrame, *, day_first: bool) -> pd.Series:
    day, month = (fields["first"], fields["second"]) if day_first else (fields["second"], fields["first"])
    short = fields["year"].str.len() == 2
    year = fields["year"].where(~short, np.where(fields["year"].str[-2:].astype(int) < PIVOT, "20", "19") + fields.year)
    text = column.astype(object)
    text[fields.index] = year + "-" + month.str.zfill(2) + "-" + day.str.zfill(2) + fields["rest"]
    with warnings.catch_warnings():
        # pandas warns that formats differ from row to row.
        warnings.simplefilter("ignore", UserWarning)
        return pd.to_datetime(text, format="mixed", utc=True, errors="coerce")


def _is_day_first(day_first: pd.Series, month_first: pd.Series) -> bool | None:
    """Return whether the day-first reading looks more like the times of a table; None if undecided."""
    regular = [
        bool(frequency(pd.DatetimeIndex(times.dropna()).unique().sort_values())) for times in (day_first, month_first)
    ]
    if any(regular):
        return None if all(regular) else regular[0]
    measures: tuple[Callable[[pd.Series], float], ...] = (_turns, _unevenness)
    for measure in measures:
        day, month = measure(day_first), measure(month_first)
        if CLEARLY * min(day, month) < max(day, month):
            return day < month
    return None


def _turns(times: pd.Series) -> float:
    """Count the steps against the direction of most steps of the file."""
    steps = np.diff(_seconds(times))
    return float(min((steps < 0).sum(), (steps > 0).sum()))


def _unevenness(times: pd.Series) -> float:
    """Return the standard deviation of the steps between sorted times, divided by their mean."""
    steps = np.diff(np.unique(_seconds(times)))
    return float(steps.std() / steps.mean()) if len(steps) else 0.0


def _seconds(times: pd.Series) -> Float64[np.ndarray, " time"]:
    seconds: np.ndarray = pd.DatetimeIndex(times.dropna()).as_unit("ns").asi8 / 1e9
    return seconds
