"""Tab2D, the network of Mitra (Zhang et al. 2025): one token per cell, attention down columns and along rows.

The code is written from the published layout, and its checkpoints have the published names. `LAYOUT` maps the
modules here to those names. A layer of the release contains two runs of attention and MLP; each run is a
block here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from tsfmscope.models.common.attention import AttentionLayer, any_width

# A block's module -> its names in a released layer: as first block (down the columns), as second block.
LAYOUT = {
    "norm": ("layer_norm1", "layer_norm3"), "mlp_norm": ("layer_norm2", "layer_norm4"),
    "attention": ("attention1", "attention2"), "mlp_in": ("linear1", "linear3"), "mlp_out": ("linear2", "linear4"),
}  # fmt: skip


class Attention(nn.Module):
    """Multi-head attention with biases, from the tokens of `readers` to all tokens of `attended`.

    Heads may be narrower than `dim / heads`; scores keep the scale of that width.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, 1 / math.sqrt(dim // heads)
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, readers: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """Return [B, T, d] for queries of readers [B, T, d] and keys and values of attended [B, S, d]."""
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.q(readers), self.k(attended), self.v(attended))
        )
        heads = scaled_dot_product_attention(q, k, v, scale=self.scale)
        return cast(torch.Tensor, self.o(heads.transpose(1, 2).flatten(2)))


class Block(nn.Module):
    """Attention and MLP, each after a norm and with a residual connection.

    down: attention along columns, to the rows with labels only; else along rows.
    """

    def __init__(self, dim: int, heads: int, *, down: bool) -> None:
        super().__init__()
        self.down = down
        self.norm, self.mlp_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = Attention(dim, heads)
        self.mlp_in, self.mlp_out = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, cells: torch.Tensor, rows: int, support: int) -> torch.Tensor:
        """Apply the block to cells [B, rows * columns, d], which are stored row by row.

        The first `support` rows have labels.
        """
        table = self.norm(cells).unflatten(1, (rows, -1))  # [B, R, C, d]
        if self.down:
            columns = table.transpose(1, 2)  # [B, C, R, d]
            answer = self.attention(columns.flatten(0, 1), columns[:, :, :support].flatten(0, 1))
            answer = answer.unflatten(0, columns.shape[:2]).transpose(1, 2)
        else:
            answer = self.attention(table.flatten(0, 1), table.flatten(0, 1)).unflatten(0, table.shape[:2])
        cells = cells + answer.flatten(1, 2)
        return cast(torch.Tensor, cells + self.mlp_out(gelu(self.mlp_in(self.mlp_norm(cells)))))


class Tab2D(nn.Module):
    """The whole network, with two blocks for each of the release's `n_layers`."""

    def __init__(self, *, dim: int, dim_output: int, n_layers: int, n_heads: int) -> None:
        super().__init__()
        self.x_embedding = nn.Linear(1, dim)
        self.y_embedding = nn.Embedding(dim_output, dim)
        self.y_mask = nn.Embedding(1, dim)
        self.blocks = nn.ModuleList(Block(dim, n_heads, down=down) for _ in range(n_layers) for down in (True, False))
        self.final_layer_norm = nn.LayerNorm(dim)
        self.final_layer = nn.Linear(dim, dim_output)
        for embedding in (self.x_embedding, self.y_embedding, self.y_mask):
            for parameter in embedding.parameters():
                nn.init.normal_(parameter)

    def forward(self, features: torch.Tensor, labels: torch.Tensor, support: int) -> torch.Tensor:
        """Return last states [B, rows * (1 + columns), d] after the norm.

        Every row has its label first, then its features. features [B, R, C]; labels [B, support] class ids.
        The labels of the other rows are masked.
        """
        batch, rows, _ = features.shape
        hidden = self.y_mask.weight.expand(batch, rows - support, -1)
        label = torch.cat((self.y_embedding(labels), hidden), dim=1)[:, :, None]  # [B, R, 1, d]
        cells = torch.cat((label, self.x_embedding(features[..., None])), dim=2).flatten(1, 2)
        for block in self.blocks:
            cells = block(cells, rows, support)
        return cast(torch.Tensor, self.final_layer_norm(cells))

    def logits(self, features: torch.Tensor, labels: torch.Tensor, support: int) -> torch.Tensor:
        """Return logits of the classes, [B, R - support, class], for the rows without a label."""
        states = self(features, labels, support).unflatten(1, (features.shape[1], -1))
        return cast(torch.Tensor, self.final_layer(states[:, support:, 0]))


def attentions(network: Tab2D) -> Iterator[AttentionLayer]:
    """Yield every block's attention, down the columns or along the rows.

    Nothing lies between projections and scores.
    """
    parts = {matrix: matrix for matrix in ("q", "k", "v", "o")}
    for layer, block in enumerate(network.blocks, start=1):
        module: Any = block.attention
        heads, scale, reorder_mask = module.heads, module.scale, _as_columns if block.down else _as_rows
        yield AttentionLayer(
            "encoder", layer, "self", module, heads, heads, scale, True, any_width, parts, reorder_mask=reorder_mask
        )


def _as_columns(cells: Any, shape: tuple[int, ...]) -> Any:
    """Rearrange cells [B, rows * columns] as the first rows of each column [B * columns, row]."""
    table = cells.reshape(len(cells), -1, shape[0] // len(cells))
    return table.swapaxes(1, 2).reshape(shape[0], -1)[:, : shape[1]]


def _as_rows(cells: Any, shape: tuple[int, ...]) -> Any:
    """Rearrange cells [B, rows * columns] as the rows of each table [B * rows, column]."""
    return cells.reshape(shape)


def released_name(name: str) -> str:
    """Return the release's name of a tensor of Tab2D."""
    if match := re.fullmatch(r"blocks\.(\d+)\.(\w+)\.(.+)", name):
        layer, second = divmod(int(match[1]), 2)
        return f"layers.{layer}.{LAYOUT[match[2]][second]}.{match[3]}"
    outer = {"x_embedding": "x_embedding.x_embedding", "y_embedding": "y_embedding.y_embedding"}
    outer["y_mask"] = "y_embedding.y_mask"
    module, _, rest = name.partition(".")
    return f"{outer.get(module, module)}.{rest}"
