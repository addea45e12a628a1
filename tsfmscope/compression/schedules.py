"""Ranks of attention heads by layer (flow-of-ranks schedules, the guideline, flat controls), and trainable factors.

Sources: Yu et al. 2026, section 6; docs/science.md, Compression for the differences of the authors' released code.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch.nn.utils import parametrize

from tsfmscope.compression.candidates import plain_factors
from tsfmscope.compression.options import FlowRanks, GuidelineRanks
from tsfmscope.models.common.attention import NAMES

if TYPE_CHECKING:
    from tsfmscope.models.base import Family
    from tsfmscope.models.common.attention import AttentionLayer

Rounding = Literal["ceiling", "power_of_two"]


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
    schedule: FlowRanks | GuidelineRanks | int, layers: Sequence[AttentionLayer], *, shared_factors: bool = False
) -> dict[str, int]:
    """Return the dimensions of a head by layer name; they may exceed the width of the model's heads.

    schedule: an int is the same rank for every layer. The default of the guideline's largest rank is half the input
    width of W_Q. layers: all attention layers of a model. Layers are counted from the first of their stack. With
    `cross_offset`, those of cross-attention continue the count of the first stack, as in the released code.
    shared_factors: ranks are of factors that all heads share. The guideline's ranks, which are of whole matrices, are
    then not divided by the number of heads.
    """
    depths: dict[str, int] = {}
    for layer in layers:
        depths[layer.stack] = max(depths.get(layer.stack, 0), layer.layer)
    before = next(iter(depths.values()), 0)
    widths = {}
    for layer in layers:
        depth = depths[layer.stack]
        if isinstance(schedule, int):
            widths[layer.name] = schedule
            continue
        if isinstance(schedule, GuidelineRanks):
            largest = schedule.largest or layer.linear("q").in_features / 2
            heads = 1 if shared_factors else layer.heads
            by_layer = guideline(schedule.smallest, largest, depth, heads, bend=schedule.bend)
        else:
            by_layer = flow(
                schedule.first, schedule.growth, depth, rounding=schedule.rounding, origin=schedule.origin,
                before=before if layer.kind == "cross" and schedule.cross_offset else 0,
            )  # fmt: skip
        widths[layer.name] = by_layer[layer.layer - 1]
    return widths


class Product(torch.nn.Module):
    """Parametrization W = first @ second, with parameters first [out, r] and second [r, in]."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """Return the matrix W [out, in] that the layer uses."""
        return first @ second

    def right_inverse(self, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return factors of equal norm of the best matrix of this rank, from a float64 SVD."""
        first, second = plain_factors(weight.detach().double().cpu().numpy()).truncate(self.rank)
        return torch.from_numpy(first).to(weight), torch.from_numpy(second).to(weight)


def factorise(family: Family, ranks: Mapping[str, int]) -> None:
    """Make W_Q, W_K, W_V and W_O of every layer a trainable product of two factors, with the layer's rank.

    ranks: layer name -> rank. A layer that is missing stays whole, and so does a matrix whose factors would
    have no fewer numbers.
    Source: Yu et al. 2026, eq. 19. Deviation: the paper has Q, K and V only; for W_O the heads share a space
    of outputs.
    """
    for attention in family.attentions():
        if (rank := ranks.get(attention.name)) is None:
            continue
        for linear in _linears(attention):
            rows, columns = linear.weight.shape
            if rank * (rows + columns) < rows * columns:
                parametrize.register_parametrization(linear, "weight", Product(rank))


def merge_factors(family: Family) -> Family:
    """Return a copy with ordinary matrices for any loader; the family itself if it has no factors."""
    if not any(
        parametrize.is_parametrized(linear) for attention in family.attentions() for linear in _linears(attention)
    ):
        return family
    merged = copy.copy(family)
    merged.network = copy.deepcopy(family.network)
    for attention in merged.attentions():
        # This makes new Linears, since a deep copy shares the class that torch gave to the
        # parametrised one.
        attention.write(attention.read())
    return merged


def _linears(attention: AttentionLayer) -> list[torch.nn.Linear]:
    return [attention.linear(name) for name in NAMES]
