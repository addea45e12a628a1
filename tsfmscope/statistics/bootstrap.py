"""Bootstrap intervals that resample whole units: data sets, models, clusters."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from tsfmscope.statistics.ranks import mean_of_defined, weighted_spearman

Blocks = Float[np.ndarray, "dataset block model column"]
Rows = Float[np.ndarray, "block row column"]
# There is no interval with five rows: five rows have only 126 different resamples.
FEWEST_ROWS = 6
# Below this number of independent units, percentiles of resamples are too close together.
FEWEST_UNITS = 10
# Minimum for the two-way bootstrap: with two models, half of the resamples repeat one of them.
FEWEST_MODELS = 3


class Interval(NamedTuple):
    """Interval with its method; where its ends are NaN, `reason` gives the cause."""

    low: float
    high: float
    method: str
    reason: str | None = None

    @property
    def columns(self) -> dict[str, Any]:
        """Columns of `inference` for the interval."""
        method = None if math.isnan(self.low) else self.method
        return {"low": self.low, "high": self.high, "interval_method": method, "reason": self.reason}


def empty_interval(reason: str) -> Interval:
    """Return an empty interval with its reason."""
    return Interval(math.nan, math.nan, "", f"no interval: {reason}")


def two_way(
    x: Blocks,
    y: Blocks,
    families: Int[np.ndarray, " model"] | None = None,
    *,
    resamples: int,
    alpha: float,
    generator: np.random.Generator,
) -> Interval:
    """Return an interval of the mean of rho over the blocks of all data sets.

    Data sets and families of models are both resampled: the two-way ("pigeonhole") bootstrap of Owen 2007, Annals of
    Applied Statistics 1. It is conservative, which the small number of models requires. A model drawn twice
    occurs twice in every block. Blocks without a correlation in a draw are left out of that draw. The
    interval is empty, with a reason, for fewer than three families or two data sets.

    families: number of each model's family, from 0; None: every model is its own.
    """
    datasets, blocks, models, columns = x.shape
    labels = np.arange(models) if families is None else families
    n_families = int(labels.max(initial=-1)) + 1
    kind = "models" if n_families == models else "families"
    if n_families < FEWEST_MODELS or datasets < 2:
        return empty_interval(f"{n_families} {kind} on {datasets} data sets, needs {FEWEST_MODELS} on 2")
    counts = draw_counts(generator, resamples, n_families)[:, labels]
    # The first weights are those of the units as they are.
    weights = np.repeat(np.concatenate([np.ones((1, models)), counts]), columns, axis=1)
    units = (values.reshape(datasets * blocks, models * columns) for values in (x, y))
    rho = np.array([weighted_spearman(a, b, weights) for a, b in zip(*units, strict=True)])
    dataset_counts = np.concatenate([np.ones((1, datasets)), draw_counts(generator, resamples, datasets)])
    estimate, *means = mean_of_defined(rho.T, dataset_counts.repeat(blocks, axis=1), axis=1)
    return interval_of(np.array(means), float(estimate), {"data sets": datasets, kind: n_families}, alpha)


def by_row(
    x: Rows, y: Rows, *, unit_name: str, resamples: int, alpha: float, generator: np.random.Generator
) -> Interval:
    """Return a BCa interval of the mean of rho over blocks, resampling whole rows.

    Source: Efron 1987, with scipy.stats.bootstrap. unit_name: name of a row, used in the texts. Where BCa is
    undefined (a jackknife without spread, a resample without a correlation), the percentile interval is
    returned and `method` reports it. The interval is empty, with a reason, for fewer than six rows with
    units.
    """
    from scipy import stats

    rows = np.flatnonzero((np.isfinite(x) & np.isfinite(y)).any(axis=(0, 2)))
    if len(rows) < FEWEST_ROWS:
        return empty_interval(f"{len(rows)} {unit_name}, needs {FEWEST_ROWS}")
    x, y = x[:, rows], y[:, rows]

    def statistic(index: Int[np.ndarray, "*draws draw"], axis: int) -> np.ndarray:
        index = np.moveaxis(np.asarray(index), axis, -1)
        weights = np.repeat(_counts(index.reshape(-1, index.shape[-1]), len(rows)), x.shape[2], axis=1)
        rho = np.array([weighted_spearman(a.reshape(-1), b.reshape(-1), weights) for a, b in zip(x, y, strict=True)])
        return mean_of_defined(rho, axis=0).reshape(index.shape[:-1])

    options: dict[str, Any] = {"n_resamples": resamples, "confidence_level": 1 - alpha, "vectorized": True}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # scipy warns where BCa is undefined; `method` of the interval reports it instead.
        warnings.simplefilter("ignore")
        result = stats.bootstrap((np.arange(len(rows)),), statistic, method="BCa", rng=generator, **options)
    low, high = map(float, result.confidence_interval)
    if math.isfinite(low) and math.isfinite(high) and low < high:
        return Interval(low, high, f"BCa by {unit_name}, {resamples} resamples")
    method = f"percentile by {unit_name}, {resamples} resamples (BCa undefined)"
    return percentile(result.bootstrap_distribution, alpha, method)


def interval_of(draws: Float[np.ndarray, " draw"], estimate: float, units: Mapping[str, int], alpha: float) -> Interval:
    """Return the interval of a mean correlation from its values in resamples of all kinds of units at once.

    With FEWEST_UNITS of each kind or more it is the percentile interval. With fewer, resamples vary too little, so it
    is Student's t with the standard deviation of the resamples, and one degree of freedom less than the smallest number
    of units (Cameron, Gelbach & Miller 2008, Review of Economics and Statistics 90, on few clusters).

    units: number of units by name. The interval is empty, with a reason, if most resamples have no value, or all the
    same.
    """
    from scipy import stats

    method = f"resampled: {' and '.join(f'{n} {name}' for name, n in units.items())}, {len(draws)} resamples"
    fewest = min(units.values())
    if fewest >= FEWEST_UNITS:
        return percentile(draws, alpha, f"{method}, percentile")
    finite = draws[np.isfinite(draws)]
    if len(finite) < len(draws) / 2 or np.ptp(finite) == 0:
        return percentile(draws, alpha, method)
    reach = float(stats.t.isf(alpha / 2, fewest - 1)) * float(finite.std(ddof=1)) * math.sqrt(fewest / (fewest - 1))
    return Interval(max(-1.0, estimate - reach), min(1.0, estimate + reach), f"{method}, Student's t")


def percentile(values: Float[np.ndarray, " draw"], alpha: float, method: str) -> Interval:
    """Return the percentile interval of a statistic's values; empty, with a reason, if most of them are not defined."""
    finite = values[np.isfinite(values)]
    if len(finite) < len(values) / 2:
        return empty_interval(f"{len(values) - len(finite)} of {len(values)} resamples have no statistic")
    low, high = np.quantile(finite, [alpha / 2, 1 - alpha / 2])
    if low == high:
        return empty_interval("every resample gives the same value")
    return Interval(float(low), float(high), method)


def draw_counts(generator: np.random.Generator, resamples: int, n: int) -> Float[np.ndarray, "draw item"]:
    """Return how often each of n items is drawn in each resample, with replacement."""
    return _counts(generator.integers(n, size=(resamples, n)), n)


def _counts(index: Int[np.ndarray, "draw drawn"], n: int) -> Float[np.ndarray, "draw item"]:
    """Return the number of times that each of n items was drawn."""
    counts = np.zeros((len(index), n))
    np.add.at(counts, (np.arange(len(index))[:, None], index), 1)
    return counts
