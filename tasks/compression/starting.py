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
    as the schedule says) or "shared" (eq. 19: heads are as wide as ever, a layer's Q, K, V, O of the schedule's rank);
    "attention": kinds of layers whose heads change, ["self"] or so; the others stay whole.
    embedding: checkpoint folder of the family whose embedding of ids is taken over; it trains on.
    """
    family = family_class(recipe["family"]).new(recipe["config"], seed=recipe["seed"])
    if heads := recipe.get("heads"):
        _change(family, heads)
    if embedding is not None:
        _take_embedding(family, embedding)
    return family


def _change(family: Family, heads: Mapping[str, Any]) -> None:
    ranks = {name: value for name, value in heads.items() if name != "factors"}
    schedule = {name: value for name, value in ranks.items() if name != "attention"}
    layers = list(family.attentions())
    if not layers:
        raise ValueError(f"heads: {family.name} has no attention layer that can be narrowed")
    shared, kinds = heads.get("factors", "head") == "shared", {layer.kind for layer in layers}
    if missing := sorted(set(heads.get("attention", [])) - kinds):
        raise ValueError(f"heads.attention: got {missing}, expected some of {sorted(kinds)}, which {family.name} has")
    found = of_attention(schedule, layers, shared=shared)
    changed = {layer.name: found[layer.name] for layer in layers if layer.kind in heads.get("attention", kinds)}
    widths = {layer.name: max(layer.widths) for layer in layers}
    if not shared and all(rank > widths[name] for name, rank in changed.items()):
        raise ValueError(
            f"heads: got ranks from {min(changed.values())} on, of heads {max(widths.values())} wide: none would be "
            "narrower; ask for less"
        )
    if shared:
        from tasks.compression.shared_factors import factorise

        factorise(family, changed)
    else:
        narrow(family, changed, {"method": "pretrained", "ranks": ranks})


def narrow(family: Family, ranks: Mapping[str, int], how: Mapping[str, Any]) -> None:
    """Keep the first dimensions of every head, at most all, and note the widths, and how they came, in the config.

    ranks: by name of the layer; one that is not in it stays whole.
    Of random weights, the slice has the law of the family's own, scaled by the unreduced width of a head. Queries and
    keys that are rotated or normed (Moirai, Lag-Llama) keep their width: there only values are narrower.
    """
    for attention in family.attentions():
        whole = attention.read()
        full = whole.widths
        rank = ranks.get(attention.name, max(full.key, full.value))
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
