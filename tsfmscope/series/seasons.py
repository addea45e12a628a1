"""Seasons of series in steps, from their frequency and length."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from tsfmscope.errors import DataError
from tsfmscope.series.types import Series

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
