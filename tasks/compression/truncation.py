"""Compress a trained model: ranks for the parts of its attention layers, and thinner weights of these ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.compression import clock
from tasks.compression.budget import BudgetError, allocate
from tasks.compression.choices import Choice, choices, stored
from tasks.compression.products import absorbed
from tasks.compression.schedules import of_attention
from tasks.errors import ModelError
from tasks.models.attention import AttentionLayer
from tasks.models.low_rank import factors, fitting, put_product
from tasks.ranks.spectrum import numerical_rank

if TYPE_CHECKING:
    from tasks.compression.calibration import Moments
    from tasks.models.base import Family

PRODUCTS = ("qk", "vo")  # parts whose ranks are widths of a head
SCHEDULES = ("flow", "flat")
RULES = ("epsilon", "budget", "time", "share", *SCHEDULES)


def compress(
    model: Family,
    method: Mapping[str, Any],
    moments: Mapping[str, Moments] | None = None,
    saved: clock.Saved | None = None,
) -> list[dict[str, Any]]:
    """Truncate the attention of a model in place; a row a layer and part with the rank that it has got.

    method: {"method": one of METHODS, "ranks": one rule}. Methods: "svd" cuts each matrix on its own, to two thin
    factors where they have fewer numbers, else dense; "joint" makes narrower heads, best for the products; "aware-svd"
    and "aware" are these, best on the moments; "project" puts W_Q, W_K, W_V on the inputs' leading directions.
    Rules: {"epsilon": ε}, values above ε of the largest (where heads share a width, the most that one has);
    {"share": s}, int(s * full); {"budget": b}, at most b of the model's attention parameters, by least summed squared
    relative error ("aware": relative to the layer's output, `products.output_shares`); {"time": t}, by the same error
    at most t of a forecast's seconds, of which `saved` says what narrower heads save, one width a layer; {"flat": r}
    and {"flow": {...}} (tasks/compression/schedules.py), dimensions of a head, for whole matrices times the heads.
    All heads of a layer have one rank. Rows: stack, layer, attention, part, full_width, rank, relative_error (in the
    method's own norm, root mean square over heads). The block `compression` of the config says the method and what fits
    the weights.
    Raises ModelError where a family does not say what its attention layers are or they hold factors already, ValueError
    for what a method cannot be.
    """
    layers = list(model.attentions())
    if not layers:
        raise ModelError(f"{model.name}: says nothing of its attention layers, so that none can be compressed")
    refuse_factors(layers, model.name)
    found = choices(method["method"], layers, moments, model.idle)
    ranks = _ranks(method["ranks"], found, layers, saved)
    for layer in layers:
        _apply(layer, [(one, rank) for one, rank in zip(found, ranks, strict=True) if one.layer is layer])
    model.compression = {"method": method["method"], "ranks": method["ranks"], **fitting(layers)}
    return [row for one, rank in zip(found, ranks, strict=True) for row in _rows(one, rank)]


def refuse_factors(layers: Iterable[AttentionLayer], model: str) -> None:
    """ModelError, naming `model`, where matrices are factors already: ranks and costs here are those of dense ones."""
    if found := factors(layers):
        name, ranks = next(iter(found.items()))
        raise ModelError(
            f"{model}: {', '.join(ranks)} of {name} are two thin factors already, of an earlier compression; compress "
            "the model that it was made from"
        )


def _rows(choice: Choice, rank: int) -> list[dict[str, Any]]:
    layer = choice.layer
    place = {"stack": layer.stack, "layer": layer.layer, "attention": layer.kind}
    return [
        {**place, "part": part, "full_width": choice.full, "rank": rank, "relative_error": choice.error(rank, index)}
        for index, part in enumerate(choice.parts)
    ]


def _ranks(
    rule: Mapping[str, Any], found: Sequence[Choice], layers: Sequence[AttentionLayer], saved: clock.Saved | None
) -> list[int]:
    """A rank of every choice."""
    if len(rule) != 1 or not set(rule) <= set(RULES):
        raise ValueError(f"ranks: got {dict(rule)}, expected one of {list(RULES)}")
    ((name, value),) = rule.items()
    if name == "budget":
        return _budgeted(value, found, layers)
    if name == "time":
        if saved is None:
            raise ValueError("ranks time: got no seconds, expected those that clock.measure says narrower heads save")
        return clock.within(value, found, saved)
    if name == "share" and not 0 < value <= 1:
        raise ValueError(f"ranks share: got {value}, expected above 0 and at most 1")
    if name in SCHEDULES:
        heads = of_attention(rule, layers)
        return [_scheduled(heads[one.layer.name], one, bounded=name == "flow") for one in found]
    return [_rank(name, value, one) for one in found]


def _rank(name: str, value: Any, choice: Choice) -> int:
    if name == "epsilon":
        return max(1, *(numerical_rank(_falling(one.values), value) for one in choice.factors))
    return max(1, int(round(value * choice.full, 9)))


def _scheduled(width: int, choice: Choice, *, bounded: bool) -> int:
    """The rank of heads of this width: of whole matrices times the heads. bounded: full where it would be beyond."""
    rank = width * (1 if choice.parts[0] in PRODUCTS else choice.layer.heads)
    if bounded:
        return min(rank, choice.full)
    if not 1 <= rank <= choice.full:
        raise ValueError(f"ranks flat: got {rank} for {choice.layer.name} {choice.parts}, expected 1 to {choice.full}")
    return rank


def _falling(values: np.ndarray) -> np.ndarray:
    """The largest from here on: those of a projection need not fall by themselves."""
    largest: np.ndarray = np.maximum.accumulate(values[::-1])[::-1]
    return largest


def _budgeted(share: float, found: Sequence[Choice], layers: Sequence[AttentionLayer]) -> list[int]:
    if not 0 < share <= 1:
        raise ValueError(f"ranks budget: got {share}, expected above 0 and at most 1")
    whole = stored(layers)
    fixed = whole - sum(one.before for one in found)  # biases, and what the method leaves as it is
    curves = [one.curve() for one in found]
    try:
        return allocate(curves, int(share * whole) - fixed)
    except BudgetError as error:
        least = (fixed + sum(int(one.costs[0]) for one in curves)) / whole
        raise BudgetError(f"ranks budget: got {share}, expected at least {least:.4f}, which rank 1 costs") from error


def _apply(layer: AttentionLayer, chosen: Sequence[tuple[Choice, int]]) -> None:
    """Write a layer at the ranks of its parts; a part at its full rank stays as it is."""
    less = [(choice, rank) for choice, rank in chosen if rank < choice.full]
    joint = {one.parts[0]: (one.factors, [rank] * len(one.factors)) for one, rank in less if one.parts[0] in PRODUCTS}
    if joint:
        layer.write(absorbed(layer.read(), joint.get("qk"), joint.get("vo")))
        return
    for choice, rank in less:
        for what, one in zip(choice.parts, choice.factors, strict=True):
            put_product(layer, what, *one.cut(rank))
