"""Two cuts in turn, each weighed by data: heads absorbed, then their matrices as thin factors.

An absorbed head keeps directions of its own, a thin factor those that all heads of a layer share: one finds what the
other cannot. How the budget is split between them is tried, and judged by the last hidden states.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.compression import truncation
from tasks.compression.budget import BudgetError
from tasks.compression.calibration import gather
from tasks.compression.choices import stored
from tasks.compression.fidelity import state_error
from tasks.models.low_rank import fitting

if TYPE_CHECKING:
    from tasks.compression.calibration import Moments
    from tasks.models.base import Family
    from tasks.models.types import Tokens

METHOD = "aware-both"
HEADS = (1.0, 1.5, 2.0, 3.0, math.inf)  # what heads may keep in the first cut, over the budget; inf: all


def compress(model: Family, budget: float, parts: Sequence[Tokens]) -> list[dict[str, Any]]:
    """Truncate in place to at most `budget` of the attention parameters; rows of both cuts as of `truncation`.

    parts: calibration windows, as `gather` takes them; each split is one pass over them, and one for its states.
    Raises ValueError where rank 1 of everything is beyond the budget, else as `truncation.compress` and `gather` do.
    """
    moments, refused, errors = gather(model, *parts), None, {}
    for times in HEADS:
        trial = copy.deepcopy(model)
        try:
            _cut(trial, budget, times, moments, parts)
        except BudgetError as error:
            refused = error
        else:
            errors[times] = _error(trial, model, parts)
    if not errors:
        assert refused is not None
        raise refused
    rows = _cut(model, budget, min(errors, key=errors.__getitem__), moments, parts)
    model.compression = {"method": METHOD, "ranks": {"budget": budget}, **fitting(model.attentions())}
    return rows


def _cut(
    model: Family, budget: float, times: float, moments: Mapping[str, Moments], parts: Sequence[Tokens]
) -> list[dict[str, Any]]:
    whole = stored(list(model.attentions()))
    heads, rows = _share(model, times * budget), []
    if heads < 1:
        rows += truncation.compress(model, {"method": "aware", "ranks": {"budget": heads}}, moments)
        moments = gather(model, *parts)
    left = min(1.0, budget * whole / stored(list(model.attentions())))
    return rows + truncation.compress(model, {"method": "aware-svd", "ranks": {"budget": left}}, moments)


def _share(model: Family, kept: float) -> float:
    """Of all attention parameters, with the share `kept` of those that absorbing can cut."""
    layers = list(model.attentions())
    fixed = stored([layer for layer in layers if not layer.plain], ("q", "k")) / stored(layers)
    return fixed + (1 - fixed) * min(1.0, kept)


def _error(trial: Family, base: Family, parts: Sequence[Tokens]) -> float:
    """Relative error of the last states, root mean square over the parts."""
    found = [state_error(trial, base, tokens) for tokens in parts if len(tokens)]
    return float(np.sqrt(np.mean(np.square(found))))
