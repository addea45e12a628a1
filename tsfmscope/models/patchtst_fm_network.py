"""Network of PatchTST-FM r1 (Wen et al. 2026): an encoder of patches that reconstructs masked ones as quantiles.

Module and parameter names are those of tsfm_public/models/patchtst_fm of granite-tsfm 0.3.11, except that queries, keys
and values have a projection each. The computations are written from that code's arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from jaxtyping import Bool, Float
from torch import nn
from torch.nn import functional

from tsfmscope.models.common.layers import PlacedModule, join_heads, split_heads

# Epsilon of every layer norm, as in the package.
EPSILON = 1e-6
# Width of the MLP over the width of the states, as in the package.
MLP_RATIO = 4


class ResidualMlp(nn.Module):
    """MLP with a sigmoid and a linear shortcut, before the first block and after the last."""

    def __init__(self, inputs: int, outputs: int, hidden: int) -> None:
        super().__init__()
        self.layer1 = nn.Linear(inputs, hidden)
        self.layer2 = nn.Linear(hidden, outputs)
        self.residual = nn.Linear(inputs, outputs)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, self.layer2(torch.sigmoid(self.layer1(values))) + self.residual(values))


class Attention(nn.Module):
    """Attention of every token to all tokens but padding; scores are q·k over the root of a head's width."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout, self.scale = heads, dropout, (width // heads) ** -0.5
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, width) for _ in range(3))
        self.proj = nn.Linear(width, width)

    def forward(
        self, states: Float[torch.Tensor, "window token width"], attended: Bool[torch.Tensor, "window 1 1 token"] | None
    ) -> Float[torch.Tensor, "window token width"]:
        query, key, value = (split_heads(part(states), self.heads) for part in (self.q_proj, self.k_proj, self.v_proj))
        dropout = self.dropout if self.training else 0.0
        heads = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=attended, dropout_p=dropout, scale=self.scale
        )
        return functional.dropout(self.proj(join_heads(heads)), self.dropout, self.training)


class Mlp(nn.Module):
    """MLP of a block; the numbers of its layers are those of the package's names."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        inner = MLP_RATIO * width
        self.layers = nn.Sequential(
            nn.Linear(width, inner), nn.GELU("tanh"), nn.Dropout(dropout), nn.Identity(), nn.Linear(inner, width)
        )

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, self.layers(states))


class Block(nn.Module):
    """Attention and MLP, each applied to the normed residual stream and added to it."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(width, eps=EPSILON) for _ in range(2))
        self.attn = Attention(width, heads, dropout)
        self.mlp = Mlp(width, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: torch.Tensor, attended: torch.Tensor | None) -> torch.Tensor:
        states = states + self.attn(self.norm1(states), attended)
        return cast(torch.Tensor, states + self.dropout(self.mlp(self.norm2(states))))


class PatchTSTFMNetwork(PlacedModule):
    """Network from scaled patches to quantiles of their steps.

    shape: keys of config.json, without defaults.
    """

    def __init__(self, shape: Mapping[str, Any]) -> None:
        super().__init__()
        width, size = shape["d_model"], shape["d_patch"]
        self.size, self.num_quantiles = size, shape["num_quantile"]
        # Learned vector of every patch of the window.
        self.pos_embed = nn.ModuleDict({"embedding": nn.Embedding(shape["context_length"] // size, width)})
        self.blocks = nn.ModuleList(Block(width, shape["n_head"], shape["dropout"]) for _ in range(shape["n_layer"]))
        self.in_layer = ResidualMlp(2 * size, width, width)
        self.out_layer = ResidualMlp(width, size * (self.num_quantiles + 1), width)

    @property
    def layers(self) -> list[Block]:
        """Blocks, first to last."""
        return cast(list[Block], list(self.blocks))

    def forward(
        self,
        values: Float[torch.Tensor, "window token patch"],
        observed: Float[torch.Tensor, "window token patch"],
        attended: Bool[torch.Tensor, "window token"],
    ) -> Float[torch.Tensor, "window token width"]:
        """Return the output of the last block.

        The tokens are the last of the window. values: scaled steps, 0 where a step is missing or masked. observed: 0
        there, else 1. attended: tokens that are not padding.
        """
        vectors = self.pos_embed.get_parameter("embedding.weight")
        embedded = self.in_layer(torch.cat((values, observed), dim=-1))
        states: torch.Tensor = embedded + vectors[len(vectors) - values.shape[1] :]
        mask = None if bool(attended.all()) else attended[:, None, None]
        for block in self.blocks:
            states = block(states, mask)
        return states

    def quantiles(
        self, states: Float[torch.Tensor, "window token width"]
    ) -> Float[torch.Tensor, "window quantile token patch"]:
        """Return ascending quantiles of every step, in scaled units."""
        raw = self.out_layer(states).unflatten(-1, (self.num_quantiles + 1, self.size)).transpose(1, 2)
        return cast(torch.Tensor, raw[:, :1] + (functional.softplus(raw[:, 1:]) / self.num_quantiles).cumsum(dim=1))
