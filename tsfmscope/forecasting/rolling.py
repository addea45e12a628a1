"""Errors of several forecasters on the same rolling-origin windows, pooled, with intervals over series and origins.

The arrays have one row per series and one column per origin: column k is the window that ends k horizons before the
last step. NaN: the series has no such window, or the forecaster did not forecast it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.stats
from jaxtyping import Bool, Float

from tsfmscope.forecasting.scores import (
    HIGH,
    LOW,
    MEDIAN,
    absolute_errors,
    check_finite,
    count_covered,
    quantile_losses,
    seasonal_error,
)
from tsfmscope.series.types import Windows

# Confidence of the intervals, and resamples of series and origins.
CONFIDENCE, RESAMPLES = 0.95, 2_000
# Fewest resamples, and most numbers of series in all resamples together.
FEWEST_RESAMPLES, MOST_COUNTS = 200, 20_000_000

Grid = Float[np.ndarray, "series origin"]


@dataclass(frozen=True, eq=False)
class Targets:
    """Targets of the windows: sum of |y|, number of observed steps, and the scale of MASE (NaN or 0: undefined)."""

    size: Grid
    n_observed: Grid
    scale: Grid


@dataclass(frozen=True, eq=False)
class Errors:
    """Errors of one forecaster.

    loss: twice the pinball loss, summed over levels and steps. absolute: sum of |y - median|. n_inside: targets in the
    80 % interval.
    """

    loss: Grid
    absolute: Grid
    n_inside: Grid

    @property
    def is_scored(self) -> Bool[np.ndarray, "series origin"]:
        """Whether each window was forecast."""
        return np.asarray(np.isfinite(self.loss))


class Interval(NamedTuple):
    """Ends of a 95 % interval; None where one window, or none, was forecast."""

    low: float | None
    high: float | None


def fill_grids(
    parts: Sequence[Float[np.ndarray, "fact _"]], cells: Sequence[tuple[int, int]], shape: tuple[int, int]
) -> list[Grid]:
    """Return one grid of this shape per fact, with each window's value in its cell (row, column), and NaN elsewhere.

    parts: values of batches of windows, whose cells follow one another.
    """
    grids = []
    rows, columns = np.array(cells, dtype=int).reshape(-1, 2).T
    for values in np.concatenate(parts, axis=1):
        grid = np.full(shape, np.nan)
        grid[rows, columns] = values
        grids.append(grid)
    return grids


def window_targets(windows: Windows, pasts: Sequence[Float[np.ndarray, " _"]]) -> Float[np.ndarray, "fact window"]:
    """Return size, n_observed and scale of `Targets` per window. pasts: whole history before each window."""
    future = windows.future.astype(np.float64)
    scales = [seasonal_error(past, windows.season) for past in pasts]
    return np.stack([np.nansum(np.abs(future), axis=1), np.isfinite(future).sum(axis=1), np.array(scales)])


def window_errors(
    windows: Windows, quantiles: Float[np.ndarray, "window quantile horizon"], levels: Sequence[float]
) -> Float[np.ndarray, "error window"]:
    """Return loss, absolute and n_inside of `Errors` per window. ValueError for a forecast with NaN or infinity."""
    check_finite(quantiles)
    median, low, high = (quantiles[:, list(levels).index(level)] for level in (MEDIAN, LOW, HIGH))
    n_inside, _ = count_covered(windows.future, low, high)
    losses = quantile_losses(windows.future, quantiles, levels)
    return np.stack([losses, absolute_errors(windows.future, median), n_inside])


def pool_scores(errors: Errors, naive: Errors, targets: Targets, n_levels: int) -> dict[str, Any]:
    """Return n_windows, wql, mase, coverage and ratio of a forecaster on its own windows; None where undefined.

    WQL = sum of the losses / (n_levels * sum of |y|); undefined if all targets are 0. MASE = mean over windows of
    (mean |y - median| / seasonal error of the past); windows without a scale are left out. coverage: share of the
    observed targets in the 80 % interval. ratio = sum of the losses / that of point seasonal naive on the same windows;
    undefined if that one has no loss.
    """
    own = errors.is_scored
    size, naive_loss, n_observed = (float(grid[own].sum()) for grid in (targets.size, naive.loss, targets.n_observed))
    loss = float(errors.loss[own].sum())
    has_scale = own & (targets.scale > 0)
    scaled = errors.absolute[has_scale] / targets.n_observed[has_scale] / targets.scale[has_scale]
    return {
        "n_windows": int(own.sum()), "n_series": int(own.any(axis=1).sum()),
        "wql": loss / (n_levels * size) if size else None,
        "mase": float(scaled.mean()) if len(scaled) else None,
        "coverage": float(errors.n_inside[own].sum()) / n_observed if n_observed else None,
        "ratio": loss / naive_loss if naive_loss else None,
    }  # fmt: skip


class Resamples(NamedTuple):
    """Numbers of times that each resample has each series and each origin."""

    series: Float[np.ndarray, "resample series"]
    origins: Float[np.ndarray, "resample origin"]

    def sums(self, grid: Grid) -> Float[np.ndarray, " resample"]:
        """Return the sum of a grid over each resample; NaN counts as 0."""
        return np.asarray(((self.series @ np.nan_to_num(grid)) * self.origins).sum(axis=1))


def draw_resamples(n_series: int, n_origins: int, *, seed: int, draws: int | None = None) -> Resamples:
    """Draw the series and, independently, the origins with replacement.

    draws: number of resamples; None: RESAMPLES, or fewer of very many series, whose numbers would need much memory.

    A window is in a resample as often as its series times as often as its origin: series of one origin share what
    happened then, and origins of one series share its level (Owen 2007, "The pigeonhole bootstrap").
    """
    rng = np.random.default_rng(seed)
    draws = draws or max(FEWEST_RESAMPLES, min(RESAMPLES, MOST_COUNTS // n_series))
    counts = (rng.multinomial(n, np.full(n, 1 / n), size=draws).astype(np.float64) for n in (n_series, n_origins))
    return Resamples(*counts)


def ratio_interval(numerator: Grid, denominator: Grid, resamples: Resamples) -> Interval:
    """Return the interval of sum(numerator) / sum(denominator), both on the windows that have both.

    The percentile ends of the log ratio over the resamples, stretched about the log ratio by `small_sample_factor`. A
    ratio of 0 has no width. Resamples without any of these windows, or with a denominator of 0, are left out.
    """
    both = np.isfinite(numerator) & np.isfinite(denominator)
    above, below = (np.where(both, grid, 0.0) for grid in (numerator, denominator))
    if both.sum() < 2 or not below.sum() > 0:
        return Interval(None, None)
    if not above.sum() > 0:
        return Interval(0.0, 0.0)
    whole = float(np.log(above.sum() / below.sum()))
    tail = (1 - CONFIDENCE) / 2
    ends = np.quantile(_log_ratios(above, below, resamples), (tail, 1 - tail))
    # Each number of units, and the variance of the log ratio when they alone are drawn.
    parts = [
        (grid.shape[1], float(np.var(_log_ratios(above, below, resamples._replace(**fixed)))))
        for grid, fixed in (
            (resamples.series, {"origins": np.ones_like(resamples.origins)}),
            (resamples.origins, {"series": np.ones_like(resamples.series)}),
        )
    ]
    factor = small_sample_factor(parts)
    low, high = np.exp(whole + factor * (ends - whole))
    return Interval(float(low), float(high))


def _log_ratios(above: Grid, below: Grid, resamples: Resamples) -> Float[np.ndarray, " resample"]:
    numerators, denominators = resamples.sums(above), resamples.sums(below)
    is_defined = (numerators > 0) & (denominators > 0)
    return np.asarray(np.log(numerators[is_defined] / denominators[is_defined]))


def small_sample_factor(parts: Sequence[tuple[int, float]]) -> float:
    """Return the factor by which percentile ends are too near for few units.

    sqrt(sum v_i / sum u_i) * t(df) / z, with the bootstrap's variance u_i of n_i units, v_i = u_i n_i / (n_i - 1), and
    df = (sum v_i)^2 / sum(v_i^2 / (n_i - 1)). Three origins of one series, for example, have 2 degrees of freedom.

    Source: Hesterberg 2015, "What teachers should know about the bootstrap", section 4.1.3, for one kind of units; the
    degrees of freedom are those of Satterthwaite 1946. parts: number of units and variance; one unit tells nothing of
    its variance. Without any variance, the factor is 1.
    """
    known = [(count, variance) for count, variance in parts if count > 1 and variance > 0]
    if not known:
        return 1.0
    corrected = [(count, variance * count / (count - 1)) for count, variance in known]
    total = sum(variance for _, variance in corrected)
    freedom = total**2 / sum(variance**2 / (count - 1) for count, variance in corrected)
    level = (1 + CONFIDENCE) / 2
    wider = np.sqrt(total / sum(variance for _, variance in known))
    return float(wider * scipy.stats.t.ppf(level, freedom) / scipy.stats.norm.ppf(level))
