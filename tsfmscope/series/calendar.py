"""Seasons of series in steps, dates of the steps, and the six calendar features that Lag-Llama computes from them.

The date of a step is the date of its pandas period, as in gluonts, through which the release of Lag-Llama
reads its series. A period longer than a day (W, MS, QS, YS ...) has the date of its last day; a shorter one
has the time of its beginning. Dates have a resolution of seconds, so that they are not limited to the years
1677 to 2262 of nanoseconds.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float32, Int64

from tsfmscope.errors import DataError
from tsfmscope.series.types import Series, Windows

if TYPE_CHECKING:
    import pandas as pd

# datetime64[s]; jaxtyping has no name for this type.
Dates = np.ndarray

# Nominal start and frequency of a series without; our choice, since the release requires both.
NOMINAL_START = np.datetime64("2000-01-01T00:00:00.000", "ms")
NOMINAL_FREQ = "D"
# Frequencies of synthetic training series: those of the release's lags and of our data sets.
TRAINING_FREQS = ("s", "min", "5min", "10min", "15min", "30min", "h", "D", "B", "W", "MS", "QS", "YS")
TRAINING_YEARS = (np.datetime64("1970-01-01", "ms"), np.datetime64("2030-01-01", "ms"))
# Number of features of gluonts' time_features_from_frequency_str("S").
FEATURES = 6
# Nanoseconds in a second.
SECOND = 10**9


class Clock(NamedTuple):
    """Time of the first value of a series (datetime64[ms]) and its frequency (pandas alias)."""

    start: np.datetime64
    freq: str


def start_of(start: datetime | None) -> np.datetime64:
    """Convert the time of a first value to datetime64[ms]; NaT for None. A time zone is dropped.

    The local time stays as it is.
    """
    return np.datetime64("NaT", "ms") if start is None else np.datetime64(start.replace(tzinfo=None), "ms")


def random_clock(rng: np.random.Generator) -> Clock:
    """Draw a random clock for a synthetic training series, from TRAINING_FREQS and TRAINING_YEARS."""
    first, last = (int(year.astype(np.int64)) for year in TRAINING_YEARS)
    freq = TRAINING_FREQS[rng.integers(len(TRAINING_FREQS))]
    return Clock(np.datetime64(int(rng.integers(first, last)), "ms"), freq)


def step_dates(starts: Dates, freq: str, first: Int64[np.ndarray, " series"], count: int) -> Dates:
    """Return the dates of `count` steps of each series, [S, count], datetime64[s].

    A date is NaT before the first value of a series, and at every step of a frequency that has no period
    (semi-months, business hours, weekdays of a month); the release cannot read those frequencies either.

    Args:
        starts: time of the first value of each series, datetime64[ms], [S]; NOMINAL_START replaces NaT.
        freq: pandas alias of all series; NOMINAL_FREQ replaces an empty one.
        first: index of the first requested step in each series, [S]; may be negative.
        count: number of steps.

    Raises:
        DataError: pandas does not know the frequency.
    """
    starts = np.where(np.isnat(starts), NOMINAL_START, starts)
    steps = np.asarray(first, dtype=np.int64)[:, None] + np.arange(count)
    multiple, unit, period = rule_of(freq or NOMINAL_FREQ)
    if unit:
        # The unit that contains the start is the first one.
        seconds, milliseconds = (part[:, None] for part in np.divmod(starts.astype(np.int64), 1000))
        if unit >= SECOND:
            length = unit // SECOND
            whole = seconds // length * length + steps * multiple * length
        else:
            per_second = SECOND // unit
            whole = seconds + (milliseconds * per_second // 1000 + steps * multiple) // per_second
        dates: Dates = whole.astype("datetime64[s]")
    elif period:
        dates = _period_dates(starts, steps * multiple, period)
    else:
        dates = np.full(steps.shape, "NaT", dtype="datetime64[s]")
    dates[steps < 0] = np.datetime64("NaT")
    return np.asarray(dates)


def window_dates(windows: Windows, before: int) -> Dates:
    """Return the dates of each window's last `before` context steps and its future.

    Shape [W, before + H], datetime64[s].
    """
    starts = windows.starts
    if starts is None:
        starts = np.full(len(windows), "NaT", dtype="datetime64[ms]")
    return step_dates(starts, windows.freq, np.asarray(windows.origin) - before, before + windows.horizon)


def calendar_features(dates: Dates) -> Float32[np.ndarray, "*step 6"]:
    """Compute six features of each date, in -0.5 .. 0.5, float32 [..., 6]; 0 where a date is NaT.

    They are the features of gluonts' time_features_from_frequency_str("S"): second of the minute, minute of
    the hour, hour of the day, day of the week, day of the month and day of the year. The zero for NaT follows
    the release, where gluonts' InstanceSplitter pads the features of steps before a series with 0.
    """
    missing = np.isnat(dates)
    dates = np.where(missing, np.datetime64(0, "s"), dates)
    year, month, day, hour, minute = (dates.astype(f"datetime64[{unit}]") for unit in "YMDhm")
    fields = (
        (dates - minute, 59),
        (minute - hour, 59),
        (hour - day, 23),
        # 1970-01-01 was a Thursday; Monday is 0.
        ((day.astype(np.int64) + 3) % 7, 6),
        (day - month, 30),
        (day - year, 365),
    )
    features = np.stack([field.astype(np.int64) / largest - 0.5 for field, largest in fields], axis=-1)
    features[missing] = 0
    return features.astype(np.float32)


def _period_dates(starts: Dates, periods: Int64[np.ndarray, "series step"], alias: str) -> Dates:
    """Return the last day of each period that lies `periods` periods after the period of the start."""
    import pandas as pd

    with warnings.catch_warnings():
        # pandas deprecates periods of business days.
        warnings.simplefilter("ignore", FutureWarning)
        begins = np.array([pd.Period(start, alias).ordinal for start in starts.tolist()], dtype=np.int64)
        ordinals = (begins[:, None] + periods).ravel()
        index = pd.PeriodIndex.from_ordinals(ordinals, freq=alias)  # type: ignore[attr-defined]
        year, month, day = (np.asarray(field, dtype=np.int64) for field in (index.year, index.month, index.day))
    months = (year - 1970).astype("datetime64[Y]").astype("datetime64[M]") + (month - 1)
    dates = months.astype("datetime64[D]") + (day - 1)
    return dates.astype("datetime64[s]").reshape(periods.shape)


@lru_cache(maxsize=256)
def rule_of(freq: str) -> tuple[int, int, str]:
    """Return (units per step, nanoseconds of a unit, alias of the unit's pandas period).

    Nanoseconds are 0 for units of variable length; the alias is "" for units of fixed length or without a
    period.

    Raises:
        DataError: pandas does not know the frequency.
    """
    import pandas as pd
    from gluonts.time_feature import norm_freq_str
    from pandas.tseries.frequencies import to_offset
    from pandas.tseries.offsets import Tick

    with warnings.catch_warnings():
        # pandas renamed H, M, Y ...; files may have the old names.
        warnings.simplefilter("ignore", FutureWarning)
        try:
            offset = to_offset(freq)
        except ValueError as error:
            raise DataError(f"freq: expected a pandas alias such as h, D, W, MS, got {freq!r} ({error})") from error
        assert offset is not None
        if isinstance(offset, Tick):
            return offset.n, int(offset.base.nanos), ""
        # The second name is for BMS, for which pandas has no period.
        for name in (offset.base.freqstr, norm_freq_str(offset.base.freqstr)):
            with contextlib.suppress(ValueError, AttributeError):
                alias = str(pd.date_range("2000-01-03", periods=1, freq=name).to_period().freqstr)
                return offset.n, 0, alias
        return offset.n, 0, ""


def present_alias(freq: str) -> str:
    """Return a frequency in the form of this version of pandas: h for H, ME for M."""
    from pandas.tseries.frequencies import to_offset

    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        try:
            to_offset(freq)
            return freq
        except FutureWarning:
            warnings.simplefilter("ignore", FutureWarning)
            alias = to_offset(freq).freqstr
            # pandas adds the default anchor, as in QE-DEC.
            return alias if "-" in freq else alias.partition("-")[0]


def future_times(start: datetime, freq: str, steps: int, horizon: int, tz: str | None = None) -> pd.DatetimeIndex:
    """Return the times of the `horizon` steps after a series of `steps` steps, in its zone if it has one.

    Steps of a day and longer keep their local time of day across a clock change; shorter ones are equally long. A start
    that the frequency does not contain, such as the 15th for MS, stays in its place of the month, quarter or year.

    Raises:
        DataError: pandas does not know the frequency, or the times leave the years that it can count.
    """
    import pandas as pd
    from pandas.tseries.frequencies import to_offset
    from pandas.tseries.offsets import Tick

    multiple, _, period = rule_of(freq)
    offset = to_offset(freq)
    assert offset is not None
    try:
        first = pd.Timestamp(start.replace(tzinfo=None))
        if tz is not None:
            # Of a time that occurs twice, a series starts with the first.
            first = first.tz_localize(tz, ambiguous=True, nonexistent="shift_forward")
        if isinstance(offset, Tick) or offset.is_on_offset(first):
            return pd.date_range(first, periods=steps + horizon, freq=offset)[steps:]
        days, months = LENGTHS.get(period.partition("-")[0], (0, 0))
        if not days and not months:
            return pd.date_range(first, periods=steps + horizon, freq=offset)[steps:]
        steps_ahead = [multiple * step for step in range(steps, steps + horizon)]
        return pd.DatetimeIndex([first + pd.DateOffset(days=days * n, months=months * n) for n in steps_ahead])
    except (OverflowError, ValueError, pd.errors.OutOfBoundsDatetime) as error:
        raise DataError(
            f"times after {start:%Y-%m-%d} in steps of {freq}: {error}; remove the column of times"
        ) from error


# Days and months of a pandas period.
LENGTHS = {"W": (7, 0), "M": (0, 1), "Q": (0, 3), "Y": (0, 12)}


# Seasons that GluonTS sets to 1: of days, weeks, business days with holidays, business months and quarters.
CALENDAR = {"D": 7, "W": 52, "C": 5, "BM": 12, "BME": 12, "BQ": 4, "BQE": 4}
DAY_NANOSECONDS = 86_400_000_000_000


def season_of(series: Sequence[Series]) -> int:
    """Return the season in steps of one data set: that of its series, or `seasonality` at their median length.

    It is 1 without a series.
    """
    if not series:
        return 1
    if series[0].season is not None:
        return series[0].season
    return seasonality(series[0].freq, int(np.median([len(item.values) for item in series])))


def seasonality(freq: str, steps: int) -> int:
    """Return the season of a pandas frequency in series of `steps` steps.

    It is 7 for days and 52 for weeks where the series hold two years; for other frequencies, that of GluonTS (5 for
    business days, 24 for hours, 12 for months). It is 1 without a frequency, and where a season is longer than the
    series. A whole number of days or weeks is read as such, so that 24h is D and 14D is 2W.

    Raises:
        DataError: pandas does not know the frequency, or it goes backwards.
    """
    season, is_weekly = _calendar_season(freq)
    return season if steps >= (2 * season if is_weekly else season) else 1


@lru_cache(maxsize=64)
def gluonts_seasonality(freq: str) -> int:
    """Return GluonTS's seasonality of a pandas frequency, which printed benchmarks have: 1 for days and weeks.

    It is 1 for an empty frequency. Raises DataError as `seasonality` does.
    """
    return _lookup(freq, {})


@lru_cache(maxsize=64)
def _calendar_season(freq: str) -> tuple[int, bool]:
    """Return the season of a frequency, and whether its steps are weeks."""
    from pandas.tseries.frequencies import to_offset

    # Names what is wrong with the frequency.
    gluonts_seasonality(freq)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        offset = to_offset(freq) if freq else None
    try:
        days, rest = divmod(offset.nanos if offset is not None else 1, DAY_NANOSECONDS)
    except ValueError:
        # A step without a fixed length, such as a month; a week has none either in pandas.
        days, rest = 0, 1
    if not rest:
        freq = f"{days // 7}W" if days % 7 == 0 else f"{days}D"
    return _lookup(freq, CALENDAR), "W" in freq.partition("-")[0]


def _lookup(freq: str, others: Mapping[str, int]) -> int:
    from gluonts.time_feature.seasonality import DEFAULT_SEASONALITIES, get_seasonality

    if not freq:
        return 1
    # gluonts warns about every season that is 1.
    logging.getLogger("gluonts.time_feature.seasonality").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        # pandas renamed H, M, Y ...; files may have the old names.
        warnings.simplefilter("ignore", FutureWarning)
        try:
            season = int(get_seasonality(freq, {**DEFAULT_SEASONALITIES, **others}))
        except (ValueError, LookupError, ArithmeticError, AttributeError, TypeError) as error:
            raise DataError(f"freq: expected a pandas alias such as h, D, W, MS, got {freq!r} ({error})") from error
    # gluonts gives -24 for a frequency of -1h.
    if season < 1:
        raise DataError(f"freq: expected steps that go forwards, such as h, D, W, MS, got {freq!r}")
    return season
