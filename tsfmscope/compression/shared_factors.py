"""Trainable low-rank projections with one sketch for all heads (Yu et al. 2026, eq. 19)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch.nn.utils import parametrize

from tsfmscope.compression.products import plain_factors
from tsfmscope.models.common.attention import NAMES

if TYPE_CHECKING:
    from tsfmscope.models.base import Family
    from tsfmscope.models.common.attention import AttentionLayer


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
