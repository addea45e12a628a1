"""Layers of networks that we wrote, factored Linears, and Linears that multiply in bfloat16."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from tsfmscope.defaults import PRECISION, PRECISIONS
from tsfmscope.errors import ModelError
from tsfmscope.models.common.attention import BLOCK, NAMES, AttentionLayer, make_linear, shapes


class PlacedModule(nn.Module):
    """Network that states the device of its weights."""

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.parameters()).device


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last axis, x / sqrt(mean(x^2) + eps), with or without a weight."""

    def __init__(self, width: int, eps: float, has_weight: bool = True) -> None:
        super().__init__()
        self.eps = eps
        self.register_parameter("weight", nn.Parameter(torch.ones(width)) if has_weight else None)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        normed = states * torch.rsqrt(states.square().mean(dim=-1, keepdim=True) + self.eps)
        if self.weight is not None:
            normed = normed * cast(torch.Tensor, self.weight)
        return normed


def split_heads(projected: torch.Tensor, heads: int) -> torch.Tensor:
    """Return [B, T, h * d_h] as [B, h, T, d_h]."""
    split: torch.Tensor = projected.unflatten(-1, (heads, -1)).transpose(1, 2)
    return split


def join_heads(heads: torch.Tensor) -> torch.Tensor:
    """Return [B, h, T, d_h] as [B, T, h * d_h]."""
    joined: torch.Tensor = heads.transpose(1, 2).flatten(-2)
    return joined


def rotate(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Return heads [..., T, d_h], rotated by their position; coordinate i is paired with i + d_h / 2."""
    first, second = heads.chunk(2, dim=-1)
    return heads * cos + torch.cat((-second, first), dim=-1) * sin


class LowRank(nn.Module):
    """Linear map x -> wide (narrow x) + bias, whose weight is a product of rank at most `rank`."""

    def __init__(self, columns: int, rows: int, rank: int, *, bias: bool, **like: Any) -> None:
        """Make factors of a weight [rows, columns]; like: device and dtype."""
        super().__init__()
        self.in_features, self.out_features, self.rank = columns, rows, rank
        self.narrow = nn.Linear(columns, rank, bias=False, **like)
        self.wide = nn.Linear(rank, rows, bias=bias, **like)

    @classmethod
    def like(cls, old: Any, rank: int, rows: int, columns: int) -> Any:
        """Return unset factors in the place of a Linear, on its device and in its dtype."""
        place = {"device": old.weight.device, "dtype": old.weight.dtype}
        return cls(columns, rows, rank, bias=old.bias is not None, **place).train(old.training)

    @property
    def weight(self) -> torch.Tensor:
        """Product of the factors, [rows, columns].

        It is computed at each access, so writing to it has no effect.
        """
        # In float32, because the factors may be stored in bfloat16 (`RoundedLinear`).
        product: torch.Tensor = self.wide.weight.float() @ self.narrow.weight.float()
        return product

    @property
    def bias(self) -> torch.Tensor | None:
        """Bias of the second factor; None if there is none, as in a Linear."""
        return self.wide.bias

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Map states [..., columns] to [..., rows]."""
        answer: torch.Tensor = self.wide(self.narrow(states))
        return answer


def count_numbers(layer: AttentionLayer, projection: str, rank: int) -> int:
    """Return how many numbers a matrix of this rank needs, as two factors or dense, whichever is less."""
    old = layer.linear(projection)
    rows, columns = int(old.out_features), int(old.in_features)
    return min(rank * (rows + columns), rows * columns)


def put_product(layer: AttentionLayer, projection: str, left: np.ndarray, right: np.ndarray) -> None:
    """Set q, k, v or o of a layer to left [rows, rank] @ right [rank, columns], keeping its bias.

    The factors are stored if they have fewer numbers than the matrix, and otherwise the dense product.
    """
    old = layer.linear(projection)
    (rows, rank), columns = left.shape, right.shape[1]
    if count_numbers(layer, projection, rank) < rows * columns:
        new = LowRank.like(old, rank, rows, columns)
        values = [(new.narrow.weight, right), (new.wide.weight, left)]
    else:
        new = make_linear(old, rows, columns)
        values = [(new.weight, left @ right)]
    with torch.no_grad():
        for parameter, value in values:
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(value)))
        if old.bias is not None:
            new.bias.copy_(old.bias)
    layer.replace_linear(projection, new)


