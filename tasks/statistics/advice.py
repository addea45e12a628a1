"""What choosing a model or a context by isotropy costs against other ways to choose, in log error."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from tasks.statistics import bootstrap
from tasks.statistics.permutation import CHUNK, judge, orders
from tasks.statistics.ranks import complete
from tasks.statistics.signs import flip_mean
from tasks.statistics.study import Options, ends

ANSWER = "advice_regret"
RULES = ("advised", "validation", "largest_context", "chance")
AXES = {  # what is chosen -> the order of the axes of [dataset, model, condition], and how many are candidates
    "model_and_context": ((0, 1, 2), 2),
    "model": ((0, 2, 1), 1),
    "context": ((0, 1, 2), 1),
}
FEWEST = 2  # candidates that there must be to choose from
NO_TEST = "a regret is never below 0, so it has no p; its difference from the advice's has one"
NO_INTERVAL = "the interval is that of advised_less_chance"
NO_CHOICE = "no data set has a choice with isotropy and NMSE"
WHY = {
    "validation": "no data set whose candidates were all forecast on an earlier window",
    "largest_context": "candidates have one context",
}


def choices(values: Float[np.ndarray, "*orders dataset model condition"], what: str) -> np.ndarray:
    """The table as [*orders, dataset, choice, candidate]: every choice is made among the candidates of its row."""
    order, candidates = AXES[what]
    lead = values.ndim - len(order)
    moved = np.transpose(values, (*range(lead), *(lead + axis for axis in order)))
    *leading, first, second = moved.shape
    return moved.reshape(*leading, *((first, second) if candidates == 1 else (1, first * second)))


def regret(
    score: Float[np.ndarray, "*choice candidate"], log_error: Float[np.ndarray, "*choice candidate"]
) -> Float[np.ndarray, "*choice"]:
    """Log error of the candidate with the largest score, less that of the best in hindsight; never below 0.

    exp of it is how many times the least error one gets. Log, because errors of data sets differ by orders of
    magnitude: the mean over data sets is then a geometric mean of ratios, which no single data set rules, and it is
    the log NMSE that the correlations speak of, whose floor takes care of an error of 0. Candidates that share the
    largest score are chosen with equal chance: their mean, so that the order of candidates says nothing. A candidate
    without an error is none. NaN where fewer than two are left (nothing to choose), or where one of them has no score.
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
    return np.where(found < 0, 0.0, found)  # of candidates that tie, rounding of their mean


def of_datasets(
    isotropy: Float[np.ndarray, "dataset choice candidate"],
    log_error: Float[np.ndarray, "dataset choice candidate"],
    earlier: Float[np.ndarray, "dataset choice candidate"],
    contexts: Float[np.ndarray, "dataset choice candidate"],
) -> dict[str, Float[np.ndarray, " dataset"]]:
    """Regret of every rule, the mean over a data set's choices; NaN where one of its choices lacks the rule's.

    advised: the most isotropic. validation: the least log error on the earlier window. largest_context: by chance among
    those with the largest; NaN where all have it. chance: the mean over all, exact. Candidates are those with isotropy
    and error, for every rule: a rule that may choose among more has another best in hindsight.
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
    """Rows of `inference` of answer advice_regret, for each thing that can be chosen here.

    Both where models and contexts differ, the model (contexts as they are), the context (of each model). names: what
    the study and measure are called. A data set counts once, with its choices: it is what is drawn anew and flipped.
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
    """Whether a data set has such a choice; of both at once only where models and contexts differ, else it is one."""
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
    """The advice's regret less a rule's, data sets paired: negative where the advice is the better one."""
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
    """The same difference from chance against joint orders of the models' isotropy (science.md 10).

    A measure that finds one model isotropic everywhere beats chance on every data set where that model happens to be
    good: data sets flipped apart take that for evidence, models that change places in all of them at once do not.
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
    """The advice's regret less chance's under each order, [order, dataset]."""
    x = choices(np.moveaxis(isotropy[:, found], 1, 0), what)
    y = np.broadcast_to(choices(log_error, what), x.shape)
    error = np.where(complete(x, y), y, np.nan)
    many = np.isfinite(error).sum(axis=-1) >= FEWEST
    return _over_choices(regret(x, error) - regret(np.zeros_like(x), error), many)


def _over_choices(values: Float[np.ndarray, "*dataset choice"], many: np.ndarray) -> Float[np.ndarray, "*dataset"]:
    """Mean over what are choices, [*dataset]; NaN where there is none or one of them is NaN."""
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
