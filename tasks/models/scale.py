"""Scales of contexts, and contexts that float32 arithmetic would overflow on."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

LARGEST = float(np.finfo(np.float32).max)
HUGE = 2.0**50  # above this, float32 sums of squares are near overflow: contexts are divided by a power of two first


def tamed(context: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The context [W, C] over a power of two a window where it is huge, and that factor [W] (1 elsewhere).

    Dividing by a power of two is exact. For a family that is equivariant to scale, ids, patches and forecasts (times
    the factor) are those of the original wherever the original does not overflow float32.
    """
    top = np.max(np.abs(np.where(np.isfinite(context), context, 0)), axis=-1, initial=0)
    power = np.ldexp(np.ones_like(top), np.frexp(top)[1] - 1)  # not log2: it rounds the largest floats up to 2^128
    factor = np.where(top > HUGE, power, np.ones_like(top))
    return (context / factor[:, None]).astype(np.float32), factor


def saturated(values: np.ndarray) -> np.ndarray:
    """Float32, what passes its largest number held there: a range of finite floats can be twice that."""
    kept: np.ndarray = np.clip(np.asarray(values, np.float64), -LARGEST, LARGEST).astype(np.float32)
    return kept


def standard(context: Float[np.ndarray, "window step"]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the observed steps, [W] each, in float64, where nothing of float32 overflows.

    A constant context has its value as scale (1 where that is 0), so that forecasts scale with the series there too;
    one without an observed step 0 and 1.
    """
    values = context.astype(np.float64)
    observed = ~np.isnan(values)
    count = np.maximum(observed.sum(axis=1), 1)
    loc = np.where(observed, values, 0.0).sum(axis=1) / count
    low, high = (pick(np.where(observed, values, edge), axis=1) for pick, edge in ((np.min, np.inf), (np.max, -np.inf)))
    constant = low >= high
    loc = np.where(constant & observed.any(axis=1), low, loc)  # the mean of equal values is rounded
    spread = np.sqrt((np.where(observed, values - loc[:, None], 0.0) ** 2).sum(axis=1) / count)
    scale = np.where(constant, np.abs(loc), spread)
    return loc, np.where(scale > 0, scale, 1.0)