def compression_entries(layers: Iterable[AttentionLayer]) -> dict[str, Any]:
    """Return the `compression` entries with which `apply_block` prepares a network for these layers."""
    layers = list(layers)
    thin = factors(layers)
    return {"widths": shapes(layers), **({"factors": thin} if thin else {})}


def factors(layers: Iterable[AttentionLayer]) -> dict[str, dict[str, int]]:
    """Return the ranks of all matrices that are stored as factors: layer -> q, k, v or o -> rank.

    `apply_factors` reads the result.
    """
    ranks_by_name = {
        layer.name: {
            projection: linear.rank for projection in NAMES if isinstance(linear := layer.linear(projection), LowRank)
        }
        for layer in layers
    }
    return {name: ranks for name, ranks in ranks_by_name.items() if ranks}


def apply_factors(layers: Iterable[AttentionLayer], ranks_by_layer: Any, location: str) -> None:
    """Replace Linears by unset factors of the ranks of a compressed checkpoint.

    ranks_by_layer: ranks, as `factors` returns them. Raises ModelError, which names `location`, if a layer,
    matrix or rank does not fit.
    """
    if not (
        isinstance(ranks_by_layer, Mapping) and all(isinstance(ranks, Mapping) for ranks in ranks_by_layer.values())
    ):
        raise ModelError(f"{location}: {BLOCK} contains factors {ranks_by_layer!r}, expected ranks by layer and matrix")
    known = {layer.name: layer for layer in layers}
    if unknown := sorted(set(ranks_by_layer) - set(known)):
        raise ModelError(f"{location}: {BLOCK} names factors of {unknown[:3]}, the network has {sorted(known)[:3]} ...")
    for name, ranks in ranks_by_layer.items():
        for projection, rank in ranks.items():
            if projection not in NAMES:
                raise ModelError(
                    f"{location}: {BLOCK} names a factor {projection!r} of {name}, expected one of {list(NAMES)}"
                )
            old = known[name].linear(projection)
            rows, columns = old.weight.shape
            if not (type(rank) is int and 1 <= rank <= min(rows, columns)):
                raise ModelError(
                    f"{location}: {BLOCK} contains rank {rank} of {name}.{projection}, "
                    f"expected 1 to {min(rows, columns)}"
                )
            known[name].replace_linear(projection, LowRank.like(old, rank, rows, columns))


class RoundedLinear(nn.Linear):
    """Linear whose weight is in bfloat16 and whose input is rounded to bfloat16.

    Products are summed in float32 and their sum is rounded to bfloat16 once, as in torch.autocast. Then the
    bias is added, in the dtype of the input.
    """

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return [..., out] for states [..., in], in the dtype of the states."""
        product = nn.functional.linear(states.to(self.weight.dtype), self.weight).to(states.dtype)
        return product if self.bias is None else product + self.bias


def run_in(network: nn.Module, precision: str) -> int:
    """Make the Linears of a network multiply in this precision; return how many are changed.

    These stay as they are: embeddings, norms, attention's own products, and subclasses of Linear. So does a
    matrix that a Linear shares with another module such as an embedding, since it would be stored twice. So
    do the Linears inside torch's own transformer layers, whose fast path reads their weights itself. Changed
    weights get no gradients. ValueError for a precision that is not in PRECISIONS.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"{PRECISION}: got {precision!r}, expected one of {', '.join(PRECISIONS)}")
    if precision == "float32":
        return 0
    sealed = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
    inside = {part for module in network.modules() if isinstance(module, sealed) for part in module.modules()}
    owners = Counter(id(parameter) for module in network.modules() for parameter in module.parameters(recurse=False))
    plain = [module for module in network.modules() if type(module) is nn.Linear and owners[id(module.weight)] == 1]
    plain = [module for module in plain if module not in inside]
    for module in plain:
        module.weight = nn.Parameter(module.weight.detach().to(torch.bfloat16), requires_grad=False)
        module.__class__ = RoundedLinear
    return len(plain)
