"""Bootstrap intervals that resample whole units: data sets, models, clusters."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from tsfmscope.tasks.statistics.ranks import weighted_spearman

# There is no interval with five rows: five rows have only 126 different resamples.
FEWEST_ROWS = 6
# Minimum for the two-way bootstrap: with two models, half of the resamples repeat one of them.
FEWEST_MODELS = 3


class Interval(NamedTuple):
    """Interval with its method; where its ends are NaN, `reason` gives the cause."""

    low: float
    high: float
    method: str
    reason: str | None = None


def none(reason: str) -> Interval:
    """Return an empty interval with its reason."""
    return Interval(math.nan, math.nan, "", f"no interval: {reason}")


def two_way(
    x: Float[np.ndarray, "dataset block model column"],
    y: Float[np.ndarray, "dataset block model column"],
    *,
    resamples: int,
    alpha: float,
    generator: np.random.Generator,
) -> Interval:
    """Return a percentile interval of the mean of rho over the blocks of all data sets.

    Models and data sets are both resampled: the two-way ("pigeonhole") bootstrap of Owen 2007, Annals of
    Applied Statistics 1. It is conservative, which the small number of models requires. A model drawn twice
    occurs twice in every block. Blocks without a correlation in a draw are left out of that draw. The
    interval is empty, with a reason, for fewer than three models or two data sets.
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
    """Return a BCa interval of the mean of rho over blocks, resampling whole rows.

    Source: Efron 1987, with scipy.stats.bootstrap. what: the name of a row, used in the texts. Where BCa is
    undefined (a jackknife without spread, a resample without a correlation), the percentile interval is
    returned and `method` reports it. The interval is empty, with a reason, for fewer than six rows with
    units.
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
        # scipy warns where BCa is undefined; `method` of the interval reports it instead.
        warnings.simplefilter("ignore")
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
    """Return a percentile interval of sum(sums) / sum(sizes), resampling whole clusters.

    The interval is empty, with a reason, for fewer than five clusters.
    """
    n = len(sums)
    # Fig. 3 of Shelim et al. 2025 has five pairs.
    if n < FEWEST_ROWS - 1:
        return none(f"{n} clusters, needs {FEWEST_ROWS - 1}")
    drawn = _counts(generator.integers(n, size=(resamples, n)), n)
    shares = (drawn @ sums) / (drawn @ sizes)
    return _percentile(shares, alpha, f"cluster bootstrap, {resamples} resamples, percentile")


def _counts(index: Int[np.ndarray, "draw drawn"], n: int) -> Float[np.ndarray, "draw item"]:
    """Return how often each of n items was drawn."""
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
