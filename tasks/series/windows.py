"""Windows of series: a context that a model sees, and the future that it is scored on."""

from __future__ import annotations

import logging
import warnings
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tasks.errors import DataError
from tasks.series.types import Series, Skip, Windows

MIN_CONTEXT = 16  # observed steps that a context must hold


def last_windows(
    series: Sequence[Series],
    *,
    context: int,
    horizon: int,
    season: int | None = None,
    min_context: int = MIN_CONTEXT,
    held_out: float | None = None,
    earlier: int = 0,
) -> tuple[Windows, list[Skip]]:
    """The last window of every series, for forecasts: its future is the series' last `horizon` steps.

    earlier: the window that lies so many steps before it; `held_out` is still a share of the whole series.
    """
    how = _How(context, horizon, min_context, held_out)
    picked, skipped = [], []
    for index, one in enumerate(series):
        origin = len(one.values) - horizon - earlier
        if origin in how.origins(one):
            picked.append((index, origin))
        else:
            skipped.append(Skip(one.series, how.reason(one, earlier)))
    return _gather(series, picked, how, season), skipped


def spread_windows(
    series: Sequence[Series],
    *,
    context: int,
    horizon: int,
    count: int,
    season: int | None = None,
    min_context: int = MIN_CONTEXT,
    held_out: float | None = None,
) -> tuple[Windows, list[Skip]]:
    """`count` windows shared out evenly over the series, for embeddings; fewer where the series do not hold as many.

    Every series gives its last usable window before any gives a second; where there are more series than `count`, they
    are evenly spaced. Further origins lie evenly back from the last, those with a full context first.
    A window is usable where its context holds at least `min_context` observed steps and its future at least one. A
    series with an infinite step has none.
    Contexts are left-padded with NaN where the series is shorter; constant contexts are kept. `held_out` is the share
    at the end of a series in which every future must lie wholly (the part before may have been trained on).

    Args:
        series: series of one data set, of one frequency.
        context: steps of context, C.
        horizon: steps of future, H.
        count: windows, at most.
        season: steps of the seasonal-naive lag; gluonts' seasonality of the frequency where None.
        min_context: observed steps that a context must hold.
        held_out: share in (0, 1], or None for the whole series.

    Returns:
        The windows, ordered by rank from the series' end and then by series, and the series that can give none, with
        why.

    Raises:
        ValueError: an argument is out of range. DataError: the series are of several data sets or frequencies.
    """
    if count < 1:
        raise ValueError(f"count: expected at least 1, got {count}")
    how = _How(context, horizon, min_context, held_out)
    found, usable, skipped = how.sort(series)
    if len(usable) > count:
        usable = [usable[i * len(usable) // count] for i in range(count)]
    shares = _shares([len(found[index]) for index in usable], count)
    return _gather(series, _picks(usable, shares, found, context), how, season), skipped


def seasonality(freq: str) -> int:
    """gluonts' seasonality of a pandas frequency, the lag of seasonal naive and MASE; 1 where there is no frequency.

    Raises:
        DataError: pandas does not know the frequency.
    """
    from gluonts.time_feature import get_seasonality

    if not freq:
        return 1
    logging.getLogger("gluonts.time_feature.seasonality").setLevel(logging.ERROR)  # warns of every season that is 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # pandas renamed H, M, Y ...; files may have the old names
        try:
            return int(get_seasonality(freq))
        except (ValueError, KeyError) as error:
            raise DataError(f"freq: expected a pandas alias such as h, D, W, MS, got {freq!r} ({error})") from error


@dataclass(frozen=True)
class _How:
    context: int
    horizon: int
    min_context: int
    held_out: float | None

    def __post_init__(self) -> None:
        if self.horizon < 1 or not 1 <= self.min_context <= self.context:
            got = f"got horizon {self.horizon}, min_context {self.min_context}, context {self.context}"
            raise ValueError(f"windows: expected horizon >= 1 and 1 <= min_context <= context, {got}")
        if self.held_out is not None and not 0 < self.held_out <= 1:
            raise ValueError(f"held_out: expected a share in (0, 1] or None, got {self.held_out}")

    def first(self, steps: int) -> int:
        """The first origin whose future lies in the held-out part; the corpus trains on the steps before."""
        return 0 if self.held_out is None else int(steps * (1 - self.held_out))

    def origins(self, one: Series) -> np.ndarray:
        """Usable origins, ascending."""
        steps = len(one.values)
        if np.isinf(one.values).any():  # the seasonal error and the noise's size look at all of the series
            return np.arange(0)
        origins = np.arange(max(1, self.first(steps)), steps - self.horizon + 1)
        before = np.concatenate([[0], np.cumsum(~np.isnan(one.values))])  # observed steps before each index
        past = before[origins] - before[np.maximum(origins - self.context, 0)]
        future = before[origins + self.horizon] - before[origins]
        return np.asarray(origins[(past >= self.min_context) & (future > 0)])

    def sort(self, series: Sequence[Series]) -> tuple[list[np.ndarray], list[int], list[Skip]]:
        """Usable origins of every series, the indices of series that have any, and the others with why."""
        found = [self.origins(one) for one in series]
        usable = [index for index, origins in enumerate(found) if len(origins)]
        none = [one for one, origins in zip(series, found, strict=True) if not len(origins)]
        return found, usable, [Skip(one.series, self.reason(one)) for one in none]

    def reason(self, one: Series, earlier: int = 0) -> str:
        """Why the series' last window, or the one so many steps before it, is not usable, or none is."""
        steps, origin = len(one.values), len(one.values) - self.horizon - earlier
        before = f" {earlier} steps before the end" if earlier else ""
        if np.isinf(one.values).any():
            return "infinite"
        if origin < self.min_context:
            return f"too short for {self.min_context} steps of context and a horizon of {self.horizon}{before}"
        if origin < self.first(steps):
            return f"the held-out part is shorter than the horizon of {self.horizon + earlier}"
        if np.isnan(one.values[origin : origin + self.horizon]).all():
            return "nothing is observed in the future"
        return f"fewer than {self.min_context} observed steps in the context"


def _shares(capacities: Sequence[int], count: int) -> list[int]:
    """How many windows each series gives, as equal as capacities let them be; the first ones give what is left over."""
    levels = range(max(capacities, default=0) + 1)
    level = bisect_right(levels, count, key=lambda top: sum(min(capacity, top) for capacity in capacities)) - 1
    shares = [min(capacity, level) for capacity in capacities]
    above = [index for index, capacity in enumerate(capacities) if capacity > level]
    for index in above[: count - sum(shares)]:
        shares[index] += 1
    return shares


def _picks(
    usable: Sequence[int], shares: Sequence[int], found: Sequence[np.ndarray], context: int
) -> list[tuple[int, int]]:
    """Pairs (series, origin): the last windows of all, then the second of all that have one ..."""
    ranked = []
    for index, share in zip(usable, shares, strict=True):
        origins = found[index]
        full = origins[origins >= context]
        backwards = (full if len(full) >= share else origins)[::-1]
        ranked += [(j, index, int(backwards[j * len(backwards) // share])) for j in range(share)]
    return [(index, origin) for _, index, origin in sorted(ranked, key=lambda pick: pick[:2])]


def _gather(series: Sequence[Series], picks: Sequence[tuple[int, int]], how: _How, season: int | None) -> Windows:
    names, freqs = {one.dataset for one in series}, {one.freq for one in series}
    if len(names) > 1 or len(freqs) > 1:
        raise DataError(f"windows: expected one data set and frequency, got {sorted(names)}, {sorted(freqs)}")
    contexts = np.full((len(picks), how.context), np.nan, dtype=np.float32)
    futures = np.empty((len(picks), how.horizon), dtype=np.float32)
    for row, (index, origin) in enumerate(picks):
        past = series[index].values[max(0, origin - how.context) : origin]
        contexts[row, how.context - len(past) :] = past
        futures[row] = series[index].values[origin : origin + how.horizon]
    freq = next(iter(freqs), "")
    return Windows(
        context=contexts,
        future=futures,
        series=[series[index].series for index, _ in picks],
        origin=np.array([origin for _, origin in picks], dtype=np.int64),
        dataset=next(iter(names), ""),
        freq=freq,
        season=seasonality(freq) if season is None else season,
    )
