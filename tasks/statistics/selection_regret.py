"""Selection regret: the cost in log error of choosing a model or a context by isotropy or by other rules."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from tsfmscope.tasks.statistics import bootstrap
from tsfmscope.tasks.statistics.permutation import CHUNK, judge, orders
from tsfmscope.tasks.statistics.ranks import complete
from tsfmscope.tasks.statistics.signs import flip_mean
from tsfmscope.tasks.statistics.study import Options, ends

ANSWER = "advice_regret"
RULES = ("advised", "validation", "largest_context", "chance")
# Kind of choice -> order of the axes of [dataset, model, condition], and number of the last axes that
# hold candidates.
AXES = {
    "model_and_context": ((0, 1, 2), 2),
    "model": ((0, 2, 1), 1),
    "context": ((0, 1, 2), 1),
}
# Minimum number of candidates to choose from.
FEWEST = 2
NO_TEST = "a regret is never below 0, so it has no p; its difference from the advice's has one"
NO_INTERVAL = "the interval is that of advised_less_chance"
NO_CHOICE = "no data set has a choice with isotropy and NMSE"
WHY = {
    "validation": "no data set whose candidates were all forecast on an earlier window",
    "largest_context": "candidates have one context",
}


def choices(values: Float[np.ndarray, "*orders dataset model condition"], what: str) -> np.ndarray:
    """Return the table as [*orders, dataset, choice, candidate].

    Each choice is made among the candidates of its row.
    """
    order, candidates = AXES[what]
    lead = values.ndim - len(order)
    moved = np.transpose(values, (*range(lead), *(lead + axis for axis in order)))
    *leading, first, second = moved.shape
    return moved.reshape(*leading, *((first, second) if candidates == 1 else (1, first * second)))


def regret(
    score: Float[np.ndarray, "*choice candidate"], log_error: Float[np.ndarray, "*choice candidate"]
) -> Float[np.ndarray, "*choice"]:
    """Return the log error of the candidate with the largest score minus the smallest log error; at least 0.

    exp of the regret is the factor by which the error exceeds the best in hindsight. The logarithm is used
    for two reasons. Errors of data sets differ by orders of magnitude, and the mean over data sets is then a
    geometric mean of ratios, which no single data set dominates. It is also the log NMSE that the
    correlations use, whose lower limit handles an error of 0.

    Candidates that share the largest score are chosen with equal probability: their mean error is used, so
    the order of candidates has no effect. A candidate without an error is ignored. NaN where fewer than two
    candidates remain, or where one of them has no score.
    """
    there = np.isfinite(log_error)
    usable = (there.sum(axis=-1) >= FEWEST) & (np.isfinite(score) | ~there).all(axis=-1)
    masked = np.where(there, score, -np.inf)
    top = there & (masked == masked.max(axis=-1, keepdims=True, initial=-np.inf))
    error = np.where(there, log_error, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        picked = np.where(top, error, 0.0).sum(axis=-1) / top.sum(axis=-1)
    best = np.where(there, log_error, np.inf).min(axis=-1, initial=np.inf)
    found = np.full(np.shape(picked), np.nan)
    np.subtract(picked, best, out=found, where=usable)
    # Rounding of the mean of tied candidates can make it negative.
    return np.where(found < 0, 0.0, found)


def of_datasets(
    isotropy: Float[np.ndarray, "dataset choice candidate"],
    log_error: Float[np.ndarray, "dataset choice candidate"],
    earlier: Float[np.ndarray, "dataset choice candidate"],
    contexts: Float[np.ndarray, "dataset choice candidate"],
) -> dict[str, Float[np.ndarray, " dataset"]]:
    """Return, for each rule, the mean regret over a data set's choices; NaN where one choice has no regret.

    - advised: the most isotropic candidate.
    - validation: the smallest log error on the earlier window.
    - largest_context: a random candidate among those with the largest context; NaN where all have it.
    - chance: the exact mean over all candidates.

    For every rule, candidates are those with isotropy and error: a rule with more candidates would be
    compared with another best in hindsight.
    """
    error = np.where(complete(isotropy, log_error), log_error, np.nan)
    there = np.isfinite(error)
    many = there.sum(axis=-1) >= FEWEST
    least = np.where(there, contexts, np.inf).min(axis=-1, keepdims=True, initial=np.inf)
    differ = (there & (contexts > least)).any(axis=-1, keepdims=True)
    scores = {
        "advised": isotropy,
        "validation": -earlier,
        "largest_context": np.where(differ, contexts, np.nan),
        "chance": np.zeros_like(error),
    }
    return {rule: _over_choices(regret(score, error), many) for rule, score in scores.items()}


def compare(
    isotropy: Float[np.ndarray, "dataset model condition"],
    log_error: Float[np.ndarray, "dataset model condition"],
    earlier: Float[np.ndarray, "dataset model condition"],
    contexts: Float[np.ndarray, "dataset model condition"],
    options: Options,
    names: Sequence[str],
) -> Iterator[dict[str, Any]]:
    """Yield the rows of `inference` for the answer advice_regret, for each kind of choice with candidates.

    - model_and_context: both are chosen together; only where both differ.
    - model: the model is chosen, with the context fixed.
    - context: the context is chosen, with the model fixed.

    names: study and measure, which seed the random numbers. A data set counts once, with all its choices:
    data sets are resampled and flipped as wholes.
    """
    tables = isotropy, log_error, earlier, contexts
    for what in AXES:
        blocks = [choices(values, what) for values in tables]
        if not _is_asked(what, *tables[:2], contexts):
            continue
        found = of_datasets(*blocks)
        for rule, values in found.items():
            yield _rule(what, rule, values, options, names)
        for rule in RULES[1:]:
            yield _difference(what, rule, found["advised"] - found[rule], options, names)
        if what != "context":
            yield _models(isotropy, log_error, what, options, names)


def _is_asked(what: str, isotropy: np.ndarray, log_error: np.ndarray, contexts: np.ndarray) -> bool:
    """Return whether a data set has such a choice; for both together, models and contexts must both differ.

    If only one of them differs, the joint choice is the same as a single one.
    """
    there = complete(isotropy, log_error)
    models = there.any(axis=2).sum(axis=1) >= FEWEST
    longest = np.where(there, contexts, -np.inf).max(axis=(1, 2), initial=-np.inf)
    shortest = np.where(there, contexts, np.inf).min(axis=(1, 2), initial=np.inf)
    if what == "model_and_context":
        return bool((models & (longest > shortest)).any())
    return bool((choices(there, what).sum(axis=-1) >= FEWEST).any())


def _rule(
    what: str, rule: str, values: Float[np.ndarray, " dataset"], options: Options, names: Sequence[str]
) -> dict[str, Any]:
    there = values[np.isfinite(values)]
    row = {**_row(what, f"regret_{rule}", len(there)), "estimate": _mean(values)}
    if not len(there):
        return {**row, "reason": WHY.get(rule, NO_CHOICE)}
    interval = _interval(there, options, *names, what, rule)
    return {**row, **ends(interval), "reason": "; ".join(filter(None, (NO_TEST, interval.reason)))}


def _difference(
    what: str, rule: str, values: Float[np.ndarray, " dataset"], options: Options, names: Sequence[str]
) -> dict[str, Any]:
    """Return the advice's regret minus a rule's, with data sets paired: negative where the advice is better."""
    there = values[np.isfinite(values)]
    row = {**_row(what, f"advised_less_{rule}", len(there)), "estimate": _mean(values)}
    if not len(there):
        return {**row, "reason": WHY.get(rule, NO_CHOICE)}
    interval = _interval(there, options, *names, what, rule, "less")
    generator = options.generator(*names, what, rule, "flips")
    test = flip_mean(there, permutations=options.permutations, generator=generator)
    tested = {"p": test.p, "p_smallest": test.smallest, "method": f"{test.how} of data sets' differences"}
    return {**row, **tested, **ends(interval), "reason": interval.reason}


def _models(
    isotropy: np.ndarray, log_error: np.ndarray, what: str, options: Options, names: Sequence[str]
) -> dict[str, Any]:
    """Test the difference from chance against joint orders of the models' isotropy.

    A measure that ranks one model as isotropic everywhere beats chance on every data set where that model
    happens to be good. Sign flips of independent data sets count that as evidence; permutations of the models
    in all data sets at once do not.
    """
    generator = options.generator(*names, what, "orders")
    found, exact = orders(isotropy.shape[1], options.permutations, generator)
    step = max(1, CHUNK // max(1, isotropy.size))
    parts = [_less_chance(isotropy, log_error, found[n : n + step], what) for n in range(0, len(found), step)]
    values = np.concatenate(parts)
    n = int(np.isfinite(_by_dataset(isotropy, log_error, found[:1], what)).sum())
    row = _row(what, "advised_less_chance_models", n)
    test = judge(values, exact, options.alpha)
    numbers = {"estimate": test.estimate, "p": test.p, "p_smallest": test.smallest}
    return {**row, **numbers, "method": f"models in all data sets at once: {test.how}", "reason": NO_INTERVAL}


def _less_chance(isotropy: np.ndarray, log_error: np.ndarray, found: Int[np.ndarray, "order model"], what: str) -> Any:
    values = _by_dataset(isotropy, log_error, found, what)
    there = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.where(there, values, 0).sum(axis=-1) / there.sum(axis=-1)


def _by_dataset(isotropy: np.ndarray, log_error: np.ndarray, found: Int[np.ndarray, "order model"], what: str) -> Any:
    """Return the advice's regret minus chance's under each order, [order, dataset]."""
    x = choices(np.moveaxis(isotropy[:, found], 1, 0), what)
    y = np.broadcast_to(choices(log_error, what), x.shape)
    error = np.where(complete(x, y), y, np.nan)
    many = np.isfinite(error).sum(axis=-1) >= FEWEST
    return _over_choices(regret(x, error) - regret(np.zeros_like(x), error), many)


def _over_choices(values: Float[np.ndarray, "*dataset choice"], many: np.ndarray) -> Float[np.ndarray, "*dataset"]:
    """Return the mean over the choices where `many` is true, [*dataset].

    `many` is true for choices with at least FEWEST candidates. NaN where there is no such choice, or where
    one of them is NaN.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        means: np.ndarray = np.where(many, values, 0).sum(axis=-1) / many.sum(axis=-1)
    return means


def _mean(values: Float[np.ndarray, " dataset"]) -> float:
    there = values[np.isfinite(values)]
    return float(there.mean()) if len(there) else math.nan


def _interval(values: np.ndarray, options: Options, *names: str) -> bootstrap.Interval:
    how: dict[str, Any] = {"resamples": options.resamples, "alpha": options.alpha}
    return bootstrap.by_cluster(values, np.ones(len(values)), generator=options.generator(*names, "bootstrap"), **how)


def _row(what: str, statistic: str, n: int) -> dict[str, Any]:
    names = {"answer": ANSWER, "grouping": what, "block": "all", "statistic": statistic}
    return {**names, "n": n, "n_clusters": n}
