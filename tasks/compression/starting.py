"""What a pretraining begins with: random weights, heads as narrow as a schedule says, an embedding from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.compression.schedules import of_attention
from tasks.models.attention import Widths, shapes
from tasks.models.registry import family_class

if TYPE_CHECKING:
    import torch

    from tasks.models.base import Family


def start(recipe: Mapping[str, Any], embedding: Path | None = None) -> Family:
    """The family's random weights of recipe["config"] and recipe["seed"], changed as recipe["heads"] says.

    heads: {"flow": {...}} | {"guideline": {...}} | {"flat": rank}, and "factors": "head" (eq. 20: heads are as narrow
    as the schedule says) or "shared" (eq. 19: heads are as wide as ever, a layer's Q, K, V, O of the schedule's rank).
    embedding: checkpoint folder of the family whose embedding of ids is taken over; it trains on.
    """
    family = family_class(recipe["family"]).new(recipe["config"], seed=recipe["seed"])
    if heads := recipe.get("heads"):
        schedule = {name: value for name, value in heads.items() if name != "factors"}
        layers = list(family.attentions())
        if not layers:
            raise ValueError(f"heads: {family.name} has no attention layer that can be narrowed")
        shared = heads.get("factors", "head") == "shared"
        ranks = of_attention(schedule, layers, shared=shared)
        if shared:
            from tasks.compression.shared_factors import factorise

            factorise(family, ranks)
        else:
            narrow(family, ranks, {"method": "pretrained", "ranks": schedule})
    if embedding is not None:
        _take_embedding(family, embedding)
    return family


def narrow(family: Family, ranks: Mapping[str, int], how: Mapping[str, Any]) -> None:
    """Keep the first dimensions of every head, at most all, and note the widths, and how they came, in the config.

    Of random weights, the slice has the law of the family's own, scaled by the unreduced width of a head. Queries and
    keys that are rotated or normed (Moirai, Lag-Llama) keep their width: there only values are narrower.
    """
    for attention in family.attentions():
        whole = attention.read()
        full, rank = whole.widths, ranks[attention.name]
        key = min(rank, full.key) if attention.plain else full.key
        attention.write(whole.sliced(Widths(key, min(rank, full.value))))
    family.compression = {**how, "widths": shapes(family.attentions())}


def _take_embedding(family: Family, folder: Path) -> None:
    import torch

    if not family.softmax_head:
        raise ValueError(f"embedding_from: {family.name} embeds no ids; only a family that does has one to take over")
    mine, other = (_embedding(one) for one in (family, type(family).load(folder)))
    if mine.shape != other.shape:
        raise ValueError(f"embedding_from: got {tuple(other.shape)} in {folder}, expected {tuple(mine.shape)}")
    with torch.no_grad():
        mine.copy_(other)


def _embedding(family: Family) -> torch.Tensor:
    network: Any = family.network
    weight: torch.Tensor = network.get_input_embeddings().weight
    return weight
