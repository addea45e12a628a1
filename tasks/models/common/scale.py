"""Scales of contexts, and protection of float32 arithmetic against huge contexts."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

LARGEST = float(np.finfo(np.float32).max)
# Above this, float32 sums of squares are near overflow: contexts are divided by a power of two
# first.
HUGE = 2.0**50


def rescale_extreme(context: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Divide huge contexts [W, C] by a power of two; return them and the factor [W] (1 elsewhere).

    Contexts are returned in float32. Division by a power of two is exact. In a family that is equivariant to
    scale, ids, patches and forecasts (times the factor) are therefore those of the original, wherever the
    original does not overflow float32.
    """
    top = np.max(np.abs(np.where(np.isfinite(context), context, 0)), axis=-1, initial=0)
    # Not log2, which rounds the largest floats up to 2^128.
    power = np.ldexp(np.ones_like(top), np.frexp(top)[1] - 1)
    factor = np.where(top > HUGE, power, np.ones_like(top))
    return (context / factor[:, None]).astype(np.float32), factor


def clip_float32(values: np.ndarray) -> np.ndarray:
    """Return values as float32, clipped to the largest numbers of float32.

    The difference of two finite float32 numbers can be twice the largest one. NaN stays NaN.
    """
    clipped: np.ndarray = np.clip(np.asarray(values, np.float64), -LARGEST, LARGEST).astype(np.float32)
    return clipped


def mean_and_deviation(context: Float[np.ndarray, "window step"]) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of the observed steps, [W] each, in float64.

    Nothing that float32 can represent overflows in float64. A constant context has its absolute value as
    scale (1 where that is 0), so that its forecasts scale with the series too. A context without an observed
    step has mean 0 and scale 1.
    """
    values = context.astype(np.float64)
    observed = ~np.isnan(values)
    count = np.maximum(observed.sum(axis=1), 1)
    loc = np.where(observed, values, 0.0).sum(axis=1) / count
    low, high = (pick(np.where(observed, values, edge), axis=1) for pick, edge in ((np.min, np.inf), (np.max, -np.inf)))
    constant = low >= high
    # The mean of equal values is rounded; the value itself is exact.
    loc = np.where(constant & observed.any(axis=1), low, loc)
    spread = np.sqrt((np.where(observed, values - loc[:, None], 0.0) ** 2).sum(axis=1) / count)
    scale = np.where(constant, np.abs(loc), spread)
    return loc, np.where(scale > 0, scale, 1.0)
