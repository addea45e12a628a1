"""Length and period of each training window; the period is from the autocorrelation of its context.

A training corpus has no frequencies from which `image.find_period` could take the period.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64

# Periods of usual frequencies, in steps, from quarters (4) to hours of a week (168); 1: none.
USUAL_PERIODS = np.array([1, 4, 5, 7, 12, 24, 30, 48, 52, 96, 144, 168])
# Standard errors of the autocorrelation of white noise, 1 / sqrt(steps), that a usual period must exceed.
CLEAR = 2.0
# The same for any other lag. It is higher, since there are many more of them.
CLEAR_FOR_ANY_LAG = 4.0
# Share of training windows that are drawn in columns of a random usual period.
RANDOM_PERIODS = 0.2
# Share of a context's range below which what is left after a line is subtracted is rounding error.
ROUNDING = 1e-5


def choose_periods(
    past: Float[np.ndarray, "window step"], lengths: Int64[np.ndarray, " window"], fixed_period: int | None
) -> Int64[np.ndarray, " window"]:
    """Return the period of each context that is cut to its last `lengths` steps, as `VisionTS.loss` describes it.

    fixed_period: the period of all contexts that are long enough; None where the config has none.
    """
    import torch

    if fixed_period:
        return np.where(fixed_period <= lengths, fixed_period, 1)
    chance, choice = torch.rand(2, len(lengths), dtype=torch.float64).numpy()
    n_fitting = np.searchsorted(2 * USUAL_PERIODS, lengths, side="right")
    random_periods = USUAL_PERIODS[(choice * n_fitting).astype(np.int64)]
    return np.where(chance < RANDOM_PERIODS, random_periods, estimate_periods(past, lengths))


def largest_filled_context(context: Float[np.ndarray, "window step"]) -> Int64[np.ndarray, " window"]:
    """Return the largest of C, C // 2, C // 4 ... and 1 that each context [W, C] fills.

    A context counts from its first observed step on; without one its length is 1.
    """
    steps = context.shape[1]
    halves = np.array(sorted({max(steps >> power, 1) for power in range(steps.bit_length())}))
    filled = np.where(np.isnan(context).all(axis=1), 1, steps - (~np.isnan(context)).argmax(axis=1))
    largest: Int64[np.ndarray, " window"] = halves[np.searchsorted(halves, filled, side="right") - 1]
    return largest


def estimate_periods(
    context: Float[np.ndarray, "window step"], lengths: Int64[np.ndarray, " window"]
) -> Int64[np.ndarray, " window"]:
    """Return the period of the last `lengths` steps of each context, in steps; 1 where none is clear.

    It is the usual period, at most half the steps long, that has the largest autocorrelation. If another lag's
    is larger by a standard error, 1 / sqrt(steps), it is that lag. A straight line is subtracted before. The
    autocorrelation at a period must be clearly positive. It must also be clearly larger than at one of the
    shorter lags, since all short lags of a smooth series have a large one. Sums over few steps are not scaled
    up, so that a period comes before most of its multiples. Missing steps are left out of the sums. Contexts
    that are constant, without observed steps, or shorter than four steps have period 1.
    """
    lags = np.arange(context.shape[1] // 2 + 1)
    is_in_window = np.arange(context.shape[1]) >= context.shape[1] - lengths[:, None]
    correlations = _autocorrelations(context.astype(np.float64), ~np.isnan(context) & is_in_window)[:, : len(lags)]
    error = 1 / np.sqrt(lengths)[:, None]
    # Lowest autocorrelation at lags 1, 2, ... below each lag.
    lowest = np.full(correlations.shape, np.inf)
    lowest[:, 2:] = np.minimum.accumulate(correlations[:, 1:-1], axis=1)
    rise = np.minimum(correlations, correlations - lowest)
    is_clear = (rise > CLEAR * error) & (2 * lags <= lengths[:, None])
    is_usual = np.isin(lags, USUAL_PERIODS)
    usual_period, usual_correlation = _largest(correlations, is_clear & is_usual)
    lag, correlation = _largest(correlations, is_clear & (correlations > CLEAR_FOR_ANY_LAG * error))
    periods: Int64[np.ndarray, " window"] = np.where(correlation > usual_correlation + error[:, 0], lag, usual_period)
    return periods


def _autocorrelations(
    values: Float64[np.ndarray, "window step"], is_counted: Bool[np.ndarray, "window step"]
) -> Float64[np.ndarray, "window step"]:
    """Return sum_t y(t) y(t + lag) / sum_t y(t)^2 for every lag.

    y: the values minus their straight line. Steps that are not counted are left out. Without spread, 0.
    """
    count = np.maximum(is_counted.sum(axis=1, keepdims=True), 1)
    low = np.where(is_counted, values, np.inf).min(axis=1, keepdims=True)
    high = np.where(is_counted, values, -np.inf).max(axis=1, keepdims=True)
    # Halves, since the range of finite float64 numbers may be infinite.
    spread = high / 2 - low / 2
    has_spread = np.isfinite(spread) & (spread > 0)
    unit = np.where(has_spread, spread, 1.0)
    y = np.where(is_counted & has_spread, (values / 2 - np.where(has_spread, low, 0.0) / 2) / unit, 0.0)
    y = np.where(is_counted, y - y.sum(axis=1, keepdims=True) / count, 0.0)
    time = np.where(is_counted, np.arange(values.shape[1], dtype=float), 0.0)
    time = np.where(is_counted, time - time.sum(axis=1, keepdims=True) / count, 0.0)
    slope = (time * y).sum(axis=1, keepdims=True) / np.maximum((time**2).sum(axis=1, keepdims=True), 1.0)
    y -= slope * time
    steps = values.shape[1]
    power = np.abs(np.fft.rfft(y, 2 * steps)) ** 2
    sums = np.fft.irfft(power, 2 * steps)[:, :steps]
    total = sums[:, :1]
    correlations: Float64[np.ndarray, "window step"] = np.divide(
        sums, total, out=np.zeros_like(sums), where=total > ROUNDING**2 * count
    )
    return correlations


def _largest(
    correlations: Float64[np.ndarray, "window lag"], is_allowed: Bool[np.ndarray, "window lag"]
) -> tuple[Int64[np.ndarray, " window"], Float64[np.ndarray, " window"]]:
    """Return the allowed lag of the largest autocorrelation, and that; 1 and 0 where no lag is allowed."""
    allowed = np.where(is_allowed, correlations, 0.0)
    largest = allowed.max(axis=1)
    return np.where(largest > 0, allowed.argmax(axis=1), 1), largest
