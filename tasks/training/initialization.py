"""Initialization of a pretraining: random weights, narrower heads, and optionally a copied embedding."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsfmscope.tasks.compression.schedules import of_attention
from tsfmscope.tasks.models.common.attention import Widths, shapes
from tsfmscope.tasks.models.registry import family_class

if TYPE_CHECKING:
    import torch

    from tsfmscope.tasks.models.base import Family


def start(recipe: Mapping[str, Any], embedding: Path | None = None) -> Family:
    """Return a model with random weights by recipe["config"] and recipe["seed"], and recipe["heads"].

    recipe["heads"], optional, has a schedule ({"flow": {...}}, {"guideline": {...}} or {"flat": rank}) and
    two optional keys. "factors" is "head", the default (Yu et al. 2026, eq. 20: heads have the schedule's
    width) or "shared" (eq. 19: heads keep their width, and Q, K, V and O of a layer have the schedule's
    rank). "attention" lists the kinds of layers that change, such as ["self"]; the default is all, and other
    layers stay whole.
    embedding: checkpoint folder of the same family whose embedding of ids is copied; it is trained further.
    ValueError for heads that cannot be narrowed as asked, and for an embedding that does not exist or does
    not fit.
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
        from tsfmscope.tasks.compression.shared_factors import factorise

        factorise(family, changed)
    else:
        narrow(family, changed, {"method": "pretrained", "ranks": ranks})


def narrow(family: Family, ranks: Mapping[str, int], how: Mapping[str, Any]) -> None:
    """Keep the first dimensions of every head, and record the widths in the config.

    ranks: layer name -> number of dimensions to keep, at most all; a layer that is missing stays whole.
    how: entries that the config records with the widths.
    A slice of random weights has the family's own distribution, scaled for the unreduced width of a head.
    Rotated or normed queries and keys (Moirai, Lag-Llama) keep their width, and only values become narrower.
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
