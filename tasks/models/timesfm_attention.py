"""TimesFM's attention layers: a query's dimension has a learned scale in 2.0, and a rotation and a norm too in 2.5."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32

from tasks.models.attention import AttentionLayer, Widths
from tasks.models.narrow import resizer

PARTS = {what: f"{what}_proj" for what in ("q", "k", "v", "o")}
FACTOR = 1.442695041  # the package's: of softplus(scaling) / sqrt(head_dim)
fill = resizer(PARTS, "head_dim")


def scaled_layers(network: Any) -> Iterator[AttentionLayer]:
    """Of a TimesFmModelForPrediction: scores are q·k, the query's scale taken into W_Q."""
    for layer, block in enumerate(network.decoder.layers, start=1):
        of = block.self_attn
        heads = of.num_heads
        yield AttentionLayer("decoder", layer, "self", of, heads, heads, 1.0, True, resize_scaled, PARTS, query_scale)


def rotary_layers(network: Any) -> Iterator[AttentionLayer]:
    """Of a TimesFm2_5ModelForPrediction: the norm lies between W_Q and its scale, so keys stay as wide as they are."""
    heads, groups = network.config.num_attention_heads, network.config.num_key_value_heads
    for layer, block in enumerate(network.model.layers, start=1):
        yield AttentionLayer("decoder", layer, "self", block.self_attn, heads, groups, 1.0, False, fill, PARTS)


def query_scale(attention: Any) -> Float32[np.ndarray, " key"]:
    """What a TimesFmAttention multiplies a query's dimensions with."""
    with torch.no_grad():
        ones = torch.ones(1, 1, 1, attention.head_dim, device=attention.scaling.device)
        found: np.ndarray = attention._scale_query(ones).flatten().float().cpu().numpy()
    return found


def resize_scaled(attention: Any, widths: Widths) -> None:
    """As `narrow.resizer`, and the query's scale becomes 1 in every dimension."""
    fill(attention, widths)
    neutral = math.log(math.expm1(math.sqrt(attention.head_dim) / FACTOR))  # softplus of it over sqrt: 1 / FACTOR
    old = attention.scaling
    ones = torch.full((attention.head_dim,), neutral, dtype=old.dtype, device=old.device)
    attention.scaling = torch.nn.Parameter(ones, requires_grad=old.requires_grad)
