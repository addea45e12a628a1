"""Ranks of attention heads by layer: the flow-of-ranks schedules, their roundings, the guideline, flat controls.

Sources: rank_structure.md section 6; science.md section 6 for what the authors' released code does otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from tasks.models.attention import AttentionLayer

Rounding = Literal["ceiling", "power_of_two"]
KINDS = ("flow", "guideline", "flat")
FLOW = {"first", "growth", "rounding", "origin", "cross_offset"}  # what a flow says


def flow(
    first: float, growth: float, depth: int, *, rounding: Rounding = "ceiling", origin: int = 1, before: int = 0
) -> list[int]:
    """Dimensions of a head, d̃_l = first (l - 1 + origin + before)^growth, of layers l = 1..depth, rounded.

    The paper's (1 + i)^growth has i = 0..depth - 1 with origin 1 and i = 1..depth with origin 2; the released code has
    k^growth, k = 1..depth, which is origin 1, and the nearest power of two by ratio. before: layers that count before
    the first (of the encoder, in the released code's cross-attention). ValueError for what is not positive.
    """
    if not (first > 0 and depth > 0 and origin > 0 and before >= 0):
        raise ValueError(
            f"flow: got first {first:g}, depth {depth}, origin {origin}, before {before}; must be positive"
        )
    raw = [first * (layer + before + origin) ** growth for layer in range(depth)]
    rounded = {"ceiling": math.ceil, "power_of_two": lambda value: 2 ** max(0, round(math.log2(value)))}[rounding]
    return [max(1, rounded(round(value, 9))) for value in raw]


def guideline(smallest: float, largest: float, depth: int, heads: int, *, bend: float = 0.5) -> list[int]:
    """Dimensions of a head for r_l = r_1 + (r_D - r_1) ((l - 1) / (D - 1))^bend, a rank of whole matrices, over heads.

    smallest r_1: the median ε-rank of a sample of inputs (16 if unknown); largest r_D: half the width. A stack of one
    layer has r_1.
    """
    if not (0 < smallest <= largest and depth > 0 and heads > 0):
        raise ValueError(f"guideline: got ranks {smallest:g} to {largest:g}, depth {depth}, heads {heads}")
    places = [layer / (depth - 1) if depth > 1 else 0.0 for layer in range(depth)]
    return [math.ceil((smallest + (largest - smallest) * place**bend) / heads) for place in places]


def flat(rank: int, depth: int) -> list[int]:
    """The same for every layer: the control."""
    return [rank] * depth


def of_attention(
    schedule: Mapping[str, Any], layers: Sequence[AttentionLayer], *, shared: bool = False
) -> dict[str, int]:
    """Dimensions of a head of every attention layer by name, of all layers of a model; no head bounds them here.

    schedule: {"flow": {first, growth, rounding, origin, cross_offset}}, {"guideline": {smallest, largest, bend}}, the
    largest half the stack's width where it is not said, or {"flat": rank}. A stack's layers count from its first; where
    flow has `cross_offset`, those of cross-attention go on from the first stack's last, as in the released code.
    shared: ranks of what all heads share: the guideline's, which are of whole matrices, are not divided by the heads.
    ValueError for any other schedule.
    """
    if len(schedule) != 1 or not set(schedule) <= set(KINDS):
        raise ValueError(f"ranks: got {sorted(schedule)}, expected one of {', '.join(KINDS)}")
    depths: dict[str, int] = {}
    for layer in layers:
        depths[layer.stack] = max(depths.get(layer.stack, 0), layer.layer)
    return {
        layer.name: _of_layer(schedule, layer, depths[layer.stack], next(iter(depths.values())), shared)
        for layer in layers
    }


def _of_layer(schedule: Mapping[str, Any], layer: AttentionLayer, depth: int, before: int, shared: bool) -> int:
    """depth: of its stack; before: layers of the stack that cross-attention asks."""
    ((kind, said),) = schedule.items()
    if kind == "flat":
        return flat(said, depth)[layer.layer - 1]
    if kind == "guideline":
        largest = said.get("largest") or layer.linear("q").in_features / 2
        heads = 1 if shared else layer.heads
        return guideline(said["smallest"], largest, depth, heads, bend=said["bend"])[layer.layer - 1]
    if unknown := set(said) - FLOW:
        raise ValueError(f"ranks flow: got {sorted(unknown)}, expected only {sorted(FLOW)}")
    return flow(
        said["first"],
        said["growth"],
        depth,
        rounding=said.get("rounding", "ceiling"),
        origin=said.get("origin", 1),
        before=before if layer.kind == "cross" and said.get("cross_offset", False) else 0,
    )[layer.layer - 1]


def size_ratio(ranks: list[int], full: int) -> float:
    """Mean rank over the full width of a head: the printed size ratio of Fig. 7 and Tables 3 and 4."""
    return sum(min(rank, full) for rank in ranks) / (len(ranks) * full)
