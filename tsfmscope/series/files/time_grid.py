"""Regular time grid fitted to a series' times; absent timestamps become missing values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Int64

from tsfmscope.series.files.hub_datasets import infer_freq

# Number of steps of a series from which its frequency is inferred.
FREQ_STEPS = 10_000
# Steps per window and number of windows from which a frequency is inferred next to a gap: four
# trading days mostly span a weekend.
WINDOW, WINDOWS = 4, 50
# Largest number of series that a note lists by name.
NAMED = 3
# Share of the regular times that must be present: events that share a second are not a series of
# seconds.
LEAST = 0.5
# An hour, as a share of a day, with room for rounding.
CLOCK_CHANGE = 1 / 24 + 1e-9


@dataclass(frozen=True)
class Grid:
    """Regular times.

    freq: pandas alias; steps: number of grid times from first to last; at: grid index of each of the series'
    own times.
    """

    freq: str
    steps: int
    at: Int64[np.ndarray, " time"]

    @property
    def missing(self) -> int:
        """Return the number of grid steps without a time."""
        return self.steps - len(self.at)


def frequency(times: pd.DatetimeIndex) -> str:
    """Return the pandas alias of ascending times that are regular in UTC or in local time; "" for others."""
    return next((freq for view in _views(times) if (freq := infer_freq(view[:FREQ_STEPS].to_list()))), "")


def grid(times: pd.DatetimeIndex, similar: Iterable[str] = ()) -> Grid | None:
    """Fit the grid with the fewest missing times to ascending, unique times; None where none fits.

    Hours are regular in UTC, days in local time: both are tried. known: aliases of similar series, for a
    series that is too short to show its own.
    """
    candidates = ((view, freq) for view in _views(times) for freq in dict.fromkeys([*similar, *_inferred_freqs(view)]))
    grids = [fit for view, freq in candidates if (fit := _fit_grid(view, freq)) is not None]
    return min(grids, key=lambda fit: fit.steps, default=None)


def missing_times(missing: Mapping[str, int]) -> str:
    """Write a note for the user. missing: series -> number of times that its file lacks, at least one."""
    names = [*missing][:NAMED] + ([f"{len(missing) - NAMED} more"] if len(missing) > NAMED else [])
    n = sum(missing.values())
    return f"{', '.join(names)}: {n} missing {'time' if n == 1 else 'times'} read as NaN"


def fit_freq(times: pd.DatetimeIndex, freq: str) -> Grid | None:
    """Fit the grid of one frequency to ascending, unique times; None if it does not fit."""
    return next((fit for view in _views(times) if (fit := _fit_grid(view, freq)) is not None), None)


def _views(times: pd.DatetimeIndex) -> Iterator[pd.DatetimeIndex]:
    """Yield the times in UTC, and also in local time if that differs and has no duplicates.

    Local times have duplicates when the clock is set back in autumn. Both are yielded without time zone;
    times that have no zone are yielded as they are. Then follow days whose time differs by at most an hour, as local
    midnights in UTC do, as equal days, and days of one number, such as each 15th, as the first day of their month.
    """
    views = [times]
    if times.tz is not None:
        utc, wall = times.tz_convert("UTC").tz_localize(None), times.tz_localize(None)
        views = [utc]
        if not utc.equals(wall) and wall.is_monotonic_increasing and wall.is_unique:
            views.append(wall)
    yield from views
    for view in views:
        days = (view - view[0]) / pd.Timedelta(days=1)
        whole = pd.Index(np.round(days))
        if 0 < np.abs(days - whole).max() < CLOCK_CHANGE and whole.is_unique:
            yield view[0] + pd.to_timedelta(whole, unit="D")
        if view[0].day > 1 and (view.day == view[0].day).all():
            yield view - pd.Timedelta(days=view[0].day - 1)


def _inferred_freqs(times: pd.DatetimeIndex) -> Iterator[str]:
    """Yield the aliases inferred from the first times, then from short windows spread over the series."""
    yield infer_freq(times[:FREQ_STEPS].to_list())
    for at in np.unique(np.linspace(0, max(len(times) - WINDOW, 0), WINDOWS, dtype=int)):
        yield infer_freq(times[at : at + WINDOW].to_list())


def _fit_grid(times: pd.DatetimeIndex, freq: str) -> Grid | None:
    """Return the grid of the given frequency, or None.

    A grid fits if it contains every time, and enough of its times are the series' own.
    """
    if not freq:
        return None
    first, last, longest = times[0], times[-1], len(times) / LEAST
    try:
        start = pd.date_range(first, periods=2, freq=freq)
        # A rough bound before the grid is built: months and business days differ in length.
        if (last - first) / (start[1] - start[0]) > 2 * longest:
            return None
        regular = pd.date_range(first, last, freq=freq)
    # The dates lie outside the years that pandas supports.
    except (ValueError, OverflowError):
        return None
    at = regular.get_indexer(times)
    return None if (at < 0).any() or len(regular) > longest else Grid(freq, len(regular), at.astype(np.int64))
