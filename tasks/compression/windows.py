"""Training windows: one context length a batch, and as much of the future as is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np


def cut(
    draw: Callable[[], np.ndarray],
    rng: np.random.Generator,
    *,
    steps: int,
    contexts: Sequence[int],
    futures: Sequence[int],
    horizon: int,
    min_past: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Context [B, C] and future [B, horizon], NaN where missing: C one of `contexts`, B = steps // (C + horizon).

    draw: the next series. Only the first F steps of the future are there, F one of `futures`: an autoregressive model
    reads the others off the one before, and would hardly learn the first, which it must get from the context.

    One context length a batch: attention costs C^2, and padding short windows to the longest would pay it for all.
    """
    context = int(rng.choice(np.asarray(contexts)))
    size = max(1, steps // (context + horizon))
    shown = int(rng.choice(np.asarray(futures))) if len(futures) > 1 else futures[0]
    before = np.full((size, context), np.nan, dtype=np.float32)
    after = np.full((size, horizon), np.nan, dtype=np.float32)
    for row in range(size):
        values = draw()
        origin = int(rng.integers(min(min_past, len(values) // 2), len(values)))
        past, future = values[max(0, origin - context) : origin], values[origin : origin + shown]
        before[row, context - len(past) :] = past
        after[row, : len(future)] = future
    return before, after
