"""A matrix of an attention layer as two thin factors, in the place of its torch Linear."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from tasks.errors import ModelError
from tasks.models.attention import BLOCK, NAMES, AttentionLayer, shapes


class LowRank(nn.Module):
    """x -> wide (narrow x) + bias: a Linear whose weight is a product of rank at most `rank`."""

    def __init__(self, columns: int, rows: int, rank: int, *, bias: bool, **place: Any) -> None:
        """A weight of [rows, columns]; place: device and dtype."""
        super().__init__()
        self.in_features, self.out_features, self.rank = columns, rows, rank
        self.narrow = nn.Linear(columns, rank, bias=False, **place)
        self.wide = nn.Linear(rank, rows, bias=bias, **place)

    @property
    def weight(self) -> torch.Tensor:
        """The product, [rows, columns]; made anew at each call, so that writing to it changes nothing."""
        product: torch.Tensor = (
            self.wide.weight.float() @ self.narrow.weight.float()
        )  # of rounded factors (precision.py)
        return product

    @property
    def bias(self) -> torch.Tensor | None:
        """As a Linear's."""
        return self.wide.bias

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """[..., columns] -> [..., rows]."""
        answer: torch.Tensor = self.wide(self.narrow(states))
        return answer


def cost(layer: AttentionLayer, what: str, rank: int) -> int:
    """Numbers of a matrix of this rank: of its factors, or its own where they have no fewer."""
    old = layer.linear(what)
    rows, columns = int(old.out_features), int(old.in_features)
    return min(rank * (rows + columns), rows * columns)


def put_product(layer: AttentionLayer, what: str, left: np.ndarray, right: np.ndarray) -> None:
    """Let q, k, v or o of a layer be left [rows, rank] @ right [rank, columns]: factors where thinner, else dense."""
    old = layer.linear(what)
    (rows, rank), columns = left.shape, right.shape[1]
    bias, place = old.bias, {"device": old.weight.device, "dtype": old.weight.dtype}
    if cost(layer, what, rank) < rows * columns:
        new: Any = LowRank(columns, rows, rank, bias=bias is not None, **place)
        values = [(new.narrow.weight, right), (new.wide.weight, left)]
    else:
        new = nn.Linear(columns, rows, bias=bias is not None, **place)
        values = [(new.weight, left @ right)]
    with torch.no_grad():
        for parameter, value in values:
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(value)))
        if bias is not None:
            new.bias.copy_(bias)
    layer.put(what, new.train(old.training))


def fitting(layers: Iterable[AttentionLayer]) -> dict[str, Any]:
    """What the block `compression` of config.json says of these layers so that `attention.fit` makes room for them."""
    layers = list(layers)
    thin = factors(layers)
    return {"widths": shapes(layers), **({"factors": thin} if thin else {})}


def factors(layers: Iterable[AttentionLayer]) -> dict[str, dict[str, int]]:
    """Layer -> q, k, v, o -> rank, of what is stored as factors: what `factored_as` reads."""
    found = {
        layer.name: {what: one.rank for what in NAMES if isinstance(one := layer.linear(what), LowRank)}
        for layer in layers
    }
    return {name: ranks for name, ranks in found.items() if ranks}


def factored_as(layers: Iterable[AttentionLayer], said: Any, where: str) -> None:
    """Make room for the factors of a compressed checkpoint. ModelError, naming `where`, for what does not fit.

    said: as `factors` says it.
    """
    if not (isinstance(said, Mapping) and all(isinstance(ranks, Mapping) for ranks in said.values())):
        raise ModelError(f"{where}: {BLOCK} says factors {said!r}, expected ranks by layer and matrix")
    known = {layer.name: layer for layer in layers}
    if unknown := sorted(set(said) - set(known)):
        raise ModelError(f"{where}: {BLOCK} names factors of {unknown[:3]}, the network has {sorted(known)[:3]} ...")
    for name, ranks in said.items():
        for what, rank in ranks.items():
            if what not in NAMES:
                raise ModelError(f"{where}: {BLOCK} names a factor {what!r} of {name}, expected one of {list(NAMES)}")
            old = known[name].linear(what)
            rows, columns = old.weight.shape
            if not (type(rank) is int and 1 <= rank <= min(rows, columns)):
                raise ModelError(
                    f"{where}: {BLOCK} says rank {rank} of {name}.{what}, expected 1 to {min(rows, columns)}"
                )
            place = {"device": old.weight.device, "dtype": old.weight.dtype}
            new = LowRank(columns, rows, rank, bias=old.bias is not None, **place)
            known[name].put(what, new.train(old.training))
