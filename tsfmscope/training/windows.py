"""Training windows: one context length per batch, and a random number of visible future steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tsfmscope.series.calendar import Clock, step_dates

# Last part of the seed of the random stream for clocks.
CLOCKS = 1


class Batch(NamedTuple):
    """Training windows: context [B, C] and future [B, H], NaN where missing.

    clocks: start and frequency of the series of each window. origins: index, in that series, of the window's
    first future step. Both are empty if the windows are not time series.
    """

    context: np.ndarray
    future: np.ndarray
    clocks: Sequence[Clock] = ()
    origins: Sequence[int] = ()

    def dates(self) -> np.ndarray:
        """Return seconds since 1970 of the steps of context and future, int64 [B, C + H].

        Steps before the start of a series get the smallest int64.
        """
        before, count = self.context.shape[1], self.context.shape[1] + self.future.shape[1]
        first = np.array(self.origins, dtype=np.int64) - before
        seconds = np.empty((len(first), count), dtype=np.int64)
        for freq in {clock.freq for clock in self.clocks}:
            rows = [row for row, clock in enumerate(self.clocks) if clock.freq == freq]
            starts = np.array([self.clocks[row].start for row in rows], dtype="datetime64[ms]")
            seconds[rows] = step_dates(starts, freq, first[rows], count).astype(np.int64)
        return seconds


def streams(seed: int, step: int) -> tuple[np.random.Generator, np.random.Generator]:
    """Return two random streams for a training step: for its windows, and for the clocks of synthetic series.

    With separate streams, the clocks do not change the windows that families without dates are trained on.
    """
    return np.random.default_rng([seed, step]), np.random.default_rng([seed, step, CLOCKS])


def cut_windows(
    draw: Callable[[], tuple[np.ndarray, Clock]],
    rng: np.random.Generator,
    *,
    steps: int,
    contexts: Sequence[int],
    futures: Sequence[int],
    horizon: int,
    min_past: int,
) -> Batch:
    """Cut B = steps // (C + horizon) windows, at least one, with a context of C steps.

    C is drawn from `contexts`. draw: returns the next series and its clock. The future has `horizon` steps,
    of which only the first F are shown, with F drawn from `futures`; the others are NaN. An autoregressive
    model can copy later steps from the step before, and would otherwise hardly learn the first step, which it
    must predict from the context. A window's first future step is at least min(min_past, half the series)
    steps after the start of its series.

    A batch has one context length, since attention costs C^2 and padding short windows to the longest would
    cost that for all.
    """
    context = int(rng.choice(np.asarray(contexts)))
    size = max(1, steps // (context + horizon))
    n_shown = int(rng.choice(np.asarray(futures))) if len(futures) > 1 else futures[0]
    before = np.full((size, context), np.nan, dtype=np.float32)
    after = np.full((size, horizon), np.nan, dtype=np.float32)
    clocks, origins = [], []
    for row in range(size):
        values, clock = draw()
        origin = int(rng.integers(min(min_past, len(values) // 2), len(values)))
        past, future = values[max(0, origin - context) : origin], values[origin : origin + n_shown]
        before[row, context - len(past) :] = past
        after[row, : len(future)] = future
        clocks.append(clock)
        origins.append(origin)
    return Batch(before, after, clocks, origins)
