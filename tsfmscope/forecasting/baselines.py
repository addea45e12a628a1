"""Point forecasts without a model, which every model should beat: median of the context, seasonal naive.

Both give every quantile level the same value. The probabilistic seasonal naive, with prediction intervals, is
the baseline `seasonal-naive` of tsfmscope/forecasting/local_baselines.py.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from tsfmscope.series.types import Windows

Quantiles = Float[np.ndarray, "window quantile horizon"]


def context_median(windows: Windows, levels: int) -> Quantiles:
    """Return the median of the context's observed values at every step and every quantile level: [W, Q, H].

    levels: number of quantile levels, Q. A point forecast has no spread, so its WQL is its relative absolute
    error. A context without values gives a forecast of 0.
    """
    context = np.ma.masked_invalid(windows.context.astype(np.float64))
    point = np.ma.filled(np.ma.median(context, axis=1), 0.0)
    return _at_every_level(np.repeat(point[:, None], windows.horizon, axis=1), levels)


def seasonal_naive(windows: Windows, levels: int) -> Quantiles:
    """Return the last season of the context repeated, equal at every quantile level: [W, Q, H].

    levels: number of quantile levels, Q. With season 1 it repeats the last value. A phase that is missing in
    the last season is taken from the season before, and so on; a phase that was never observed takes the
    window's last observed value. A context without values gives a forecast of 0. ValueError for a season
    below 1.
    """
    season = windows.season
    if season < 1:
        raise ValueError(f"season: got {season}, expected at least 1 step")
    context = windows.context.astype(np.float64)  # [W, C]
    count, steps = context.shape
    padded = np.full((count, -(-steps // season) * season), np.nan)
    padded[:, padded.shape[1] - steps :] = context
    phases = _last_observed(padded.reshape(count, padded.shape[1] // season, season), fallback=np.nan)  # [W, season]
    last = _last_observed(context[:, :, None], fallback=0.0)  # [W, 1]
    phases = np.where(np.isnan(phases), last, phases)
    return _at_every_level(phases[:, np.arange(windows.horizon) % season], levels)


def _last_observed(values: np.ndarray, *, fallback: float) -> np.ndarray:
    """Return the last finite value along axis 1, or the fallback where there is none."""
    finite = np.isfinite(values)
    last = values.shape[1] - 1 - np.argmax(finite[:, ::-1], axis=1)
    values_at_last = np.take_along_axis(values, last[:, None], axis=1)[:, 0]
    return np.where(finite.any(axis=1), values_at_last, fallback)


def _at_every_level(point: np.ndarray, levels: int) -> Quantiles:
    return np.repeat(point[:, None, :], levels, axis=1)
