"""Two cuts in turn, each weighed by data: heads absorbed, then their matrices as thin factors.

An absorbed head keeps directions of its own, a thin factor those that all heads of a layer share: one finds what the
other cannot. How the budget is split between them is tried, and judged by the last hidden states.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.compression import truncation
from tasks.compression.budget import BudgetError
from tasks.compression.calibration import gather
from tasks.compression.choices import stored
from tasks.compression.fidelity import last_states, state_error
from tasks.models.low_rank import fitting

if TYPE_CHECKING:
    from tasks.compression.calibration import Moments
    from tasks.models.base import Family
    from tasks.models.types import Tokens

METHOD = "aware-both"
HEADS = (1.0, 1.5, 2.0, 3.0)  # what the first cut may leave of what absorbing can cut, over the budget


def compress(model: Family, budget: float, parts: Sequence[Tokens]) -> list[dict[str, Any]]:
    """Truncate in place to at most `budget` of the attention parameters; rows of both cuts as of `truncation`.

    parts: calibration windows, as `gather` takes them; a split is a pass over them for moments and one for states.
    Raises BudgetError where rank 1 of everything is beyond the budget, else as `truncation.compress` and `gather` do.
    """
    parts = [tokens for tokens in parts if len(tokens)]
    moments, refused, errors = gather(model, *parts), None, {}
    wanted = [last_states(model, tokens) for tokens in parts]
    for heads in splits(model, budget):
        trial = copy.deepcopy(model)
        try:
            _cut(trial, budget, heads, moments, parts)
        except BudgetError as error:
            refused = error
        else:
            found = [state_error(trial, *one) for one in zip(wanted, parts, strict=True)]
            errors[heads] = float(np.sqrt(np.mean(np.square(found))))
    if not errors:
        assert refused is not None
        raise refused
    rows = _cut(model, budget, min(errors, key=errors.__getitem__), moments, parts)
    model.compression = {"method": METHOD, "ranks": {"budget": budget}, **fitting(model.attentions())}
    return rows


def splits(model: Family, budget: float) -> list[float]:
    """Shares of all attention parameters that the first cut may leave, ascending.

    From the budget itself, where nothing is left to the second cut (method `aware`), to 1 (`aware-svd`).
    """
    layers = list(model.attentions())
    fixed = stored([layer for layer in layers if not layer.plain], ("q", "k")) / stored(layers)
    between = [fixed + (1 - fixed) * times * budget for times in HEADS]
    return sorted({budget, *(share for share in between if share < 1), 1.0})


def _cut(
    model: Family, budget: float, heads: float, moments: Mapping[str, Moments], parts: Sequence[Tokens]
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    whole = stored(list(model.attentions()))
    if heads < 1:
        rows += truncation.compress(model, {"method": "aware", "ranks": {"budget": heads}}, moments)
        moments = gather(model, *parts)
    left = min(1.0, budget * whole / stored(list(model.attentions())))
    return rows + truncation.compress(model, {"method": "aware-svd", "ranks": {"budget": left}}, moments)
