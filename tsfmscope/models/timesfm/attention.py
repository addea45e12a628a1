"""Attention layers of TimesFM: 2.0 scales each dimension of a query, 2.5 also rotates and norms."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32

from tsfmscope.models.common.attention import AttentionLayer, Widths
from tsfmscope.models.common.narrow_heads import resizer

PARTS = {matrix: f"{matrix}_proj" for matrix in ("q", "k", "v", "o")}
# The package's factor on softplus(scaling) / sqrt(head_dim).
FACTOR = 1.442695041
fill = resizer(PARTS, "head_dim")


def scaled_layers(network: Any) -> Iterator[AttentionLayer]:
    """Yield the attention layers of a TimesFmModelForPrediction.

    Scores are q·k, with the query's scale folded into W_Q.
    """
    for layer, block in enumerate(network.decoder.layers, start=1):
        of = block.self_attn
        heads = of.num_heads
        yield AttentionLayer("decoder", layer, "self", of, heads, heads, 1.0, True, resize_scaled, PARTS, query_scale)


def rotary_layers(network: Any) -> Iterator[AttentionLayer]:
    """Yield the attention layers of a TimesFm2_5ModelForPrediction.

    The norm lies between W_Q and its scale, so keys keep their width.
    """
    heads, groups = network.config.num_attention_heads, network.config.num_key_value_heads
    for layer, block in enumerate(network.model.layers, start=1):
        yield AttentionLayer("decoder", layer, "self", block.self_attn, heads, groups, 1.0, False, fill, PARTS)


def query_scale(attention: Any) -> Float32[np.ndarray, " key"]:
    """Return the factors that a TimesFmAttention applies to the dimensions of a query."""
    with torch.no_grad():
        ones = torch.ones(1, 1, 1, attention.head_dim, device=attention.scaling.device)
        scale: np.ndarray = attention._scale_query(ones).flatten().float().cpu().numpy()
    return scale


def resize_scaled(attention: Any, widths: Widths) -> None:
    """Set the widths as `narrow.resizer` does, and the query's scale to 1 in every dimension."""
    fill(attention, widths)
    # softplus(neutral) / sqrt(head_dim) is 1 / FACTOR.
    neutral = math.log(math.expm1(math.sqrt(attention.head_dim) / FACTOR))
    old = attention.scaling
    ones = torch.full((attention.head_dim,), neutral, dtype=old.dtype, device=old.device)
    attention.scaling = torch.nn.Parameter(ones, requires_grad=old.requires_grad)
