"""The regular times that a series' own times are of, so that a time that is missing is a missing value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Int64

from tasks.series.hub import infer_freq

FREQ_STEPS = 10_000  # of a series, that its frequency is read from
WINDOW, WINDOWS = 4, 50  # times in a row that show a frequency beside a gap: four trading days mostly span a weekend
NAMED = 3  # series, in a line on what their file lacks
LEAST = 0.5  # share of the regular times that must be there: events that share a second make no series of seconds


@dataclass(frozen=True)
class Grid:
    """Regular times. freq: pandas' alias; steps: how many, from first to last; at: the step of each own time."""

    freq: str
    steps: int
    at: Int64[np.ndarray, " time"]

    @property
    def missing(self) -> int:
        """Steps without a time."""
        return self.steps - len(self.at)


def frequency(times: pd.DatetimeIndex) -> str:
    """The pandas alias of times, ascending, that are regular by the world's clock or by the wall's; "" of others."""
    return next((freq for view in _views(times) if (freq := infer_freq(view[:FREQ_STEPS].to_list()))), "")


def grid(times: pd.DatetimeIndex, known: Iterable[str] = ()) -> Grid | None:
    """The grid of times, ascending and none twice, with the fewest missing; None where there is none.

    Hours are regular by the world's clock, days by the wall's: both are tried. known: aliases of like series, for one
    that is too short to show its own.
    """
    shown = ((view, freq) for view in _views(times) for freq in dict.fromkeys([*known, *_shown(view)]))
    found = [one for view, freq in shown if (one := _fitting(view, freq)) is not None]
    return min(found, key=lambda one: one.steps, default=None)


def missing_times(missing: Mapping[str, int]) -> str:
    """A line for people. missing: series -> times that its file lacks, at least one."""
    names = [*missing][:NAMED] + ([f"{len(missing) - NAMED} more"] if len(missing) > NAMED else [])
    n = sum(missing.values())
    return f"{', '.join(names)}: {n} missing {'time' if n == 1 else 'times'} read as NaN"


def _views(times: pd.DatetimeIndex) -> Iterator[pd.DatetimeIndex]:
    """Times without zone: by UTC, and by the wall's clock where that differs and shows none twice, as in autumn."""
    if times.tz is None:
        yield times
        return
    utc, wall = times.tz_convert("UTC").tz_localize(None), times.tz_localize(None)
    yield utc
    if not utc.equals(wall) and wall.is_monotonic_increasing and wall.is_unique:
        yield wall


def _shown(times: pd.DatetimeIndex) -> Iterator[str]:
    """Aliases of the times from the first on, then of a few in a row here and there."""
    yield infer_freq(times[:FREQ_STEPS].to_list())
    for at in np.unique(np.linspace(0, max(len(times) - WINDOW, 0), WINDOWS, dtype=int)):
        yield infer_freq(times[at : at + WINDOW].to_list())


def _fitting(times: pd.DatetimeIndex, freq: str) -> Grid | None:
    """The grid of that frequency, if it holds every time and enough of its own are there."""
    if not freq:
        return None
    first, last, most = times[0], times[-1], len(times) / LEAST
    try:
        start = pd.date_range(first, periods=2, freq=freq)
        if (last - first) / (start[1] - start[0]) > 2 * most:  # roughly: months and business days differ in length
            return None
        regular = pd.date_range(first, last, freq=freq)
    except (ValueError, OverflowError):  # beyond the years that pandas counts in
        return None
    at = regular.get_indexer(times)
    return None if (at < 0).any() or len(regular) > most else Grid(freq, len(regular), at.astype(np.int64))
