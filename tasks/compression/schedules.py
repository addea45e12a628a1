"""Ranks of attention heads by layer: the flow-of-ranks schedules, their roundings, the guideline, flat controls.

Sources: rank_structure.md section 6; science.md section 6 for what the authors' released code does otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Literal

Rounding = Literal["ceiling", "power_of_two"]
DECODERS = ("decoder",)  # stacks that have cross-attention, and ranks offset there


def flow(
    first: float, growth: float, depth: int, *, rounding: Rounding = "ceiling", origin: int = 1, before: int = 0
) -> list[int]:
    """Dimensions of a head, d̃_l = first (l - 1 + origin + i)^growth, of layers l = 1..depth, rounded.

    The paper's (1 + i) has i = 0..depth - 1 with origin 1 and i = 1..depth with origin 2; the released code has k =
    1..depth, origin 1, and the nearest power of two by ratio. before: layers that count before the first (of the
    encoder, in the released code's cross-attention). ValueError for what is not positive.
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


def by_layer(
    depths: Mapping[str, int], ranks: Mapping[str, list[int]], cross: list[int] | None, full: int
) -> Iterator[tuple[str, int]]:
    """Names of attention layers (STACK.LAYER.KIND) with their ranks, at most `full`.

    depths, ranks: by stack; cross: of the decoder's cross-attention, where there is one.
    """
    for stack, depth in depths.items():
        for layer in range(depth):
            yield f"{stack}.{layer + 1}.self", min(ranks[stack][layer], full)
            if stack in DECODERS and cross is not None:
                yield f"{stack}.{layer + 1}.cross", min(cross[layer], full)


def size_ratio(ranks: list[int], full: int) -> float:
    """Mean rank over the full width of a head: the printed size ratio of Fig. 7 and Tables 3 and 4."""
    return sum(min(rank, full) for rank in ranks) / (len(ranks) * full)
