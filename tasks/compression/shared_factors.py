"""Projections of low rank whose sketch all heads share (rank_structure.md eq. 19), for training from random weights."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch.nn.utils import parametrize

from tasks.compression.matrices import plain
from tasks.models.attention import NAMES

if TYPE_CHECKING:
    from tasks.models.attention import AttentionLayer
    from tasks.models.base import Family


class Product(torch.nn.Module):
    """W = first @ second: the parameters are the two factors, first [out, r] and second [r, in]."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """The matrix that the layer uses."""
        return first @ second

    def right_inverse(self, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Factors of equal norm of the best matrix of the rank, from a float64 SVD."""
        first, second = plain(weight.detach().double().cpu().numpy()).cut(self.rank)
        return torch.from_numpy(first).to(weight), torch.from_numpy(second).to(weight)


def factorise(family: Family, ranks: Mapping[str, int]) -> None:
    """Train every W_Q, W_K, W_V, W_O of a layer as a product of its rank; none, or one that saves nothing: it is whole.

    The paper writes eq. 19 for Q, K and V; of W_O it is the space of outputs that the heads share.
    """
    for attention in family.attentions():
        if (rank := ranks.get(attention.name)) is None:
            continue
        for linear in _linears(attention):
            rows, columns = linear.weight.shape
            if rank * (rows + columns) < rows * columns:
                parametrize.register_parametrization(linear, "weight", Product(rank))


def multiplied_out(family: Family) -> Family:
    """The family with ordinary matrices, as any loader reads them; itself where none is factorised."""
    if not any(parametrize.is_parametrized(linear) for one in family.attentions() for linear in _linears(one)):
        return family
    whole = copy.copy(family)
    whole.network = copy.deepcopy(family.network)
    for attention in whole.attentions():
        attention.write(attention.read())  # into new Linears: a copy shares torch's class of the parametrised one
    return whole


def _linears(attention: AttentionLayer) -> list[torch.nn.Linear]:
    return [attention.linear(what) for what in NAMES]
