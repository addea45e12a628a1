"""Tests of a population of trainings: across runs, inside groups of runs, and within runs over their snapshots.

A *run* is one training. Tables are [dataset, run] of last weights, or [dataset, run, snapshot]. Source of the
definitions: docs/science.md, "Population".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from tsfmscope.statistics import bootstrap
from tsfmscope.statistics.means import crossed_mean
from tsfmscope.statistics.options import SeededOptions
from tsfmscope.statistics.permutation import POWER, evaluate_orders, orders_between, orders_inside
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


def across_runs(
    x: Runs, y: Runs, families: Sequence[str], groups: Sequence[str], options: SeededOptions, *names: str
) -> Row:
    """Return columns of `inference` for the mean over data sets of the rank correlation of x and y across runs.

    families, groups: family and group of each run, which follow each other in the same order in every family. Ranks are
    taken inside groups and centred there, so that differences between groups do not count. With one group this is
    Spearman's rho; runs of a family are more alike than others, so the test permutes whole families, in the same way in
    all data sets: each with those that have as many runs. With several groups it permutes the runs of each. The
    interval resamples data sets and families. `detectable` comes from `simulate_detectable`.
    """
    x, y, kept = _complete_block(x, y)
    family, group = (
        np.unique(np.asarray(part, dtype=str)[kept], return_inverse=True)[1].reshape(-1) for part in (families, groups)
    )
    if len(np.unique(family)) < 2:  # about one family alone: its runs are the units
        family = np.arange(len(family))
    n_families, sizes = len(np.unique(family)), np.bincount(group)
    row: Row = {"n": x.size, "n_clusters": n_families}
    if x.shape[1] < FEWEST_RUNS or (sizes > 1).sum() < 1:
        return row | {"reason": f"{x.shape[1]} runs (groups: {len(sizes)}); needs {FEWEST_RUNS} runs, two in a group"}
    a, b = (centred_ranks(values, group) for values in (x, y))
    norms = np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    if not (varies := norms > 0).any():
        return row | {"reason": "no data set has runs of one group that differ in isotropy and in error"}
    a, b, norms = a[varies], b[varies], norms[varies]
    arrange, labels = (orders_between, family) if len(sizes) == 1 else (orders_inside, group)
    orders, is_exact = arrange(labels, options.permutations, options.generator(*names, "orders"))
    by_dataset = np.array([(p[orders] @ q) / norm for p, q, norm in zip(a, b, norms, strict=True)])
    test = evaluate_orders(by_dataset.mean(axis=0), is_exact, options.alpha)
    kind = "whole families" if n_families < x.shape[1] else "runs"
    kind = kind if len(sizes) == 1 else f"runs inside {len(sizes)} groups"
    method = f"{kind}, in all data sets at once: {test.description}"
    detectable = simulate_detectable(by_dataset, test.critical, options.generator(*names, "power"))
    if len(sizes) == 1:
        isotropy, error = (values[varies][:, None, :, None] for values in (x, y))
        interval = bootstrap.two_way(isotropy, error, family, **options.draws(*names, "bootstrap"))
    else:
        interval = _resample_ranks(a, b, family, test.estimate, options, *names)
    return {**row, **test.columns, "detectable": detectable, "method": method, **interval.columns}


def within_runs(
    x: Snapshots, y: Snapshots, validation: Snapshots, families: Sequence[str], options: SeededOptions
) -> Row:
    """Return columns of `inference` for the partial correlation over snapshots, given the validation loss.

    Training lowers the error and moves every measure, so the ranks of the validation loss are taken out of both.
    validation: the validation loss of each snapshot, the same for all data sets; NaN where it is missing. families: the
    family of each run. The estimate is the mean over runs and data sets. All runs see the same data sets, and runs of a
    family are alike, so interval and test are those of `crossed_mean` over data sets and families. Snapshots are
    ordered, so they are never permuted.
    """
    runs = range(x.shape[1])
    partial = np.array(
        [[partial_spearman(x[d, r], y[d, r], validation[d, r]) for r in runs] for d in range(len(x))]
    ).reshape(len(x), len(runs))
    is_defined = np.isfinite(partial)
    sizes = {"runs": int(is_defined.any(axis=0).sum()), "data sets": int(is_defined.any(axis=1).sum())}
    known = {family for family, used in zip(families, is_defined.any(axis=0), strict=True) if used}
    row: Row = {"n": int(is_defined.sum()), "n_clusters": len(known)}
    if few := [f"{size} {kind}" for kind, size in sizes.items() if size < FEWEST_RUNS]:
        return row | {"reason": f"{', '.join(few)} with a partial correlation; needs {FEWEST_RUNS}"}
    datasets = np.repeat(np.arange(len(x)).astype(str), len(runs))
    result = crossed_mean(partial.reshape(-1), datasets.tolist(), [*families] * len(x), alpha=options.alpha)
    method = f"Student's t over {sizes['data sets']} data sets and {len(known)} families"
    columns = {"method": method, "interval_method": method, "p_smallest": 0.0} if result.reason is None else {}
    detectable = result.detectable if result.detectable < 1 else math.nan
    return row | result._asdict() | columns | {"detectable": detectable}


def centred_ranks(values: Runs, labels: Int[np.ndarray, " run"]) -> Runs:
    """Return average ranks inside each group of runs, minus their mean."""
    from scipy.stats import rankdata

    ranks = np.zeros(values.shape)
    for label in np.unique(labels):
        at = np.flatnonzero(labels == label)
        ranks[:, at] = rankdata(values[:, at], axis=1) - (len(at) + 1) / 2
    return ranks


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

    low, high = 0.0, 0.999
    if power(high) < POWER:
        return math.nan
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle) >= POWER else (middle, high)
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


def _resample_ranks(
    a: Runs, b: Runs, family: Int[np.ndarray, " run"], estimate: float, options: SeededOptions, *names: str
) -> bootstrap.Interval:
    """Return the interval of the mean correlation of ranks centred in families, which are resampled with data sets."""
    n_families, n_datasets = int(family.max()) + 1, len(a)
    if n_families < bootstrap.FEWEST_MODELS or n_datasets < 2:
        return bootstrap.empty_interval(f"{n_families} families on {n_datasets} data sets, needs 3 on 2")
    generator = options.generator(*names, "bootstrap")
    families = bootstrap.draw_counts(generator, options.bootstrap, n_families)
    datasets = bootstrap.draw_counts(generator, options.bootstrap, n_datasets)
    products, squares_a, squares_b = (
        families @ np.array([np.bincount(family, weights=row, minlength=n_families) for row in values]).T
        for values in (a * b, a * a, b * b)
    )
    norms = np.sqrt(squares_a * squares_b)
    rho = np.divide(products, norms, out=np.full(norms.shape, np.nan), where=norms > 0)
    units = {"data sets": n_datasets, "families": n_families}
    return bootstrap.interval_of(mean_of_defined(rho, datasets, axis=1), estimate, units, options.alpha)
