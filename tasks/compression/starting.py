"""What a pretraining begins with: random weights, heads as narrow as a schedule says, an embedding from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.compression import shared_factors
from tasks.compression.schedules import flat, flow, guideline
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
        ranks = head_ranks(family, schedule)
        if heads.get("factors", "head") == "shared":
            shared_factors.factorise(family, ranks)
        else:
            narrow(family, ranks, {"method": "pretrained", "ranks": schedule})
    if embedding is not None:
        _take_embedding(family, embedding)
    return family


def head_ranks(family: Family, schedule: Mapping[str, Any]) -> dict[str, int]:
    """Rank of every attention layer by name, as `schedules` has it: its key is flow, guideline or flat.

    A stack's layers count from its first; where flow has `cross_offset`, those of cross-attention go on from the
    encoder's last, as in the released code.
    """
    depths, found = family.layers, {}
    for attention in family.attentions():
        before = depths["encoder"] if attention.kind == "cross" else 0
        ranks = _of_stack(schedule, depths[attention.stack], before, family.width, attention.heads)
        found[attention.name] = ranks[attention.layer - 1]
    if not found:
        raise ValueError(f"heads: {family.name} has no attention layer that can be narrowed")
    return found


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


def _of_stack(schedule: Mapping[str, Any], depth: int, before: int, width: int, heads: int) -> list[int]:
    (kind, said), *others = schedule.items()
    if others or kind not in ("flow", "guideline", "flat"):
        raise ValueError(f"heads: got {sorted(schedule)}, expected one of flow, guideline, flat")
    if kind == "flat":
        return flat(said, depth)
    if kind == "guideline":
        return guideline(said["smallest"], said.get("largest", width / 2), depth, heads, bend=said["bend"])
    said = {"rounding": "ceiling", "origin": 1, "cross_offset": False, **said}
    counted = before if said["cross_offset"] else 0
    return flow(said["first"], said["growth"], depth, rounding=said["rounding"], origin=said["origin"], before=counted)


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
