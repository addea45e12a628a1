"""Initialization of a pretraining: random weights, narrower heads, and optionally a copied embedding."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tsfmscope.compression.options import HeadRanks
from tsfmscope.models.common.attention import Widths, shapes
from tsfmscope.models.common.embeddings import smooth_embedding
from tsfmscope.models.registry import family_class
from tsfmscope.training.options import Recipe

if TYPE_CHECKING:
    import torch

    from tsfmscope.models.base import Family


def start(recipe: Recipe, embedding: Path | None = None) -> Family:
    """Return a model with random weights by recipe.config and recipe.seed, and narrower heads by recipe.heads.

    recipe.relative_bias_std: at T5's own deviation, which is nearly zero, no head prefers a distance, and it takes
    thousands of steps until one does. recipe.value_embedding_std: from independent vectors, as T5 draws them, a model
    has to learn the order of its ids first; see `smooth_embedding`.
    embedding: checkpoint folder of the same family whose embedding of ids is copied; it is trained further.
    ValueError for heads that cannot be narrowed, for a family without position biases, for one without ids of values,
    and for an embedding that does not exist or does not fit.
    """
    family = family_class(recipe.family).new(recipe.config, seed=recipe.seed)
    if deviation := recipe.relative_bias_std:
        _spread_biases(family, deviation, recipe.seed)
    if deviation := recipe.value_embedding_std:
        _set_value_embedding(family, deviation, recipe.seed)
    if heads := recipe.heads:
        _narrow_heads(family, heads)
    if embedding is not None:
        if not family.softmax_head:
            raise ValueError(f"embedding_from: {family.name} has no embedding of ids to copy; remove the key")
        own, source = (_embedding(model) for model in (family, type(family).load(embedding)))
        if own.shape != source.shape:
            raise ValueError(f"embedding_from: got {tuple(source.shape)} in {embedding}, expected {tuple(own.shape)}")
        own.data.copy_(source)
    return family


def _spread_biases(family: Family, deviation: float, seed: int) -> None:
    import torch

    biases = [weight for name, weight in family.network.named_parameters() if "relative_attention_bias" in name]
    if not biases:
        raise ValueError(f"relative_bias_std: {family.name} has no relative position biases; remove the key")
    stream = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for bias in biases:
            bias.copy_(deviation * torch.randn(bias.shape, generator=stream))


def _set_value_embedding(family: Family, deviation: float, seed: int) -> None:
    """Set the embedding's rows of ids of values to a `smooth_embedding`; other rows stay."""
    import torch

    values = family.id_positions() if family.softmax_head else None
    if values is None:
        raise ValueError(f"value_embedding_std: ids of {family.name} stand for no values; remove the key")
    embedding, known = _embedding(family), ~np.isnan(values)
    rows = smooth_embedding(values[known], width=embedding.shape[1], std=deviation, seed=seed)
    with torch.no_grad():
        embedding[torch.from_numpy(known)] = torch.from_numpy(rows).to(embedding.dtype)


def _narrow_heads(family: Family, heads: HeadRanks) -> None:
    from tsfmscope.compression.schedules import attention_widths

    layers = list(family.attentions())
    if not layers:
        raise ValueError(f"heads: {family.name} describes no attention layers, so no head can be narrowed")
    is_shared, kinds = heads.factors == "shared", {layer.kind for layer in layers}
    if missing := sorted(set(heads.attention or ()) - kinds):
        raise ValueError(f"heads.attention: got {missing}, expected some of {sorted(kinds)}, which {family.name} has")
    widths_by_name = attention_widths(heads.schedule, layers, shared_factors=is_shared)
    ranks_by_name = {
        layer.name: widths_by_name[layer.name] for layer in layers if layer.kind in (heads.attention or kinds)
    }
    widths = {layer.name: max(layer.widths) for layer in layers}
    if not is_shared and all(rank > widths[name] for name, rank in ranks_by_name.items()):
        raise ValueError(
            f"heads: got ranks of at least {min(ranks_by_name.values())}, expected some of at most "
            f"{max(widths.values())}, the heads' width; otherwise no head would be narrower"
        )
    if is_shared:
        from tsfmscope.compression.schedules import factorise

        factorise(family, ranks_by_name)
    else:
        ranks = {name: value for name, value in heads.to_dict().items() if name != "factors"}
        narrow(family, ranks_by_name, {"method": "pretrained", "ranks": ranks})


def narrow(family: Family, ranks: Mapping[str, int], record: Mapping[str, Any]) -> None:
    """Keep the first dimensions of every head, and record the widths in the config.

    ranks: layer name -> number of dimensions to keep, at most all; a missing layer stays unchanged.
    record: entries that the config stores with the widths.
    A slice of random weights has the family's own distribution, scaled for the unreduced width of a head.
    Rotated or normed queries and keys (Moirai, Lag-Llama) keep their width, and only values become narrower.
    """
    for attention in family.attentions():
        projections = attention.read()
        full = projections.widths
        rank = ranks.get(attention.name, max(full.key, full.value))
        key = min(rank, full.key) if attention.plain else full.key
        attention.write(projections.slice_heads(Widths(key, min(rank, full.value))))
    family.compression = {**record, "widths": shapes(family.attentions())}


def _embedding(family: Family) -> torch.Tensor:
    network: Any = family.network
    weight: torch.Tensor = network.get_input_embeddings().weight
    return weight
