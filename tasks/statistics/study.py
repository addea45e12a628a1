"""Correlations of one study and one measure: estimates, intervals, tests, and detectable sizes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from tsfmscope.tasks.statistics import bootstrap, mixed
from tsfmscope.tasks.statistics.permutation import Permuted, double_centred, permute_centred, permute_rows
from tsfmscope.tasks.statistics.power import critical_rho, detectable_rho
from tsfmscope.tasks.statistics.ranks import complete, kendall, spearman, why_undefined
from tsfmscope.tasks.statistics.signs import cluster_sums, sign_flips
from tsfmscope.tasks.statistics.units import Units

NO_KENDALL = "Kendall's tau-b stands beside rho, which is tested; it has no p and no interval of its own"
POOLED = "no evidence: differences between data sets and models make the pooled rho, so it has no p and no interval"


@dataclass(frozen=True)
class Options:
    """Options of the statistics of one study.

    permutations: number of random orders where all orders are too many. resamples: number of resamples of
    each bootstrap. alpha: significance level. seed: seed of the study's run.
    """

    permutations: int = 9999
    resamples: int = 2000
    alpha: float = 0.05
    seed: int = 0

    def generator(self, *names: str) -> np.random.Generator:
        """Return the random generator of one statistic, independent of which other statistics are computed."""
        text = "\0".join((str(self.seed), *names))
        return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]))


def correlations(units: Units, options: Options, *names: str) -> list[dict[str, Any]]:
    """Return the rows of `inference` for the correlation answers and the mixed model.

    names: study and measure, which seed the random numbers. Units without both values are left out
    everywhere. A number that is not defined is NaN, and the row gives the reason.
    """
    there = complete(units.isotropy, units.log_nmse)
    x, y = (np.where(there, values, np.nan) for values in (units.isotropy, units.log_nmse))
    if not there.any():
        x, y = x[:0], y[:0]
    else:
        # A data set, model or condition without a unit is not a cluster.
        kept = [np.flatnonzero(there.any(axis=tuple({0, 1, 2} - {axis}))) for axis in range(3)]
        x, y = x[np.ix_(*kept)], y[np.ix_(*kept)]
        units = Units([units.datasets[n] for n in kept[0].tolist()], [units.models[n] for n in kept[1].tolist()], x, y)
    return [*_headline(x, y, options, names), *_by_block(units, x, y, options, names), _mixed(x, y, options)]


def _headline(x: np.ndarray, y: np.ndarray, options: Options, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of the answer correlation: means of rho over blocks, double-centred r, and pooled rho.

    The blocks are data sets, pairs of data set and condition, or models.
    """
    how: dict[str, Any] = {"resamples": options.resamples, "alpha": options.alpha}
    n, (datasets, models, conditions) = int(complete(x, y).sum()), x.shape
    each = [np.moveaxis(values, 2, 1).reshape(datasets * conditions, models, 1) for values in (x, y)]
    by_model = [np.moveaxis(values, 0, 1) for values in (x, y)]
    for grouping, blocks, shape, what in (
        ("within_dataset", (x, y), (datasets, 1, models, conditions), "models in all data sets at once"),
        ("per_dataset", each, (datasets, conditions, models, 1), "models in all data sets at once"),
        ("per_model", by_model, None, "data sets in all models at once"),
    ):
        row = _row("correlation", grouping, "all", "spearman", n, blocks[0].shape[1])
        draw = options.generator(*names, grouping, "bootstrap")
        if shape is None:
            interval = bootstrap.by_row(*blocks, what="data sets", generator=draw, **how)
        else:
            interval = bootstrap.two_way(*(b.reshape(shape) for b in blocks), generator=draw, **how)
        test = permute_rows(
            *blocks,
            permutations=options.permutations,
            alpha=options.alpha,
            generator=options.generator(*names, grouping),
        )
        yield _tested(row, test, interval, what, _why_no_mean(x, y))
    yield _double_centred(x, y, options, names)
    row = _row("correlation", "pooled", "all", "spearman", n, n)
    yield {**row, "estimate": spearman(x.reshape(-1), y.reshape(-1)), "reason": POOLED}


def _double_centred(x: np.ndarray, y: np.ndarray, options: Options, names: Sequence[str]) -> dict[str, Any]:
    a, b, rows, columns = double_centred(
        *(values.reshape(len(values), math.prod(values.shape[1:])) for values in (x, y))
    )
    row = _row("correlation", "within_dataset", "all", "double_centred", a.size, len(rows))
    generator = options.generator(*names, "double_centred")
    test = permute_centred(a, b, permutations=options.permutations, alpha=options.alpha, generator=generator)
    left = f"; {len(x) - len(rows)} of {len(x)} data sets left out, a column is missing" if len(rows) < len(x) else ""
    why = f"nothing is left of {len(rows)} data sets x {len(columns)} columns once their means are taken out{left}"
    interval = bootstrap.none("that of rho within data sets stands for it")
    return _tested(row, test, interval, f"data sets of double-centred tables{left}", why)


