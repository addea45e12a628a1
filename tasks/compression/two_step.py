"""Activation-aware truncation in two steps: narrower heads first, then their matrices as two thin factors.

A narrower head keeps directions of its own, while a thin factor keeps directions that all heads of a layer
share. Several splits of the budget between the two steps are tried. The split is chosen by the error of the
last hidden states on calibration windows that were not used for the moments.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tsfmscope.tasks.compression import truncation
from tsfmscope.tasks.compression.budget import BudgetError
from tsfmscope.tasks.compression.calibration import gather
from tsfmscope.tasks.compression.candidates import stored
from tsfmscope.tasks.compression.fidelity import last_states, window_errors
from tsfmscope.tasks.models.common.low_rank import compression_entries
from tsfmscope.tasks.statistics import means

if TYPE_CHECKING:
    from tsfmscope.tasks.compression.calibration import Moments
    from tsfmscope.tasks.models.base import Family
    from tsfmscope.tasks.models.types import Tokens

METHOD = "activation-aware-2step"
# candidates for the first step: the share that it keeps of the parameters that it can remove, over
# the budget
HEADS = (1.0, 1.5, 2.0, 3.0)


class Fold(NamedTuple):
    """Calibration windows for the moments (`fitted`), and other windows for the error (`held_out`)."""

    fitted: list[Tokens]
    held_out: list[Tokens]


def compress(model: Family, method: Mapping[str, Any], parts: Sequence[Tokens]) -> list[dict[str, Any]]:
    """Truncate a model in place to a budget of the attention parameters; return the rows of both steps.

    method: as in `truncation.compress`, with the rule `budget`. parts: calibration windows, as `gather` takes
    them. The split of the budget is chosen by `choose` on `folds` of the windows; the model is then truncated
    on all of them. BudgetError if rank 1 of everything exceeds the budget; other errors as in
    `truncation.compress` and `gather`.
    """
    parts = [tokens for tokens in parts if len(tokens)]
    heads = _chosen(model, method, parts)
    rows = cut(model, method, heads, gather(model, *parts), parts)
    model.compression = {**method, "method": METHOD, **compression_entries(model.attentions())}
    return rows


def splits(model: Family, budget: float) -> list[float]:
    """Return candidate shares of all attention parameters for the first step to keep, the simplest first.

    The first candidate is the budget itself, so that the second step does nothing (method `activation-aware`). The
    second is 1, so that the first step does nothing (`activation-aware-svd`). The others, ascending, take both steps.
    """
    layers = list(model.attentions())
    fixed = stored([layer for layer in layers if not layer.plain], ("q", "k")) / stored(layers)
    between = {fixed + (1 - fixed) * times * budget for times in HEADS}
    single = list(dict.fromkeys((budget, 1.0)))
    return single + sorted(share for share in between if share < 1 and share not in single)


def folds(parts: Sequence[Tokens]) -> list[Fold]:
    """Return two folds, each of which holds out the windows that the other one fits.

    Several data sets are split by data set, one data set by series, and one series by time. The list is empty
    if there is a single window.
    """
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
    return [Fold(first, second), Fold(second, first)]


def choose(errors: Mapping[float, Sequence[float]]) -> float:
    """Return the simplest candidate whose error is not significantly larger than the least one.

    errors: candidate -> held-out squared errors of the same units, the simplest candidate first. An error is
    significantly larger if the 95 % interval of the mean difference, Student's t over the units, lies above
    zero. Without any unit, the simplest candidate is returned.
    """
    simplest, *_ = errors
    if len(errors[simplest]) == 0:
        return simplest
    least = min(errors, key=lambda one: float(np.mean(errors[one])))

    def is_worse(candidate: float) -> bool:
        return means.mean(np.subtract(errors[candidate], errors[least])).low > 0

    return next(one for one in errors if not is_worse(one))


def cut(
    model: Family, method: Mapping[str, Any], heads: float, moments: Mapping[str, Moments], parts: Sequence[Tokens]
) -> list[dict[str, Any]]:
    """Make both steps at one split, in place; return their rows.

    heads: share of all attention parameters that the first step keeps. At 1 only the second step is made; at
    the budget only the first.
    """
    budget, rows = method["ranks"]["budget"], []
    whole = stored(list(model.attentions()))
    if heads < 1:
        first = {**method, "method": "activation-aware", "ranks": {"budget": heads}}
        rows += truncation.compress(model, first, moments)
        if heads == budget:
            return rows
        moments = gather(model, *parts)
    left = min(1.0, budget * whole / stored(list(model.attentions())))
    second = {**method, "method": "activation-aware-svd", "ranks": {"budget": left}}
    return rows + truncation.compress(model, second, moments)


def _chosen(model: Family, method: Mapping[str, Any], parts: Sequence[Tokens]) -> float:
    """Return the split that `choose` selects of those that the budget allows; BudgetError if there is none."""
    errors: dict[float, list[float]] = {heads: [] for heads in splits(model, method["ranks"]["budget"])}
    refused: BudgetError | None = None
    for fitted, held_out in folds(parts) or [Fold(list(parts), [])]:
        moments = gather(model, *fitted)
        wanted = [last_states(model, tokens) for tokens in held_out]
        for heads in list(errors):
            trial = copy.deepcopy(model)
            try:
                cut(trial, method, heads, moments, fitted)
            except BudgetError as error:
                # Thin factors alone need the fewest parameters, and their error names the user's
                # budget.
                refused = error if heads == 1 else refused
                del errors[heads]
                continue
            for states, tokens in zip(wanted, held_out, strict=True):
                errors[heads] += _by_unit(window_errors(trial, states, tokens), tokens)
    if not errors:
        assert refused is not None, "thin factors alone are a candidate of every budget"
        raise refused
    return choose(errors)


def _by_unit(errors: np.ndarray, tokens: Tokens) -> list[float]:
    """Return the mean squared error per series, or per window of a single series; NaN is left out."""
    names = np.array(tokens.series)
    if len(set(tokens.series)) == 1:
        names = np.arange(len(errors))
    kept = np.isfinite(errors)
    return [float(np.square(errors[kept & (names == name)]).mean()) for name in np.unique(names[kept])]
