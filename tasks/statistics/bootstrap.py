"""Intervals from resampling what recurs: data sets, models, clusters."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from tasks.statistics.ranks import weighted_spearman

FEWEST_ROWS = 6  # science.md 10: none at five; five rows have 126 different resamples only
FEWEST_MODELS = 3  # of the two-way bootstrap: of two, half of the resamples are one model twice


class Interval(NamedTuple):
    """An interval, how it was made, and, where its ends are NaN, why."""

    low: float
    high: float
    method: str
    reason: str | None = None


def none(reason: str) -> Interval:
    """No interval."""
    return Interval(math.nan, math.nan, "", f"no interval: {reason}")


def two_way(
    x: Float[np.ndarray, "dataset block model column"],
    y: Float[np.ndarray, "dataset block model column"],
    *,
    resamples: int,
    alpha: float,
    generator: np.random.Generator,
) -> Interval:
    """Percentile interval of the mean of rho over the blocks of all data sets; models and data sets are drawn anew.

    Two-way ("pigeonhole") bootstrap of Owen 2007, Annals of Applied Statistics 1: conservative, which the few models
    need. A model drawn twice stands twice in every block. Blocks without a correlation in a draw drop out of it.
    """
    datasets, blocks, models, columns = x.shape
    if models < FEWEST_MODELS or datasets < 2:
        return none(f"{models} models on {datasets} data sets, needs {FEWEST_MODELS} on 2")
    drawn = _counts(generator.integers(models, size=(resamples, models)), models)
    weights = np.repeat(drawn, columns, axis=1)
    units = (values.reshape(datasets * blocks, models * columns) for values in (x, y))
    rho = np.array([weighted_spearman(a, b, weights) for a, b in zip(*units, strict=True)])
    held = _counts(generator.integers(datasets, size=(resamples, datasets)), datasets).repeat(blocks, axis=1)
    there = np.isfinite(rho.T)
    mass = (held * there).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = (held * np.where(there, rho.T, 0)).sum(axis=1) / mass
    return _percentile(means, alpha, f"two-way bootstrap (data sets, models), {resamples} resamples, percentile")


def by_row(
    x: Float[np.ndarray, "block row column"],
    y: Float[np.ndarray, "block row column"],
    *,
    what: str,
    resamples: int,
    alpha: float,
    generator: np.random.Generator,
) -> Interval:
    """BCa interval (Efron 1987, scipy.stats.bootstrap) of the mean over blocks of rho; whole rows are drawn anew.

    what: what a row is, for the words. Where BCa is undefined (a jackknife without spread, a resample without a
    correlation) it is the percentile interval, and `method` says so. None under six rows with units.
    """
    from scipy import stats

    used = np.flatnonzero((np.isfinite(x) & np.isfinite(y)).any(axis=(0, 2)))
    if len(used) < FEWEST_ROWS:
        return none(f"{len(used)} {what}, needs {FEWEST_ROWS}")
    x, y = x[:, used], y[:, used]

    def statistic(index: Int[np.ndarray, "*draws draw"], axis: int) -> np.ndarray:
        index = np.moveaxis(np.asarray(index), axis, -1)
        weights = np.repeat(_counts(index.reshape(-1, index.shape[-1]), len(used)), x.shape[2], axis=1)
        rho = np.array([weighted_spearman(a.reshape(-1), b.reshape(-1), weights) for a, b in zip(x, y, strict=True)])
        there = np.isfinite(rho)
        with np.errstate(invalid="ignore", divide="ignore"):
            means: np.ndarray = np.where(there, rho, 0).sum(axis=0) / there.sum(axis=0)
        return means.reshape(index.shape[:-1])

    how: dict[str, Any] = {"n_resamples": resamples, "confidence_level": 1 - alpha, "vectorized": True}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # scipy warns where BCa is undefined; the row says it instead
        found = stats.bootstrap((np.arange(len(used)),), statistic, method="BCa", rng=generator, **how)
    low, high = map(float, found.confidence_interval)
    if math.isfinite(low) and math.isfinite(high) and low < high:
        return Interval(low, high, f"BCa by {what}, {resamples} resamples")
    method = f"percentile by {what}, {resamples} resamples (BCa undefined)"
    return _percentile(found.bootstrap_distribution, alpha, method)


def by_cluster(
    sums: Float[np.ndarray, " cluster"],
    sizes: Float[np.ndarray, " cluster"],
    *,
    resamples: int,
    alpha: float,
    generator: np.random.Generator,
) -> Interval:
    """Percentile interval of sum(sums) / sum(sizes); whole clusters are drawn anew. None under five clusters."""
    n = len(sums)
    if n < FEWEST_ROWS - 1:  # Fig. 3 of the paper has five pairs
        return none(f"{n} clusters, needs {FEWEST_ROWS - 1}")
    drawn = _counts(generator.integers(n, size=(resamples, n)), n)
    shares = (drawn @ sums) / (drawn @ sizes)
    return _percentile(shares, alpha, f"cluster bootstrap, {resamples} resamples, percentile")


def _counts(index: Int[np.ndarray, "draw drawn"], n: int) -> Float[np.ndarray, "draw item"]:
    """How often each of n items was drawn."""
    counts = np.zeros((len(index), n))
    np.add.at(counts, (np.arange(len(index))[:, None], index), 1)
    return counts


def _percentile(values: Float[np.ndarray, " draw"], alpha: float, method: str) -> Interval:
    kept = values[np.isfinite(values)]
    if len(kept) < len(values) / 2:
        return none(f"{len(values) - len(kept)} of {len(values)} resamples have no statistic")
    low, high = np.quantile(kept, [alpha / 2, 1 - alpha / 2])
    if low == high:
        return none("every resample gives the same value")
    return Interval(float(low), float(high), method)
