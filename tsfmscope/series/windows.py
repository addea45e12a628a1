"""Windows of series: a context that a model sees, and the future that its forecast is scored on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tsfmscope.errors import DataError
from tsfmscope.series.calendar import season_of, start_of
from tsfmscope.series.types import Series, Skip, Windows

# Smallest number of observed steps in a context.
MIN_CONTEXT = 16


def last_windows(
    series: Sequence[Series],
    *,
    context: int,
    horizon: int,
    min_context: int = MIN_CONTEXT,
    held_out: float | None = None,
    earlier: int = 0,
) -> tuple[Windows, list[Skip]]:
    """Return the last window of every series, for forecasts, and the series that have none, with the reason.

    The window's future is the series' last `horizon` steps.

    earlier: number of steps by which the window is moved towards the beginning of the series. `held_out` is
    still a share of the whole series.
    """
    rule = _WindowRule(context, horizon, min_context, held_out)
    picks, skipped = [], []
    for index, item in enumerate(series):
        origin = len(item.values) - horizon - earlier
        if origin in rule.origins(item):
            picks.append((index, origin))
        else:
            skipped.append(Skip(item.series, rule.reason(item, earlier)))
    return gather_windows(series, picks, context, horizon), skipped


def spread_windows(
    series: Sequence[Series],
    *,
    context: int,
    horizon: int,
    count: int,
    min_context: int = MIN_CONTEXT,
    held_out: float | None = None,
    seed: int | None = None,
) -> tuple[Windows, list[Skip]]:
    """Return `count` windows spread evenly over the series, for embeddings; fewer where there are not enough.

    Every series gives its last usable window before any series gives a second one. Where there are more
    series than `count`, evenly spaced series are chosen. Further origins lie at even distances back from the
    last origin; origins with a full context come first.

    A window is usable if its context has at least `min_context` observed steps and its future at least one. A
    series with an infinite step has no usable window. Contexts are left-padded with NaN where the series is
    shorter; constant contexts are kept.

    Args:
        series: series of one data set, of one frequency.
        context: steps of context, C.
        horizon: steps of future, H.
        count: largest number of windows.
        min_context: smallest number of observed steps in a context.
        held_out: share in (0, 1] at the end of a series that must contain every future completely (the part
            before may have been trained on). None: the whole series.
        seed: seed of the position of each further origin, and of each evenly spaced series, between its
            neighbours; the positions are the same for every context, horizon and count. None: each origin as
            near to the series' end, and each series as near to the beginning of the list, as possible.

    Returns:
        The windows, ordered by rank from the series' end and then by series; and the series without a usable
        window, with the reason.

    Raises:
        ValueError: an argument is out of range.
        DataError: the series are of several data sets, frequencies or seasons.
    """
    if count < 1:
        raise ValueError(f"count: expected at least 1, got {count}")
    rule = _WindowRule(context, horizon, min_context, held_out)
    origins = [rule.origins(item) for item in series]
    usable = [index for index, own in enumerate(origins) if len(own)]
    skipped = [Skip(item.series, rule.reason(item)) for item, own in zip(series, origins, strict=True) if not len(own)]
    phases = np.zeros(len(series) + 1) if seed is None else np.random.default_rng([seed, 9]).random(len(series) + 1)
    if len(usable) > count:
        usable = [usable[int((i + phases[-1]) * len(usable) / count)] for i in range(count)]
    shares = _shares([len(origins[index]) for index in usable], count)
    ranked = []
    for index, share in zip(usable, shares, strict=True):
        full = origins[index][origins[index] >= context]
        backwards = (full if len(full) >= share else origins[index])[::-1]
        offsets = [0, *(int((j + phases[index]) * len(backwards) / share) for j in range(1, share))]
        ranked += [(j, index, int(backwards[at])) for j, at in enumerate(offsets)]
    # All last windows, then all second windows, and so on.
    picks = [(index, origin) for _, index, origin in sorted(ranked, key=lambda pick: pick[:2])]
    return gather_windows(series, picks, context, horizon), skipped


@dataclass(frozen=True)
class _WindowRule:
    context: int
    horizon: int
    min_context: int
    held_out: float | None

    def __post_init__(self) -> None:
        if self.horizon < 1 or not 1 <= self.min_context <= self.context:
            arguments = f"got horizon {self.horizon}, min_context {self.min_context}, context {self.context}"
            raise ValueError(f"windows: expected horizon >= 1 and 1 <= min_context <= context, {arguments}")
        if self.held_out is not None and not 0 < self.held_out <= 1:
            raise ValueError(f"held_out: expected a share in (0, 1] or None, got {self.held_out}")

    def first(self, steps: int) -> int:
        """Return the first origin whose future lies in the held-out part; earlier steps may be trained on."""
        return 0 if self.held_out is None else int(steps * (1 - self.held_out))

    def origins(self, series: Series) -> np.ndarray:
        """Return the usable origins, ascending."""
        steps = len(series.values)
        # The seasonal error and the scale of added noise are computed from the whole series.
        if np.isinf(series.values).any():
            return np.arange(0)
        origins = np.arange(max(1, self.first(steps)), steps - self.horizon + 1)
        # Number of observed steps before each index.
        before = np.concatenate([[0], np.cumsum(~np.isnan(series.values))])
        past = before[origins] - before[np.maximum(origins - self.context, 0)]
        future = before[origins + self.horizon] - before[origins]
        return np.asarray(origins[(past >= self.min_context) & (future > 0)])

    def reason(self, series: Series, earlier: int = 0) -> str:
        """Return why the series' last window, or the one `earlier` steps before it, is not usable."""
        steps, origin = len(series.values), len(series.values) - self.horizon - earlier
        before = f" {earlier} steps before the end" if earlier else ""
        if np.isinf(series.values).any():
            return "infinite"
        if origin < self.min_context:
            return f"too short for {self.min_context} steps of context and a horizon of {self.horizon}{before}"
        if origin < self.first(steps):
            return f"the held-out part is shorter than the horizon of {self.horizon + earlier}"
        if np.isnan(series.values[origin : origin + self.horizon]).all():
            return "nothing is observed in the future"
        return f"fewer than {self.min_context} observed steps in the context"


