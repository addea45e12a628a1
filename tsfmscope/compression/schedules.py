"""Ranks of attention heads by layer: flow-of-ranks schedules, the guideline, flat controls.

Sources: Yu et al. 2026, section 6; docs/science.md, Compression for the differences of the authors' released code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from tsfmscope.models.common.attention import AttentionLayer

Rounding = Literal["ceiling", "power_of_two"]
KINDS = ("flow", "guideline", "flat")
# Keys of a "flow" schedule.
FLOW = {"first", "growth", "rounding", "origin", "cross_offset"}


def flow(
    first: float, growth: float, depth: int, *, rounding: Rounding = "ceiling", origin: int = 1, before: int = 0
) -> list[int]:
    """Return d̃_l = first (l - 1 + origin + before)^growth, rounded: dimensions of a head, layers 1..depth.

    Source: Yu et al. 2026, section 6. The paper's (1 + i)^growth is origin 1 with i = 0..depth - 1, and
    origin 2 with i = 1..depth. The released code uses k^growth with k = 1..depth, which is origin 1, and
    rounds to the nearest power of two by ratio.
    before: number of layers that count before the first one; in the released code's cross-attention, the
    layers of the encoder. ValueError if first, depth or origin is not positive, or before is negative.
    """
    if not (first > 0 and depth > 0 and origin > 0 and before >= 0):
        raise ValueError(
            f"flow: got first {first:g}, depth {depth}, origin {origin}, before {before}; "
            "expected positive numbers, and before at least 0"
        )
    raw = [first * (layer + before + origin) ** growth for layer in range(depth)]
    rounded = {"ceiling": math.ceil, "power_of_two": lambda value: 2 ** max(0, round(math.log2(value)))}[rounding]
    return [max(1, rounded(round(value, 9))) for value in raw]


def guideline(smallest: float, largest: float, depth: int, heads: int, *, bend: float = 0.5) -> list[int]:
    """Return the dimensions of a head by the guideline, ⌈r_l / heads⌉, for layers 1..depth.

    r_l = r_1 + (r_D - r_1) ((l - 1) / (D - 1))^bend, with D = depth, is the rank of a whole matrix.
    Source: Yu et al. 2026; docs/science.md, Compression.
    smallest: r_1, the median ε-rank of a sample of inputs (16 if unknown). largest: r_D, half the width.
    A stack of one layer gets r_1. ValueError unless 0 < smallest <= largest, and depth and heads are
    positive.
    """
    if not (0 < smallest <= largest and depth > 0 and heads > 0):
        raise ValueError(
            f"guideline: got ranks {smallest:g} to {largest:g}, depth {depth}, heads {heads}; "
            "expected positive numbers, and smallest at most largest"
        )
    places = [layer / (depth - 1) if depth > 1 else 0.0 for layer in range(depth)]
    return [math.ceil((smallest + (largest - smallest) * position**bend) / heads) for position in places]


def attention_widths(
    schedule: Mapping[str, Any], layers: Sequence[AttentionLayer], *, shared_factors: bool = False
) -> dict[str, int]:
    """Return the dimensions of a head by layer name; they may exceed the width of the model's heads.

    schedule: one of
    - {"flow": {first, growth, rounding, origin, cross_offset}};
    - {"guideline": {smallest, largest, bend}}, where the default of `largest` is half the input width of W_Q;
    - {"flat": rank}.
    layers: all attention layers of a model. Layers are counted from the first of their stack. With
    `cross_offset`, those of cross-attention continue the count of the first stack, as in the released code.
    shared_factors: ranks are of factors that all heads share. The guideline's ranks, which are of whole matrices, are
    then not divided by the number of heads.
    ValueError for any other schedule.
    """
    if len(schedule) != 1 or not set(schedule) <= set(KINDS):
        raise ValueError(f"ranks: got {sorted(schedule)}, expected exactly one of {', '.join(KINDS)}")
    depths: dict[str, int] = {}
    for layer in layers:
        depths[layer.stack] = max(depths.get(layer.stack, 0), layer.layer)
    return {
        layer.name: _of_layer(schedule, layer, depths[layer.stack], next(iter(depths.values())), shared_factors)
        for layer in layers
    }


def _of_layer(schedule: Mapping[str, Any], layer: AttentionLayer, depth: int, before: int, shared_factors: bool) -> int:
    """Return one layer's dimensions of a head.

    depth: layers of its stack. before: layers of the first stack, which cross-attention reads.
    """
    ((kind, options),) = schedule.items()
    if kind == "flat":
        return int(options)
    if kind == "guideline":
        largest = options.get("largest") or layer.linear("q").in_features / 2
        heads = 1 if shared_factors else layer.heads
        return guideline(options["smallest"], largest, depth, heads, bend=options["bend"])[layer.layer - 1]
    if unknown := set(options) - FLOW:
        raise ValueError(f"ranks flow: got {sorted(unknown)}, expected only {sorted(FLOW)}")
    return flow(
        options["first"],
        options["growth"],
        depth,
        rounding=options.get("rounding", "ceiling"),
        origin=options.get("origin", 1),
        before=before if layer.kind == "cross" and options.get("cross_offset", False) else 0,
    )[layer.layer - 1]
