"""Truncation of a trained model: ranks for parts of its attention layers, and weights of these ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tsfmscope.tasks.compression import timing
from tsfmscope.tasks.compression.budget import BudgetError, allocate, allocate_by_tolerance
from tsfmscope.tasks.compression.candidates import Candidate, choices, inert, stored
from tsfmscope.tasks.compression.products import absorbed
from tsfmscope.tasks.compression.schedules import of_attention
from tsfmscope.tasks.errors import ModelError
from tsfmscope.tasks.models.common.attention import AttentionLayer
from tsfmscope.tasks.models.common.low_rank import compression_entries, factors, put_product
from tsfmscope.tasks.ranks.spectrum import numerical_rank

if TYPE_CHECKING:
    from tsfmscope.tasks.compression.calibration import Moments
    from tsfmscope.tasks.models.base import Family

# parts whose ranks are widths of a head
PRODUCTS = ("qk", "vo")
SCHEDULES = ("flow", "flat")
RULES = ("epsilon", "budget", "time", "share", *SCHEDULES)


def compress(
    model: Family,
    method: Mapping[str, Any],
    moments: Mapping[str, Moments] | None = None,
    saved: timing.Saved | None = None,
) -> list[dict[str, Any]]:
    """Truncate the attention of a model in place; return one row per layer and part, with its rank.

    method: {"method": one of METHODS, "ranks": one rule, "univariate": optional, as in `choices.inert`}.

    Methods:
    - "svd": truncates each matrix on its own, to two thin factors if they have fewer numbers; else it stays
      dense.
    - "joint": makes narrower heads, with the least error of the products W_Qᵀ W_K and W_O W_V.
    - "activation-aware-svd", "activation-aware": "svd" and "joint" with the least error on calibration data,
      given as `moments`.
    - "project": projects W_Q, W_K and W_V on the leading directions of their inputs.

    Rules:
    - {"epsilon": ε}: number of singular values above ε times the largest; the maximum over heads that share a
      width.
    - {"share": s}: int(s * full), at least 1.
    - {"budget": b}: at most b times the model's attention parameters, with the least sum of squared relative
      errors. "activation-aware" takes errors relative to the layer's output (`products.output_shares`); "svd" takes the
      smallest ε for all matrices (`allocate_by_tolerance`). Matrices without effect (`choices.inert`) get
      rank 1.
    - {"time": t}: the same error, within t times the seconds of a forecast. `saved` contains the seconds that
      narrower heads save. All parts of a layer get one width.
    - {"flat": r}, {"flow": {...}}: dimensions of a head, from tasks/compression/schedules.py; for whole
      matrices, times the number of heads.

    All heads of a layer have one rank. Rows: stack, layer, attention, part, full_width, rank, relative_error
    (in the method's own norm, root mean square over heads). The block `compression` of the config records the
    method and the shapes of the weights.
    ModelError if a family does not describe its attention layers, or if they contain factors already.
    ValueError for an invalid method or rule.
    """
    layers = list(model.attentions())
    if not layers:
        raise ModelError(f"{model.name}: says nothing of its attention layers, so that none can be compressed")
    refuse_factors(layers, model.name)
    found = choices(method["method"], layers, moments, inert(model, univariate=method.get("univariate", False)))
    ranks = _ranks(method, found, layers, saved)
    for layer in layers:
        _apply(layer, [(one, rank) for one, rank in zip(found, ranks, strict=True) if one.layer is layer])
    model.compression = {**method, **compression_entries(layers)}
    return [row for one, rank in zip(found, ranks, strict=True) for row in _rows(one, rank)]


def refuse_factors(layers: Iterable[AttentionLayer], model: str) -> None:
    """Raise ModelError, with the name `model`, if matrices are thin factors already.

    The ranks and costs of this module assume dense matrices.
    """
    if found := factors(layers):
        name, ranks = next(iter(found.items()))
        raise ModelError(
            f"{model}: {', '.join(ranks)} of {name} are two thin factors already, of an earlier compression; compress "
            "the model that it was made from"
        )


def _rows(choice: Candidate, rank: int) -> list[dict[str, Any]]:
    layer = choice.layer
    place = {"stack": layer.stack, "layer": layer.layer, "attention": layer.kind}
    return [
        {**place, "part": part, "full_width": choice.full, "rank": rank, "relative_error": choice.error(rank, index)}
        for index, part in enumerate(choice.parts)
    ]


def _ranks(
    method: Mapping[str, Any], found: Sequence[Candidate], layers: Sequence[AttentionLayer], saved: timing.Saved | None
) -> list[int]:
    """Return one rank per choice."""
    rule = method["ranks"]
    if len(rule) != 1 or not set(rule) <= set(RULES):
        raise ValueError(f"ranks: got {dict(rule)}, expected one of {list(RULES)}")
    ((name, value),) = rule.items()
    if name == "budget":
        return _budgeted(value, found, layers, by_tolerance=method["method"] == "svd")
    if name == "time":
        if saved is None:
            raise ValueError("ranks time: got no seconds, expected those that narrower heads save (timing.measure)")
        return timing.within(value, found, saved)
    if name == "share" and not 0 < value <= 1:
        raise ValueError(f"ranks share: got {value}, expected above 0 and at most 1")
    if name in SCHEDULES:
        heads = of_attention(rule, layers)
        return [_scheduled(heads[one.layer.name], one, bounded=name == "flow") for one in found]
    return [_rank(name, value, one) for one in found]


def _rank(name: str, value: Any, choice: Candidate) -> int:
    if name == "epsilon":
        return max(1, *(numerical_rank(_falling(one.values), value) for one in choice.factors))
    return max(1, int(round(value * choice.full, 9)))


def _scheduled(width: int, choice: Candidate, *, bounded: bool) -> int:
    """Return the rank for heads of this width; whole matrices get the width times the number of heads.

    bounded: a rank beyond the full rank becomes the full rank; otherwise it raises ValueError.
    """
    rank = width * (1 if choice.parts[0] in PRODUCTS else choice.layer.heads)
    if bounded:
        return min(rank, choice.full)
    if not 1 <= rank <= choice.full:
        raise ValueError(f"ranks flat: got {rank} for {choice.layer.name} {choice.parts}, expected 1 to {choice.full}")
    return rank


def _falling(values: np.ndarray) -> np.ndarray:
    """Return the maximum of each value and all later ones, since a projection's values need not decrease."""
    largest: np.ndarray = np.maximum.accumulate(values[::-1])[::-1]
    return largest


def _budgeted(
    share: float, found: Sequence[Candidate], layers: Sequence[AttentionLayer], *, by_tolerance: bool
) -> list[int]:
    """Return ranks that keep at most this share of all attention parameters.

    by_tolerance: one tolerance for all matrices, as in Yu et al. 2026, Table 2.
    """
    if not 0 < share <= 1:
        raise ValueError(f"ranks budget: got {share}, expected above 0 and at most 1")
    whole = stored(layers)
    # biases, and matrices that the method does not change
    fixed = whole - sum(one.before for one in found)
    left = int(share * whole) - fixed
    try:
        if by_tolerance:
            return allocate_by_tolerance([one.spectrum() for one in found], left)
        return allocate([one.curve() for one in found], left)
    except BudgetError as error:
        least = (fixed + sum(int(one.costs[0]) for one in found)) / whole
        raise BudgetError(f"ranks budget: got {share}, expected at least {least:.4f}, which rank 1 costs") from error


def _apply(layer: AttentionLayer, chosen: Sequence[tuple[Candidate, int]]) -> None:
    """Write a layer at the ranks of its parts; a part at its full rank stays unchanged."""
    less = [(choice, rank) for choice, rank in chosen if rank < choice.full]
    joint = {one.parts[0]: (one.factors, [rank] * len(one.factors)) for one, rank in less if one.parts[0] in PRODUCTS}
    if joint:
        layer.write(absorbed(layer.read(), joint.get("qk"), joint.get("vo")))
        return
    for choice, rank in less:
        for what, one in zip(choice.parts, choice.factors, strict=True):
            put_product(layer, what, *one.cut(rank))
