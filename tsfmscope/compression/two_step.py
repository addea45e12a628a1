"""Activation-aware truncation in two steps: narrower heads first, then their matrices as two thin factors.

A narrower head keeps directions of its own, while a thin factor keeps directions that all heads of a layer
share. Several splits of the budget between the two steps are tried. The split is chosen by the error of the
last hidden states on calibration windows that were not used for the moments. The method REFIT adds a third
step, the least-squares fit of the output projections.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tsfmscope.compression import truncation
from tsfmscope.compression.budget import BudgetError
from tsfmscope.compression.calibration import gather
from tsfmscope.compression.candidates import count_parameters
from tsfmscope.compression.fidelity import last_states, window_errors
from tsfmscope.compression.options import Method, Ranks
from tsfmscope.compression.refit import fit_outputs
from tsfmscope.models.common.layers import compression_entries
from tsfmscope.statistics import means

if TYPE_CHECKING:
    from tsfmscope.compression.calibration import Moments
    from tsfmscope.compression.candidates import Candidate
    from tsfmscope.models.base import Family
    from tsfmscope.models.types import Tokens

REFIT = "activation-aware-refit"
# Method of the first step.
FIRST = "activation-aware"
# Candidates for the first step: share that it keeps of the parameters that it can remove, divided by
# the budget.
HEADS = (1.0, 1.5, 2.0, 3.0)


def compress(model: Family, method: Method, parts: Sequence[Tokens]) -> list[dict[str, Any]]:
    """Truncate a model in place to a budget of the attention parameters; return the rows of both steps.

    method: as in `truncation.compress`, with the rule `budget`. parts: calibration windows, as
    `gather` takes them. The split of the budget is chosen by `choose` on `folds` of the windows; the model is then
    truncated on all of them. The errors in the rows are those before the fit of the output projections.
    BudgetError if rank 1 of everything exceeds the budget; other errors as in
    `truncation.compress` and `gather`.
    """
    parts = [tokens for tokens in parts if len(tokens)]
    heads = _choose_split(model, method, parts)
    base = copy.deepcopy(model) if method.method == REFIT else None
    rows = apply_split(model, method, heads, gather(model, *parts), parts)
    if base is not None:
        fit_outputs(base, model, parts)
    model.compression = {**method.to_dict(), **compression_entries(model.attentions())}
    return rows


def splits(model: Family, budget: float) -> list[float]:
    """Return candidate shares of all attention parameters for the first step to keep, the simplest first.

    The first candidate is the budget itself, so that the second step does nothing (method `activation-aware`). The
    second is 1, so that the first step does nothing (`activation-aware-svd`). The others, ascending, take both steps.
    """
    layers = list(model.attentions())
    fixed = count_parameters([layer for layer in layers if not layer.plain], ("q", "k")) / count_parameters(layers)
    candidates = {fixed + (1 - fixed) * times * budget for times in HEADS}
    single = list(dict.fromkeys((budget, 1.0)))
    return single + sorted(share for share in candidates if share < 1 and share not in single)


def folds(parts: Sequence[Tokens]) -> list[tuple[list[Tokens], list[Tokens]]]:
    """Return two pairs of windows to fit and held-out windows; each holds out the windows that the other fits.

    Several data sets are split by data set, one data set by series, and one series by time. The list is empty
    if there is a single window, or none.
    """
    if not parts:
        return []
    if len(parts) > 1:
        first, second = list(parts[::2]), list(parts[1::2])
    else:
        (tokens,) = parts
        names = list(dict.fromkeys(tokens.series))
        order = np.array([names.index(name) for name in tokens.series])
        if len(names) == 1:
            order = np.argsort(np.argsort(tokens.origin, kind="stable"))
        is_first = order < (order.max() + 1) / 2
        if is_first.all():
            return []
        first, second = [tokens.take(np.flatnonzero(is_first))], [tokens.take(np.flatnonzero(~is_first))]
    return [(first, second), (second, first)]


def choose(errors: Mapping[float, Sequence[float]]) -> float:
    """Return the simplest candidate whose error is not significantly larger than the least error.

    errors: candidate -> held-out squared errors of the same units, the simplest candidate first. An error is
    significantly larger if the 95 % interval of the mean difference, Student's t over the units, lies above
    zero. Without any unit, the simplest candidate is returned.
    """
    simplest, *_ = errors
    if len(errors[simplest]) == 0:
        return simplest
    least = min(errors, key=lambda share: float(np.mean(errors[share])))

    def is_worse(share: float) -> bool:
        return means.mean(np.subtract(errors[share], errors[least])).low > 0

    return next(share for share in errors if not is_worse(share))


def apply_split(
    model: Family, method: Method, heads: float, moments: Mapping[str, Moments], parts: Sequence[Tokens],
    candidates: Sequence[Candidate] | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Take both steps at one split, in place; return their rows.

    heads: share of all attention parameters that the first step keeps. At 1 only the second step is
    taken; at the budget only the first. candidates: result of `first_candidates`, computed here if None.
    """
    budget, rows = method.ranks.rule[1], []
    total = count_parameters(list(model.attentions()))
    if heads < 1:
        first = method.model_copy(update={"method": FIRST, "ranks": Ranks(budget=heads)})
        if candidates is None:
            candidates = first_candidates(model, method, moments)
        rows += truncation.truncate(model, first, candidates)
        if heads == budget:
            return rows
        moments = gather(model, *parts)
    remaining = min(1.0, budget * total / count_parameters(list(model.attentions())))
    second = method.model_copy(update={"method": "activation-aware-svd", "ranks": Ranks(budget=remaining)})
    return rows + truncation.compress(model, second, moments)


def first_candidates(model: Family, method: Method, moments: Mapping[str, Moments]) -> list[Candidate]:
    """Return the candidates of the first step, which are the same for every split."""
    return truncation.model_candidates(model, method.model_copy(update={"method": FIRST}), moments)


def _choose_split(model: Family, method: Method, parts: Sequence[Tokens]) -> float:
    """Return the split that `choose` selects among the splits within the budget; BudgetError if there is none."""
    errors: dict[float, list[float]] = {heads: [] for heads in splits(model, method.ranks.rule[1])}
    budget_error: BudgetError | None = None
    for fit, held_out in folds(parts) or [(list(parts), [])]:
        moments = gather(model, *fit)
        candidates = first_candidates(model, method, moments) if min(errors, default=1) < 1 else None
        expected = [last_states(model, tokens) for tokens in held_out]
        for heads in list(errors):
            trial = copy.deepcopy(model)
            try:
                apply_split(trial, method, heads, moments, fit, candidates)
                if method.method == REFIT:
                    fit_outputs(model, trial, fit)
            except BudgetError as error:
                # Thin factors alone need the fewest parameters, and their error names the user's
                # budget.
                budget_error = error if heads == 1 else budget_error
                del errors[heads]
                continue
            for states, tokens in zip(expected, held_out, strict=True):
                errors[heads] += by_unit(window_errors(trial, states, tokens), tokens)
    if not errors:
        assert budget_error is not None, "thin factors alone are a candidate of every budget"
        raise budget_error
    return choose(errors)


def by_unit(errors: np.ndarray, tokens: Tokens) -> list[float]:
    """Return the mean squared error per series, or per window of a single series; NaN is left out."""
    names = np.array(tokens.series)
    if len(set(tokens.series)) == 1:
        names = np.arange(len(errors))
    is_finite = np.isfinite(errors)
    return [float(np.square(errors[is_finite & (names == name)]).mean()) for name in np.unique(names[is_finite])]
