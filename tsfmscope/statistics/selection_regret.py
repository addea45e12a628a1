"""Selection regret: the cost in log error of choosing a model or a context by isotropy or by other rules."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from tsfmscope.statistics.means import mean
from tsfmscope.statistics.options import SeededOptions
from tsfmscope.statistics.permutation import CHUNK, evaluate_orders, flip_mean, orders_between
from tsfmscope.statistics.ranks import complete, mean_of_defined

# Columns of the table `inference`.
Row = dict[str, Any]
Table = Float[np.ndarray, "dataset model condition"]
Choices = Float[np.ndarray, "dataset choice candidate"]
ANSWER = "advice_regret"
RULES = ("advised", "validation", "largest_context", "chance")
# Kind of choice -> order of the axes of [dataset, model, condition], and number of the last axes that
# hold candidates.
AXES = {"model_and_context": ((0, 1, 2), 2), "model": ((0, 2, 1), 1), "context": ((0, 1, 2), 1)}
# Minimum number of candidates to choose from.
FEWEST = 2
NO_TEST = "a regret is never below 0, so it has no p; its difference from the advice's has one"
NO_INTERVAL = "the interval is that of advised_less_chance"
NO_CHOICE = "no data set has a choice with isotropy and NMSE"
UNDEFINED_REASONS = {
    "validation": "no data set whose candidates were all forecast on an earlier window",
    "largest_context": "candidates have one context",
}


def arrange_choices(values: Float[np.ndarray, "*orders dataset model condition"], kind: str) -> np.ndarray:
    """Return the table as [*orders, dataset, choice, candidate].

    Each choice is made among the candidates of its row.
    """
    order, candidates = AXES[kind]
    lead = values.ndim - len(order)
    ordered = np.transpose(values, (*range(lead), *(lead + axis for axis in order)))
    *leading, first, second = ordered.shape
    return ordered.reshape(*leading, *((first, second) if candidates == 1 else (1, first * second)))


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
    is_defined = np.isfinite(log_error)
    usable = (is_defined.sum(axis=-1) >= FEWEST) & (np.isfinite(score) | ~is_defined).all(axis=-1)
    candidate_scores = np.where(is_defined, score, -np.inf)
    top = is_defined & (candidate_scores == candidate_scores.max(axis=-1, keepdims=True, initial=-np.inf))
    error = np.where(is_defined, log_error, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        chosen = np.where(top, error, 0.0).sum(axis=-1) / top.sum(axis=-1)
    best = np.where(is_defined, log_error, np.inf).min(axis=-1, initial=np.inf)
    result = np.full(np.shape(chosen), np.nan)
    np.subtract(chosen, best, out=result, where=usable)
    # Rounding of the mean of tied candidates can make it negative.
    return np.where(result < 0, 0.0, result)


def regret_by_dataset(
    isotropy: Choices, log_error: Choices, earlier: Choices, contexts: Choices
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
    is_defined = np.isfinite(error)
    has_choice = is_defined.sum(axis=-1) >= FEWEST
    least = np.where(is_defined, contexts, np.inf).min(axis=-1, keepdims=True, initial=np.inf)
    differ = (is_defined & (contexts > least)).any(axis=-1, keepdims=True)
    scores = {
        "advised": isotropy,
        "validation": -earlier,
        "largest_context": np.where(differ, contexts, np.nan),
        "chance": np.zeros_like(error),
    }
    return {rule: _over_choices(regret(score, error), has_choice) for rule, score in scores.items()}


def compare(
    isotropy: Table, log_error: Table, earlier: Table, contexts: Table, options: SeededOptions, names: Sequence[str]
) -> Iterator[Row]:
    """Yield the rows of `inference` for the answer advice_regret, for each kind of choice with candidates.

    - model_and_context: both are chosen together; only where both differ.
    - model: the model is chosen, with the context fixed.
    - context: the context is chosen, with the model fixed.

    names: study and measure, which seed the random numbers. A data set counts once, with all its choices:
    data sets are resampled and flipped as wholes.
    """
    tables = isotropy, log_error, earlier, contexts
    for kind in AXES:
        blocks = [arrange_choices(values, kind) for values in tables]
        if not _has_choice(kind, *tables[:2], contexts):
            continue
        regrets = regret_by_dataset(*blocks)
        for rule, values in regrets.items():
            yield _mean_row(kind, f"regret_{rule}", rule, values, options, *names)
        for rule in RULES[1:]:
            difference = regrets["advised"] - regrets[rule]
            yield _mean_row(kind, f"advised_less_{rule}", rule, difference, options, *names)
        if kind != "context":
            yield _models_row(isotropy, log_error, kind, options, names)


def _has_choice(kind: str, isotropy: np.ndarray, log_error: np.ndarray, contexts: np.ndarray) -> bool:
    """Return whether a data set has such a choice; for both together, models and contexts must both differ.

    If only one of them differs, the joint choice is the same as a single one.
    """
    is_defined = complete(isotropy, log_error)
    models = is_defined.any(axis=2).sum(axis=1) >= FEWEST
    longest = np.where(is_defined, contexts, -np.inf).max(axis=(1, 2), initial=-np.inf)
    shortest = np.where(is_defined, contexts, np.inf).min(axis=(1, 2), initial=np.inf)
    if kind == "model_and_context":
        return bool((models & (longest > shortest)).any())
    return bool((arrange_choices(is_defined, kind).sum(axis=-1) >= FEWEST).any())


def _mean_row(
    kind: str, statistic: str, rule: str, values: Float[np.ndarray, " dataset"], options: SeededOptions, *names: str
) -> Row:
    """Return the row of a mean over data sets, with its interval.

    statistic: the regret of a rule, or the advice's regret minus a rule's with data sets paired. The difference is
    negative where the advice is better, and has a test.
    """
    defined = values[np.isfinite(values)]
    row = _row(kind, statistic, len(defined)) | {"estimate": float(defined.mean()) if len(defined) else math.nan}
    if not len(defined):
        return row | {"reason": UNDEFINED_REASONS.get(rule, NO_CHOICE)}
    is_regret = statistic.startswith("regret")
    spread = mean(defined, alpha=options.alpha)
    reason = spread.reason and f"no interval: {spread.reason}"
    row |= {"low": spread.low, "high": spread.high, "reason": reason}
    row["interval_method"] = None if reason else "Student's t over data sets"
    if is_regret:
        return row | {"reason": "; ".join(filter(None, (NO_TEST, reason)))}
    generator = options.generator(*names, kind, rule, "flips")
    test = flip_mean(defined, permutations=options.permutations, generator=generator)
    method = f"{test.description} of data sets' differences"
    return row | {"p": test.p, "p_smallest": test.smallest, "method": method}


def _models_row(
    isotropy: np.ndarray, log_error: np.ndarray, kind: str, options: SeededOptions, names: Sequence[str]
) -> Row:
    """Test the difference from chance against joint orders of the models' isotropy.

    A measure that ranks one model as isotropic everywhere beats chance on every data set where that model
    happens to be good. Sign flips of independent data sets count that as evidence; permutations of the models
    in all data sets at once do not.
    """
    generator = options.generator(*names, kind, "orders")
    row_orders, exact = orders_between(np.arange(isotropy.shape[1]), options.permutations, generator)
    step = max(1, CHUNK // max(1, isotropy.size))
    parts = [_by_dataset(isotropy, log_error, row_orders[n : n + step], kind) for n in range(0, len(row_orders), step)]
    by_dataset = np.concatenate(parts)
    test = evaluate_orders(mean_of_defined(by_dataset, axis=-1), exact, options.alpha)
    numbers = {"estimate": test.estimate, "p": test.p, "p_smallest": test.smallest}
    row = _row(kind, "advised_less_chance_models", int(np.isfinite(by_dataset[0]).sum())) | numbers
    return row | {"method": f"models in all data sets at once: {test.description}", "reason": NO_INTERVAL}


def _by_dataset(
    isotropy: np.ndarray, log_error: np.ndarray, row_orders: Int[np.ndarray, "order model"], kind: str
) -> Any:
    """Return the advice's regret minus chance's under each order, [order, dataset]."""
    x = arrange_choices(np.moveaxis(isotropy[:, row_orders], 1, 0), kind)
    y = np.broadcast_to(arrange_choices(log_error, kind), x.shape)
    error = np.where(complete(x, y), y, np.nan)
    has_choice = np.isfinite(error).sum(axis=-1) >= FEWEST
    return _over_choices(regret(x, error) - regret(np.zeros_like(x), error), has_choice)


def _over_choices(
    values: Float[np.ndarray, "*dataset choice"], has_choice: np.ndarray
) -> Float[np.ndarray, "*dataset"]:
    """Return the mean over the choices where `has_choice` is true, [*dataset].

    `has_choice` is true for choices with at least FEWEST candidates. NaN where there is no such choice, or where
    one of them is NaN.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(has_choice, values, 0).sum(axis=-1) / has_choice.sum(axis=-1))


def _row(kind: str, statistic: str, n: int) -> Row:
    names = {"answer": ANSWER, "grouping": kind, "block": "all", "statistic": statistic}
    return {**names, "n": n, "n_clusters": n}
