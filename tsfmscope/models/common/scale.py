"""Scales of contexts, protection of float32 against huge contexts, and quantiles between levels of a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Float64

LARGEST = float(np.finfo(np.float32).max)
# Contexts above this, whose float32 sums of squares nearly overflow, are divided by a power of two.
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


def remove_level(context: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Subtract the mean of the observed steps from float64 contexts [W, C]; return them and the mean [W].

    Float32 would round steps that vary little around a large level. In a family that is equivariant to shifts,
    forecasts plus the mean are those of the original. Float32 contexts are returned as they are, with means of 0.
    """
    if context.dtype != np.float64:
        return context, np.zeros(len(context))
    level, _ = observed_moments(context, ~np.isnan(context))
    return context - level[:, None], level


def clip_float32(values: np.ndarray, dtype: np.dtype | type[np.floating] = np.float32) -> np.ndarray:
    """Return values as float32, or as another type, clipped to the largest numbers of float32.

    The difference of two finite float32 numbers can be twice the largest one. NaN stays NaN.
    """
    clipped: np.ndarray = np.clip(np.asarray(values, np.float64), -LARGEST, LARGEST).astype(dtype)
    return clipped


def mean_and_deviation(context: Float[np.ndarray, "window step"]) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of the observed steps, [W] each, in float64.

    Nothing that float32 can represent overflows in float64. A constant context has its absolute value as
    scale (1 where that is 0), so that its forecasts scale with the series too. A context without an observed
    step has mean 0 and scale 1.
    """
    values = context.astype(np.float64)
    loc, spread = observed_moments(values, ~np.isnan(values))
    scale = np.where(spread > 0, spread, np.abs(loc))
    return loc, np.where(scale > 0, scale, 1.0)


def observed_moments(
    values: Float64[np.ndarray, "window step"], observed: Bool[np.ndarray, "window step"]
) -> tuple[Float64[np.ndarray, " window"], Float64[np.ndarray, " window"]]:
    """Return mean and standard deviation (divided by n) of the observed steps; 0 and 0 without any.

    Where all observed steps are equal, the mean is their value, without rounding, and the deviation is 0.
    """
    count = np.maximum(observed.sum(axis=1), 1)
    loc = np.where(observed, values, 0.0).sum(axis=1) / count
    low, high = (pick(np.where(observed, values, edge), axis=1) for pick, edge in ((np.min, np.inf), (np.max, -np.inf)))
    loc = np.where(low == high, low, loc)
    return loc, np.sqrt((np.where(observed, values - loc[:, None], 0.0) ** 2).sum(axis=1) / count)


def carry_forward(steps: Float[np.ndarray, "window step"]) -> Float[np.ndarray, "window step"]:
    """Return steps where a missing one is the last observed one before it, and 0 where there is none."""
    last = np.maximum.accumulate(np.where(np.isnan(steps), -1, np.arange(steps.shape[1])), axis=1)
    return np.where(last < 0, 0, np.take_along_axis(steps, np.maximum(last, 0), axis=1))


def level_weights(model_levels: Sequence[float], levels: Sequence[float]) -> Float[np.ndarray, "model_level level"]:
    """Return weights by which quantiles at a model's ascending levels give those at other levels.

    Quantiles between two levels of the model lie on a line; outside of them they are the outermost quantile.
    """
    return np.array([np.interp(levels, model_levels, unit) for unit in np.eye(len(model_levels))])