def _shares(capacities: Sequence[int], count: int) -> list[int]:
    """Return the windows per series, as equal as the capacities allow; the first get the remainder."""
    levels = range(max(capacities, default=0) + 1)
    level = bisect_right(levels, count, key=lambda top: sum(min(capacity, top) for capacity in capacities)) - 1
    shares = [min(capacity, level) for capacity in capacities]
    open_series = [index for index, capacity in enumerate(capacities) if capacity > level]
    for index in open_series[: count - sum(shares)]:
        shares[index] += 1
    return shares


def rolling_origins(
    series: Sequence[Series], *, context: int, horizon: int, count: int, held_out: float | None = None
) -> tuple[list[list[tuple[int, int]]], list[Skip]]:
    """Return the last windows that do not overlap, as pairs of a series' index and an origin.

    A series that is too short for `count` windows gives those that it has, and a list may be empty.

    context: steps in which a window needs MIN_CONTEXT observed ones. count: largest number of windows per series, which
    do not overlap. held_out: as in `spread_windows`.

    Returns:
        One list per number of horizons before the last window, and the series without any window, with the reason why
        their last one is not usable.
    """
    rule = _WindowRule(context, horizon, MIN_CONTEXT, held_out)
    picks: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    skipped = []
    for index, item in enumerate(series):
        usable = set(rule.origins(item).tolist())
        origins = [len(item.values) - (number + 1) * horizon for number in range(count)]
        for number, origin in enumerate(origins):
            if origin in usable:
                picks[number].append((index, origin))
        if usable.isdisjoint(origins):
            skipped.append(Skip(item.series, rule.reason(item)))
    return picks, skipped


def gather_windows(series: Sequence[Series], picks: Sequence[tuple[int, int]], context: int, horizon: int) -> Windows:
    """Return the windows with these pairs of a series' index and an origin; steps beyond a series are NaN."""
    names, freqs, seasons = ({getattr(item, name) for item in series} for name in ("dataset", "freq", "season"))
    if max(len(names), len(freqs), len(seasons)) > 1:
        values = f"{sorted(names)}, {sorted(freqs)}, {sorted(seasons, key=str)}"
        raise DataError(f"windows: expected one data set, frequency and season, got {values}")
    dtype = np.result_type(np.float32, *{item.values.dtype for item in series})
    contexts = np.full((len(picks), context), np.nan, dtype=dtype)
    futures = np.full((len(picks), horizon), np.nan, dtype=dtype)
    for row, (index, origin) in enumerate(picks):
        past = series[index].values[max(0, origin - context) : origin]
        contexts[row, context - len(past) :] = past
        future = series[index].values[origin : origin + horizon]
        futures[row, : len(future)] = future
    ids, origins = [series[index].series for index, _ in picks], np.array([origin for _, origin in picks], np.int64)
    starts = np.array([start_of(series[index].start) for index, _ in picks], dtype="datetime64[ms]")
    dataset, freq = next(iter(names), ""), next(iter(freqs), "")
    return Windows(contexts, futures, ids, origins, dataset, freq, season_of(series), starts)


def last_contexts(series: Sequence[Series], context: int, horizon: int = 1) -> Windows:
    """Return the last `context` steps of every series, with `horizon` unknown steps after them."""
    return gather_windows(series, [(index, len(item.values)) for index, item in enumerate(series)], context, horizon)


@dataclass(frozen=True)
class Observed:
    """Observed steps of context over the windows of one cell.

    context: requested steps. minimum, median: observed steps over the windows. longest: steps that the
    longest series has before its horizon. No series fills a context longer than `longest`: every window is
    padded.
    """

    context: int
    minimum: int
    median: float
    longest: int

    @property
    def is_filled(self) -> bool:
        """Whether the longest series fills the requested context."""
        return self.longest >= self.context

    @property
    def columns(self) -> dict[str, float]:
        """Columns of a result row with the observed steps of context."""
        return {"n_context_min": self.minimum, "n_context_median": self.median}

    def __str__(self) -> str:
        line = f"observed steps of context: minimum {self.minimum}, median {self.median:g} of {self.context}"
        if self.is_filled:
            return line
        padding = f"the longest has {self.longest} steps before its horizon, the rest is padding"
        return f"{line}; no series fills context {self.context}: {padding}"


def longest_context(series: Sequence[Series], horizon: int) -> int:
    """Return the steps, observed or missing, that the longest series has before its horizon.

    Returns 0 if there is no series.
    """
    return max([len(item.values) - horizon for item in series], default=0)
