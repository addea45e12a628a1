"""Tests of a population of trainings: across runs, inside groups of runs, and within runs over their snapshots.

A *run* is one training. Tables are [dataset, run] of last weights, or [dataset, run, snapshot]. Source of the
definitions: docs/science.md, "Population".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from tsfmscope.statistics import bootstrap
from tsfmscope.statistics.options import SeededOptions
from tsfmscope.statistics.permutation import POWER, evaluate_orders, flip_mean
from tsfmscope.statistics.ranks import average_ranks, complete, mean_of_defined

# Columns of the table `inference`.
Row = dict[str, Any]
Runs = Float[np.ndarray, "dataset run"]
Snapshots = Float[np.ndarray, "dataset run snapshot"]
# A data set counts if at least this share of the runs have both values there; then a run counts if it has
# both values on every such data set.
LEAST_SHARE = 0.9
FEWEST_RUNS = 4
FEWEST_SNAPSHOTS = 4
# Residuals whose square sum is below this share of that of the ranks are rounding.
ROUNDING = 1e-12
# Simulated samples per effect size, and halvings of the interval of effect sizes.
SIMULATIONS, HALVINGS = 1000, 12


def across_runs(x: Runs, y: Runs, groups: Sequence[str], options: SeededOptions, *names: str) -> Row:
    """Return columns of `inference` for the mean over data sets of the rank correlation of x and y across runs.

    groups: the group of each run. Ranks are taken inside groups and centred there, so that differences between groups
    do not count, and the test permutes runs inside groups only, in the same way in all data sets. With one group this
    is Spearman's rho and the test of all runs. The interval resamples data sets, and groups (runs if there is one
    group). `detectable` comes from `simulate_detectable`.
    """
    x, y, kept = _complete_block(x, y)
    labels = np.unique(np.asarray(groups, dtype=str)[kept], return_inverse=True)[1].reshape(-1)
    row: Row = {"n": x.size, "n_clusters": x.shape[1]}
    sizes = np.bincount(labels) if len(labels) else np.zeros(0, dtype=int)
    if x.shape[1] < FEWEST_RUNS or (sizes > 1).sum() < 1:
        return row | {"reason": f"{x.shape[1]} runs (groups: {len(sizes)}); needs {FEWEST_RUNS} runs, two in a group"}
    a, b = (centred_ranks(values, labels) for values in (x, y))
    norms = np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    if not (varies := norms > 0).any():
        return row | {"reason": "no data set has runs of one group that differ in isotropy and in error"}
    a, b, norms = a[varies], b[varies], norms[varies]
    orders, is_exact = orders_inside(labels, options.permutations, options.generator(*names, "orders"))
    by_dataset = np.array([(p[orders] @ q) / norm for p, q, norm in zip(a, b, norms, strict=True)])
    test = evaluate_orders(by_dataset.mean(axis=0), is_exact, options.alpha)
    if len(sizes) == 1:
        interval = bootstrap.two_way(
            *(values[varies][:, None, :, None] for values in (x, y)), **options.draws(*names, "bootstrap")
        )
    else:
        interval = _resample_groups(a, b, labels, options, *names)
    kind = "runs" if len(sizes) == 1 else f"runs inside {len(sizes)} groups"
    method = f"{kind}, in all data sets at once: {test.description}"
    detectable = simulate_detectable(by_dataset, test.critical, options.generator(*names, "power"))
    return {**row, **test.columns, "detectable": detectable, "method": method, **interval.columns}


def within_runs(x: Snapshots, y: Snapshots, validation: Snapshots, options: SeededOptions, *names: str) -> Row:
    """Return columns of `inference` for the partial correlation over snapshots, given the validation loss.

    Training lowers the error and moves every measure, so the ranks of the validation loss are taken out of both.
    validation: the validation loss of each snapshot, the same for all data sets; NaN where it is missing. The partial
    correlations of a run are averaged over data sets. All runs see the same data sets, so the effect must hold over
    both: p is the larger one of two tests, which flip the signs of the runs' means and of the data sets' means, and
    `detectable` the larger one of the effects that each finds with 90 % power, so that both do with at least 80 %.
    The interval resamples runs and data sets. Snapshots are ordered, so they are never permuted.
    """
    partial = np.array(
        [[partial_spearman(x[d, r], y[d, r], validation[d, r]) for d in range(x.shape[0])] for r in range(x.shape[1])]
    ).reshape(x.shape[1], x.shape[0])
    is_defined = np.isfinite(partial)
    partial = partial[is_defined.any(axis=1)][:, is_defined.any(axis=0)]
    row: Row = {"n": int(is_defined.sum()), "n_clusters": len(partial)}
    sizes = dict(zip(("runs", "data sets"), partial.shape, strict=True))
    if few := [f"{size} {kind}" for kind, size in sizes.items() if size < FEWEST_RUNS]:
        return row | {"reason": f"{', '.join(few)} with a partial correlation; needs {FEWEST_RUNS}"}
    means = {kind: np.nanmean(partial, axis=1 - axis) for axis, kind in enumerate(sizes)}
    flips = {
        kind: flip_mean(m, permutations=options.permutations, generator=options.generator(*names, "flips", kind))
        for kind, m in means.items()
    }
    # Both tests must find an effect: if each misses it in 10 % of samples, at most 20 % miss it.
    power = (1 + POWER) / 2
    detectable = [_detectable_mean(m, options, *names, kind, power=power) for kind, m in means.items()]
    interval = _resample_both(partial, options, *names)
    return row | {
        "estimate": float(means["runs"].mean()),
        "p": max(test.p for test in flips.values()),
        "p_smallest": max(test.smallest for test in flips.values()),
        "detectable": max(detectable) if np.isfinite(detectable).all() else math.nan,
        "method": f"larger p of {' and '.join(f'{t.description} of means of {kind}' for kind, t in flips.items())}",
        **interval.columns,
    }


def _resample_both(
    partial: Float[np.ndarray, "run dataset"], options: SeededOptions, *names: str
) -> bootstrap.Interval:
    """Return the percentile interval of the mean over runs of their means, when runs and data sets are resampled."""
    generator = options.generator(*names, "bootstrap")
    runs, datasets = (bootstrap.draw_counts(generator, options.bootstrap, n) for n in partial.shape)
    is_defined = np.isfinite(partial)
    counts = datasets @ is_defined.T.astype(float)
    sums = datasets @ np.where(is_defined, partial, 0.0).T
    with np.errstate(invalid="ignore", divide="ignore"):
        means = mean_of_defined(sums / counts, runs, axis=1)
    method = f"two-way bootstrap (runs, data sets), {options.bootstrap} resamples, percentile"
    return bootstrap.percentile(means, options.alpha, method)


def centred_ranks(values: Runs, labels: Int[np.ndarray, " run"]) -> Runs:
    """Return average ranks inside each group of runs, minus their mean."""
    from scipy.stats import rankdata

    ranks = np.zeros(values.shape)
    for label in np.unique(labels):
        at = np.flatnonzero(labels == label)
        ranks[:, at] = rankdata(values[:, at], axis=1) - (len(at) + 1) / 2
    return ranks


def orders_inside(
    labels: Int[np.ndarray, " run"], at_most: int, generator: np.random.Generator
) -> tuple[Int[np.ndarray, "order run"], bool]:
    """Return orders of runs that stay inside their groups, the given one first, and whether they are all orders."""
    groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    count = math.prod(math.factorial(len(at)) if len(at) < 13 else at_most + 2 for at in groups)
    if count <= at_most + 1:
        permuted = itertools.product(*(itertools.permutations(at.tolist()) for at in groups))
        orders = np.tile(np.arange(len(labels)), (count, 1))
        for order, parts in zip(orders, permuted, strict=True):
            for at, part in zip(groups, parts, strict=True):
                order[at] = part
        return orders, True
    orders = np.tile(np.arange(len(labels)), (at_most + 1, 1))
    for at in groups:
        orders[1:, at] = generator.permuted(orders[1:, at], axis=1)
    return orders, False


def partial_spearman(
    x: Float[np.ndarray, " unit"], y: Float[np.ndarray, " unit"], control: Float[np.ndarray, " unit"]
) -> float:
    """Return the partial rank correlation of x and y, with a third variable held constant.

    It is Pearson's r of the residuals of the ranks of x and of y after linear regression on the ranks of `control`
    (Kendall 1942). Units with a NaN are left out. NaN for fewer than FEWEST_SNAPSHOTS units, and where nothing is left
    of x or y.
    """
    is_complete = complete(x, y) & np.isfinite(control)
    if is_complete.sum() < FEWEST_SNAPSHOTS:
        return math.nan
    ranks = [average_ranks(values[is_complete]) for values in (control, x, y)]
    z, *pair = (values - values.mean() for values in ranks)
    size = float(z @ z)
    residuals = [values - (values @ z / size if size else 0.0) * z for values in pair]
    spreads = [float(values @ values) for values in residuals]
    if any(spread <= ROUNDING * max(float(values @ values), 1.0) for spread, values in zip(spreads, pair, strict=True)):
        return math.nan
    return float(residuals[0] @ residuals[1] / math.sqrt(spreads[0] * spreads[1]))


def simulate_detectable(
    by_dataset: Float[np.ndarray, "dataset order"], critical: float, generator: np.random.Generator
) -> float:
    """Return the smallest correlation that the test finds with 80 % power; NaN where there is none below 1.

    by_dataset: rho of every data set under every order, the observed first. A simulated sample of effect e takes the
    ranks a of x in a random order, with rho s_d to the ranks of y, and mixes y into them:
    sqrt(1 - e^2) a + e y. Its mean rho over data sets is then the mean of
    (sqrt(1 - e^2) s_d + e) / sqrt(1 + 2 e sqrt(1 - e^2) s_d). Samples thus have the variances, and the dependence
    between data sets, of the observed tables.
    """
    if not math.isfinite(critical):
        return math.nan
    # All orders come sorted, so that neighbours are alike: samples are drawn among them.
    others = by_dataset[:, 1:]
    if not others.size:
        return math.nan
    null = others[:, generator.permutation(others.shape[1])[:SIMULATIONS]]

    def power(effect: float) -> float:
        rest = math.sqrt(1 - effect**2)
        rho = (rest * null + effect) / np.sqrt(np.maximum(1 + 2 * effect * rest * null, ROUNDING))
        return float((rho.mean(axis=0) >= critical).mean())

    return _smallest_effect(power)


def _detectable_mean(means: Float[np.ndarray, " unit"], options: SeededOptions, *names: str, power: float) -> float:
    """Return the smallest mean that the sign-flip test finds with this power, by simulation; NaN: none below 1.

    Samples are drawn with replacement from the observed means less their mean, and shifted.
    """
    generator = options.generator(*names, "power")
    n = len(means)
    if 2.0 ** (1 - n) > options.alpha:
        return math.nan
    drawn = (means - means.mean())[generator.integers(n, size=(SIMULATIONS, n))]
    flips = 1 - 2 * generator.integers(2, size=(SIMULATIONS, n))
    noise, bias = drawn @ flips.T / n, flips.mean(axis=1)

    def measure_power(effect: float) -> float:
        null = np.abs(noise + effect * bias)
        observed = np.abs(drawn.mean(axis=1) + effect)[:, None]
        return float(((null >= observed).mean(axis=1) <= options.alpha).mean())

    return _smallest_effect(measure_power, power)


def _smallest_effect(measure_power: Callable[[float], float], power: float = POWER) -> float:
    """Return the smallest effect below 1 that is found with this power, by bisection; NaN where there is none.

    measure_power: function that returns the share of samples in which an effect is found.
    """
    low, high = 0.0, 0.999
    if measure_power(high) < power:
        return math.nan
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if measure_power(middle) >= power else (middle, high)
    return high


def _complete_block(
    x: Runs, y: Runs
) -> tuple[Float[np.ndarray, "kept run"], Float[np.ndarray, "kept run"], Int[np.ndarray, " run"]]:
    """Return both tables without incomplete data sets and runs, and the indices of the kept runs.

    Data sets with values of most runs are kept, then the runs with values on all of these.
    """
    is_complete = complete(x, y)
    runs = is_complete.any(axis=0)
    datasets = is_complete[:, runs].sum(axis=1) >= LEAST_SHARE * runs.sum()
    datasets &= is_complete.any(axis=1)
    kept = np.flatnonzero(is_complete[datasets].all(axis=0)) if datasets.any() else np.zeros(0, dtype=int)
    return x[datasets][:, kept], y[datasets][:, kept], kept


def _resample_groups(
    a: Runs, b: Runs, labels: Int[np.ndarray, " run"], options: SeededOptions, *names: str
) -> bootstrap.Interval:
    """Return the percentile interval of the mean rho when data sets and whole groups are resampled."""
    n_groups, n_datasets = int(labels.max()) + 1, len(a)
    if n_groups < bootstrap.FEWEST_MODELS or n_datasets < 2:
        return bootstrap.empty_interval(f"{n_groups} groups on {n_datasets} data sets, needs 3 on 2")
    generator = options.generator(*names, "bootstrap")
    sums = [
        np.array([np.bincount(labels, weights=row, minlength=n_groups) for row in values])
        for values in (a * b, a * a, b * b)
    ]
    groups = bootstrap.draw_counts(generator, options.bootstrap, n_groups)
    datasets = bootstrap.draw_counts(generator, options.bootstrap, n_datasets)
    products, squares_a, squares_b = (groups @ values.T for values in sums)
    norms = np.sqrt(squares_a * squares_b)
    rho = np.divide(products, norms, out=np.full(norms.shape, np.nan), where=norms > 0)
    means = mean_of_defined(rho, datasets, axis=1)
    method = f"two-way bootstrap (data sets, groups), {options.bootstrap} resamples, percentile"
    return bootstrap.percentile(means, options.alpha, method)
