"""Correlations of one study and one measure: estimates, intervals, tests, and detectable sizes.

The mixed model of log NMSE on isotropy checks the permutation tests under other assumptions.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from tsfmscope.statistics import bootstrap
from tsfmscope.statistics.means import crossed_mean
from tsfmscope.statistics.options import SeededOptions
from tsfmscope.statistics.permutation import (
    PermutationTest,
    double_centred,
    permute_centred,
    permute_rows,
    sign_flips,
)
from tsfmscope.statistics.ranks import complete, critical_rho, detectable_rho, kendall, spearman, undefined_reason

# Columns of the table `inference`.
Row = dict[str, Any]
Changes = Float[np.ndarray, "model dataset"]
Table = Float[np.ndarray, "dataset model condition"]


class Unit(NamedTuple):
    """One unit: data set, model and condition; a missing number is None."""

    dataset: str
    model: str
    condition: str
    isotropy: float | None
    log_nmse: float | None


@dataclass(frozen=True)
class Units:
    """Isotropy and log NMSE of every (data set, model, condition), NaN where missing; names are sorted.

    families: number of each model's family, from 0.
    """

    datasets: Sequence[str]
    models: Sequence[str]
    families: Int[np.ndarray, " model"]
    isotropy: Table
    log_nmse: Table

    @classmethod
    def of(cls, units: Iterable[Unit], families: Mapping[str, str]) -> Units:
        """Build the tables from units; a (data set, model, condition) without a unit is NaN.

        families: model -> family; a model without one is its own. If all models are of one family, the units are about
        that family alone, and every model counts as its own.
        """
        names, (isotropy, log_nmse) = tabulate(list(units), 2)
        labels = [families.get(model, model) for model in names[1]]
        labels = labels if len(set(labels)) > 1 else names[1]
        return cls(names[0], names[1], _number(labels), isotropy, log_nmse)


def tabulate(rows: Sequence[Sequence[Any]], numbers: int) -> tuple[list[list[str]], list[np.ndarray]]:
    """Return the sorted names, and one table [dataset, model, condition] for each number.

    rows: data set, model, condition, and `numbers` numbers. NaN where there is no row, or where it contains
    None.
    """
    columns = list(zip(*(row[:3] for row in rows), strict=True)) or [(), (), ()]
    names = [sorted(set(column)) for column in columns]
    positions = [{name: n for n, name in enumerate(labels)} for labels in names]
    shape = [len(labels) for labels in names]
    tables = [np.full(shape, np.nan) for _ in range(numbers)]
    for row in rows:
        at = tuple(position[name] for position, name in zip(positions, row, strict=False))
        for table, value in zip(tables, row[3:], strict=True):
            table[at] = np.nan if value is None else value
    return names, tables


def _number(labels: Sequence[str]) -> Int[np.ndarray, " label"]:
    """Return the number of each label among the sorted different ones."""
    return np.unique(np.asarray(labels, dtype=str), return_inverse=True)[1].reshape(-1)


# Minimum number of data sets for an estimate of the variance between them.
FEWEST_DATASETS = 5


@dataclass(frozen=True)
class Slope:
    """Change of log NMSE, in nats, per standard deviation of isotropy.

    The numbers are NaN, with a reason, where the fit failed.
    """

    estimate: float
    low: float
    high: float
    p: float
    n: int
    datasets: int
    method: str
    reason: str | None = None


def fit_mixed_model(
    isotropy: Table, log_nmse: Table, families: Int[np.ndarray, " model"] | None = None, *, alpha: float = 0.05
) -> Slope:
    """Fit a mixed model of log NMSE on isotropy.

        log NMSE = slope x isotropy / s.d. + mean isotropy of the data set + model + condition
            + (data set) + (data set x model)

    Terms in parentheses are random, as variance components of one group, because data sets and models are
    crossed (statsmodels MixedLM). Models and conditions are fixed effects, because they have too few levels
    for a variance. The term data set x model is included where conditions repeat it. In a population, where
    FEWEST_DATASETS families or more have several models, families and models are random too, so that differences
    between models count: (family) + (model) take the place of model.

    families: number of each model's family; None: every model is its own.

    The data set's mean isotropy (Mundlak 1978) leaves only differences within data sets to the slope. Without
    it, a difficulty that changes isotropy and error together would look like an effect. Estimates by REML;
    interval and p by Wald. Units without both values are left out. A fit that fails or does not converge
    gives a reason, never an error.
    """
    is_complete = complete(isotropy, log_nmse)
    dataset, model, condition = np.nonzero(is_complete)
    x, y = isotropy[is_complete], log_nmse[is_complete]
    n, levels = len(x), len(np.unique(dataset))
    slopeless = f"{levels} data sets with units, needs {FEWEST_DATASETS}" if levels < FEWEST_DATASETS else None
    constant = [name for name, values in (("isotropy", x), ("log NMSE", y)) if n and np.ptp(values) == 0]
    if slopeless is None and constant:
        slopeless = f"{' and '.join(constant)} constant"
    x = x / x.std() if n and x.std() > 0 else x
    # The mean of x over each unit's data set, unless all data sets have the same mean.
    means = (np.bincount(dataset, weights=x) / np.maximum(np.bincount(dataset), 1))[dataset]
    centred = [means - means.mean()] if n and np.ptp(means) > 1e-9 else []
    family = model if families is None else families[model]
    in_families = FEWEST_DATASETS <= len(np.unique(family)) < len(np.unique(model))
    fixed_effects = [x, np.ones(n), *centred, *_dummies(condition)[1:]]
    fixed_effects += [] if in_families else _dummies(model)[1:]
    exog = np.column_stack(fixed_effects) if n else np.zeros((0, 2))
    if slopeless is None and np.linalg.matrix_rank(exog) < exog.shape[1]:
        slopeless = "inside data sets isotropy says no more than model and condition"
    if slopeless is None and n <= exog.shape[1] + 2:
        slopeless = f"{n} units for {exog.shape[1]} fixed effects"
    random = {"data set": dataset} | ({"family": family, "model": model} if in_families else {})
    pairs = dataset * (int(model.max(initial=0)) + 1) + model
    # Without repetitions, this term cannot be separated from the error.
    if n > len(np.unique(pairs)):
        random["data set x model"] = pairs
    components = {name: np.column_stack(_dummies(levels)) if n else np.zeros((0, 0)) for name, levels in random.items()}
    fixed = "condition, data set's mean isotropy" if in_families else "model, condition, data set's mean isotropy"
    method = f"mixed model (REML, Wald); random: {', '.join(components)}; fixed: {fixed}"
    undefined = Slope(math.nan, math.nan, math.nan, math.nan, n, levels, method, slopeless)
    return undefined if slopeless else _fit_slope(undefined, y, exog, components, alpha)


def _fit_slope(
    undefined: Slope, y: np.ndarray, exog: np.ndarray, components: dict[str, np.ndarray], alpha: float
) -> Slope:
    from scipy import stats
    from statsmodels.regression.mixed_linear_model import MixedLM, VCSpec

    names = list(components)
    columns = [[[f"{name} {n}" for n in range(components[name].shape[1])]] for name in names]
    spec = VCSpec(names, columns, [[components[name]] for name in names])
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # Warnings (boundary, singular, not converged) are silenced; the results are checked below.
        warnings.simplefilter("ignore")
        try:
            result = MixedLM(y, exog, groups=np.zeros(len(y)), exog_vc=spec).fit(reml=True, method=["lbfgs", "bfgs"])
            slope, error = float(result.fe_params[0]), float(result.bse_fe[0])
        except (np.linalg.LinAlgError, ValueError, FloatingPointError, ZeroDivisionError) as failed:
            return replace(undefined, reason=f"mixed model failed: {failed}")
    if not result.converged:
        return replace(undefined, reason="mixed model did not converge")
    if not (math.isfinite(slope) and math.isfinite(error) and error > 0):
        return replace(undefined, reason="mixed model has no standard error of the slope")
    half_width = float(stats.norm.isf(alpha / 2)) * error
    p = 2 * float(stats.norm.sf(abs(slope / error)))
    return replace(undefined, estimate=slope, low=slope - half_width, high=slope + half_width, p=p)


def _dummies(levels: np.ndarray) -> list[np.ndarray]:
    """Return one 0/1 column per level that occurs."""
    return [(levels == level).astype(float) for level in np.unique(levels)]


NO_KENDALL = "Kendall's tau-b stands beside rho, which is tested; it has no p and no interval of its own"
NO_POOLED_TEST = (
    "no evidence: differences between data sets and models make the pooled rho, so it has no p and no interval"
)


def correlations(units: Units, options: SeededOptions, *names: str) -> list[Row]:
    """Return the rows of `inference` for the correlation answers and the mixed model.

    names: study and measure, which seed the random numbers. Units without both values are left out
    everywhere. A number that is not defined is NaN, and the row gives the reason.
    """
    is_complete = complete(units.isotropy, units.log_nmse)
    x, y = (np.where(is_complete, values, np.nan) for values in (units.isotropy, units.log_nmse))
    if not is_complete.any():
        x, y = x[:0], y[:0]
    else:
        # A data set, model or condition without a unit is not a cluster.
        index = [np.flatnonzero(is_complete.any(axis=tuple({0, 1, 2} - {axis}))) for axis in range(3)]
        x, y = x[np.ix_(*index)], y[np.ix_(*index)]
        datasets = [units.datasets[n] for n in index[0].tolist()]
        models = [units.models[n] for n in index[1].tolist()]
        families = _number(units.families[index[1]].astype(str).tolist())
        units = Units(datasets, models, families, x, y)
    fit = fit_mixed_model(x, y, units.families, alpha=options.alpha)
    columns = {name: getattr(fit, name) for name in ("estimate", "low", "high", "p", "method", "reason")}
    mixed_row = _row("mixed_model", "all", "all", "slope", fit.n, fit.datasets) | columns
    mixed_row["interval_method"] = None if fit.reason else "Wald"
    return [*_headline(x, y, units.families, options, names), *_by_block(units, x, y, options, names), mixed_row]


def _headline(
    x: np.ndarray, y: np.ndarray, families: Int[np.ndarray, " model"], options: SeededOptions, names: Sequence[str]
) -> Iterator[Row]:
    """Yield the rows of the answer correlation: means of rho over blocks, double-centred r, and pooled rho.

    The blocks are data sets, pairs of data set and condition, or models.
    """
    n, (datasets, models, conditions) = int(complete(x, y).sum()), x.shape
    by_condition = [np.moveaxis(values, 2, 1).reshape(datasets * conditions, models, 1) for values in (x, y)]
    by_model = [np.moveaxis(values, 0, 1) for values in (x, y)]
    kind = "whole families" if len(np.unique(families)) < models else "models"
    exchanged = f"{kind} in all data sets at once"
    for grouping, blocks, shape, unit_name in (
        ("within_dataset", (x, y), (datasets, 1, models, conditions), exchanged),
        ("per_dataset", by_condition, (datasets, conditions, models, 1), exchanged),
        ("per_model", by_model, None, "data sets in all models at once"),
    ):
        row = _row("correlation", grouping, "all", "spearman", n, blocks[0].shape[1])
        draws = options.draws(*names, grouping, "bootstrap")
        if shape is None:
            interval = bootstrap.by_row(*blocks, unit_name="data sets", **draws)
        else:
            isotropy, log_nmse = (block.reshape(shape) for block in blocks)
            interval = bootstrap.two_way(isotropy, log_nmse, families, **draws)
        orders = options.orders(*names, grouping) | {"families": None if shape is None else families}
        test = permute_rows(*blocks, **orders)
        yield _with_test(row, test, interval, unit_name, _no_mean_reason(x, y))
    yield _double_centred(x, y, options, names)
    row = _row("correlation", "pooled", "all", "spearman", n, n)
    yield {**row, "estimate": spearman(x.reshape(-1), y.reshape(-1)), "reason": NO_POOLED_TEST}


def _double_centred(x: np.ndarray, y: np.ndarray, options: SeededOptions, names: Sequence[str]) -> Row:
    tables = (values.reshape(len(values), math.prod(values.shape[1:])) for values in (x, y))
    a, b, rows, columns = double_centred(*tables)
    row = _row("correlation", "within_dataset", "all", "double_centred", a.size, len(rows))
    test = permute_centred(a, b, **options.orders(*names, "double_centred"))
    omitted = ""
    if len(rows) < len(x):
        omitted = f"; {len(x) - len(rows)} of {len(x)} data sets left out, a column is missing"
    size = f"{len(rows)} data sets x {len(columns)} columns"
    reason = f"nothing is left of {size} once their means are taken out{omitted}"
    interval = bootstrap.empty_interval("that of rho within data sets stands for it")
    return _with_test(row, test, interval, f"data sets of double-centred tables{omitted}", reason)


def _by_block(
    units: Units, x: np.ndarray, y: np.ndarray, options: SeededOptions, names: Sequence[str]
) -> Iterator[Row]:
    """Yield the rows for each model over data sets and for each data set over models.

    Whole rows are permuted, with their conditions; models together with those of their family.
    """
    for answer, grouping, unit_name, labels, axis, families in (
        ("correlation_by_model", "per_model", "data sets", units.models, 1, None),
        ("correlation_by_dataset", "within_dataset", "models", units.datasets, 0, units.families),
    ):
        if not x.size:
            continue
        for n, label in enumerate(labels):
            isotropy, log_nmse = x.take(n, axis=axis), y.take(n, axis=axis)  # [row, condition]
            has_units = complete(isotropy, log_nmse).any(axis=1)
            block = (isotropy[has_units][None], log_nmse[has_units][None])
            key = (*names, grouping, label)
            kinds = None if families is None else families[has_units]
            test = permute_rows(*block, families=kinds, **options.orders(*key))
            interval = bootstrap.by_row(*block, unit_name=unit_name, **options.draws(*key, "bootstrap"))
            flat = isotropy.reshape(-1), log_nmse.reshape(-1)
            units_here, rows = int(complete(*flat).sum()), int(has_units.sum())
            row = _row(answer, grouping, label, "spearman", units_here, rows)
            sizes = {"critical": critical_rho(rows, options.alpha), "detectable": detectable_rho(rows, options.alpha)}
            yield _with_test(row, test, interval, unit_name, undefined_reason(*flat) or "") | sizes
            yield {**row, "statistic": "kendall", "estimate": kendall(*flat), "reason": NO_KENDALL}


def signs(
    values: Float[np.ndarray, " pair"],
    clusters: Sequence[str],
    families: Sequence[str],
    options: SeededOptions,
    row: Row,
    unit_name: str,
) -> Row:
    """Return a row of `inference` for the answer sign_test, context_effect or noise_effect.

    All families see the same clusters, and all clusters the same families, so a share must hold over both: p is the
    larger one of the exact test, which flips the signs of whole clusters, and of `crossed_mean`, which gives the
    interval. With one family there is no spread over families, and the row is about that family alone.

    values: +1, -1, 0 (a tie) or NaN (left out). clusters, families: cluster of each value, and family of its model.
    row: the identifying columns of the row. unit_name: the name of a cluster in the text of `method`.
    """
    is_complete = np.isfinite(values)
    index = np.unique(np.asarray(clusters, dtype=str), return_inverse=True)[1].reshape(-1)[is_complete]
    result = sign_flips(values[is_complete].astype(int), index, alpha=options.alpha)
    if result is None:
        return {**row, "n": 0, "n_clusters": 0, "reason": "no pair has both values"}
    # Half of a sign is the share of its unit, less 1/2.
    share = crossed_mean(values / 2, clusters, families, alpha=options.alpha)
    n_families = len({family for family, used in zip(families, is_complete, strict=True) if used})
    dependence = f"Student's t over {unit_name}" + (f" and {n_families} families" if n_families > 1 else "")
    detectable = 0.5 + share.detectable if result.p_smallest <= options.alpha else math.nan
    return {
        **row,
        **result._asdict(),
        "p": float(np.fmax(result.p, share.p)),
        "low": max(0.0, 0.5 + share.low),
        "high": min(1.0, 0.5 + share.high),
        "interval_method": None if share.reason else dependence,
        "detectable": detectable if detectable < 1 else math.nan,
        "method": f"larger p of all 2^{result.n_clusters} sign flips of {unit_name} and of {dependence}",
        "reason": share.reason and f"no interval: {share.reason}",
    }


def changes(isotropy: Changes, log_nmse: Changes, options: SeededOptions, row: Row) -> Row:
    """Return a row of `inference` for the answer context_effect or noise_effect, tested over data sets.

    The estimate is the mean over models of rho between the changes of isotropy and of log NMSE. A change that
    a condition causes in all data sets alike has no effect on this estimate, but it has one on a sign test.
    """
    is_complete = complete(isotropy, log_nmse)
    is_used = is_complete.any(axis=0)
    x, y = (np.where(is_complete, values, np.nan)[:, is_used, None] for values in (isotropy, log_nmse))
    key = [str(row[name]) for name in ("study", "answer", "measure", "block", "statistic")]
    test = permute_rows(x, y, **options.orders(*key))
    interval = bootstrap.by_row(x, y, unit_name="data sets", **options.draws(*key, "bootstrap"))
    row = {**row, "n": int(is_complete.sum()), "n_clusters": int(is_used.sum())}
    return _with_test(row, test, interval, "data sets in all models at once", _no_mean_reason(x, y))


def _row(answer: str, grouping: str, block: str, statistic: str, n: int, clusters: int) -> Row:
    names = {"answer": answer, "grouping": grouping, "block": block, "statistic": statistic}
    return {**names, "n": n, "n_clusters": clusters}


def _with_test(
    row: Row, test: PermutationTest | None, interval: bootstrap.Interval, unit_name: str, reason: str
) -> Row:
    """Return the row with the results of a permutation test and an interval, or the reason why there are none."""
    if test is None:
        return {**row, "reason": reason}
    return {**row, **test.columns, **interval.columns, "method": f"{unit_name}: {test.description}"}


def _no_mean_reason(x: np.ndarray, y: np.ndarray) -> str:
    reason = undefined_reason(x.reshape(-1), y.reshape(-1))
    return reason or "no block has three units that differ in isotropy and in log NMSE"