def _by_block(
    units: Units, x: np.ndarray, y: np.ndarray, options: Options, names: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield the rows for each model over data sets and for each data set over models.

    Whole rows are permuted, with their conditions.
    """
    for answer, grouping, what, labels, axis in (
        ("correlation_by_model", "per_model", "data sets", units.models, 1),
        ("correlation_by_dataset", "within_dataset", "models", units.datasets, 0),
    ):
        if not x.size:
            continue
        for n, label in enumerate(labels):
            one, other = x.take(n, axis=axis), y.take(n, axis=axis)  # [row, condition]
            here = complete(one, other).any(axis=1)
            block = (one[here][None], other[here][None])
            key = (*names, grouping, label)
            test = permute_rows(
                *block, permutations=options.permutations, alpha=options.alpha, generator=options.generator(*key)
            )
            interval = bootstrap.by_row(
                *block,
                what=what,
                resamples=options.resamples,
                alpha=options.alpha,
                generator=options.generator(*key, "bootstrap"),
            )
            flat = one.reshape(-1), other.reshape(-1)
            units_here, rows = int(complete(*flat).sum()), int(here.sum())
            row = _row(answer, grouping, label, "spearman", units_here, rows)
            sizes = {"critical": critical_rho(rows, options.alpha), "detectable": detectable_rho(rows, options.alpha)}
            yield _tested(row, test, interval, what, why_undefined(*flat) or "") | sizes
            yield {**row, "statistic": "kendall", "estimate": kendall(*flat), "reason": NO_KENDALL}


def signs(
    values: Float[np.ndarray, " pair"], clusters: Sequence[str], options: Options, row: dict[str, Any], what: str
) -> dict[str, Any]:
    """Return a row of `inference` for the answer sign_test, context_effect or noise_effect.

    values: +1, -1, 0 (a tie) or NaN (left out). clusters: the cluster of each value. row: the identifying
    columns of the row. what: the name of a cluster in the text of `method`.
    """
    there = np.isfinite(values)
    index = np.unique(np.asarray(clusters, dtype=str), return_inverse=True)[1].reshape(-1)[there]
    found = sign_flips(values[there].astype(int), index, alpha=options.alpha)
    if found is None:
        return {**row, "n": 0, "n_clusters": 0, "reason": "no pair has both values"}
    sizes, sums = cluster_sums((values[there] + 1) / 2, index)
    interval = bootstrap.by_cluster(
        sums,
        sizes,
        resamples=options.resamples,
        alpha=options.alpha,
        generator=options.generator(*(str(row[name]) for name in ("study", "answer", "measure", "block", "statistic"))),
    )
    return {
        **row,
        "n": found.n,
        "n_clusters": found.clusters,
        "estimate": found.share,
        "p": found.p,
        "p_smallest": found.smallest,
        "p_unclustered": found.binomial,
        "critical": found.critical,
        "method": f"all 2^{found.clusters} sign flips of {what}",
        **ends(interval),
        "reason": interval.reason,
    }


def changes(
    isotropy: Float[np.ndarray, "model dataset"],
    log_nmse: Float[np.ndarray, "model dataset"],
    options: Options,
    row: dict[str, Any],
) -> dict[str, Any]:
    """Return a row of `inference` for the answer context_effect or noise_effect, tested over data sets.

    The estimate is the mean over models of rho between the changes of isotropy and of log NMSE. A change that
    a condition causes in all data sets alike has no effect on this estimate, but it has one on a sign test.
    """
    there = complete(isotropy, log_nmse)
    kept = there.any(axis=0)
    x, y = (np.where(there, values, np.nan)[:, kept, None] for values in (isotropy, log_nmse))
    key = tuple(str(row[name]) for name in ("study", "answer", "measure", "block", "statistic"))
    test = permute_rows(x, y, permutations=options.permutations, alpha=options.alpha, generator=options.generator(*key))
    interval = bootstrap.by_row(
        x,
        y,
        what="data sets",
        resamples=options.resamples,
        alpha=options.alpha,
        generator=options.generator(*key, "bootstrap"),
    )
    row = {**row, "n": int(there.sum()), "n_clusters": int(kept.sum())}
    return _tested(row, test, interval, "data sets in all models at once", _why_no_mean(x, y))


def _mixed(x: np.ndarray, y: np.ndarray, options: Options) -> dict[str, Any]:
    found = mixed.fit(x, y, alpha=options.alpha)
    row = _row("mixed_model", "all", "all", "slope", found.n, found.datasets)
    numbers = {name: getattr(found, name) for name in ("estimate", "low", "high", "p", "method", "reason")}
    return {**row, **numbers, "interval_method": None if found.reason else "Wald"}


def _row(answer: str, grouping: str, block: str, statistic: str, n: int, clusters: int) -> dict[str, Any]:
    names = {"answer": answer, "grouping": grouping, "block": block, "statistic": statistic}
    return {**names, "n": n, "n_clusters": clusters}


def _tested(
    row: dict[str, Any], test: Permuted | None, interval: bootstrap.Interval, what: str, why: str
) -> dict[str, Any]:
    """Return the row with the results of a permutation test and an interval, or the reason why there are none."""
    if test is None:
        return {**row, "reason": why}
    numbers = {"estimate": test.estimate, "p": test.p, "p_smallest": test.smallest}
    sizes = {"critical": test.critical, "detectable": test.detectable}
    return {**row, **numbers, **sizes, **ends(interval), "method": f"{what}: {test.how}", "reason": interval.reason}


def ends(interval: bootstrap.Interval) -> dict[str, Any]:
    """Return the columns of `inference` for an interval."""
    made = not math.isnan(interval.low)
    return {"low": interval.low, "high": interval.high, "interval_method": interval.method if made else None}


def _why_no_mean(x: np.ndarray, y: np.ndarray) -> str:
    whole = why_undefined(x.reshape(-1), y.reshape(-1))
    return whole or "no block has three units that differ in isotropy and in log NMSE"
