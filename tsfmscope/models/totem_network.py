"""Networks of TOTEM (Talukder et al. 2024): a VQ-VAE of 1-D convolutions, and the forecaster that reads it.

Shapes are those of the authors' repository, SaberaTalukder/TOTEM (forecasting/lib/models). Names are our own.
"""

from __future__ import annotations

import inspect
import math
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import nn
from torch.nn import functional
from transformers import PretrainedConfig, PreTrainedModel

# Steps per code; the repository has 8, 12 and 16 too, the paper's results are with 4.
FACTOR = 4
# Base of the angles of the position encodings.
BASE = 10_000.0
# Decay of a code's mean use per training step.
DECAY = 0.98
# A code whose use is below this fraction of the even share is placed anew.
DEAD = 0.05


class TotemConfig(PretrainedConfig):
    """Config of a TotemNetwork, as in config.json; keys that are left out are as in the paper."""

    model_type = "totem"

    d_model: int = 64
    ffn_dim: int = 256
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    context_length: int = 96
    prediction_length: int = 96
    num_codes: int = 256
    code_width: int = 64
    conv_width: int = 128
    residual_layers: int = 2
    residual_width: int = 64
    commitment_cost: float = 0.25
    dropout: float = 0.0

    def to_diff_dict(self) -> dict[str, Any]:
        """Return the content of config.json: the full shape, including values that are defaults today."""
        values: dict[str, Any] = super().to_diff_dict()
        return values | {name: getattr(self, name) for name in inspect.get_annotations(TotemConfig)}


class Quantised(NamedTuple):
    """Codes of windows.

    ids: [B, T]. codes: [B, T, c], the codebook's vectors of these ids. encoded: [B, T, c], the vectors
    that the codes stand for.
    """

    ids: Int[torch.Tensor, "window token"]
    codes: Float[torch.Tensor, "window token code"]
    encoded: Float[torch.Tensor, "window token code"]


class _Residual(nn.Module):
    def __init__(self, config: TotemConfig) -> None:
        super().__init__()
        self.inner = nn.Conv1d(config.conv_width, config.residual_width, 3, padding=1, bias=False)
        self.outer = nn.Conv1d(config.residual_width, config.conv_width, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, x + self.outer(functional.relu(self.inner(functional.relu(x)))))


class VqVae(nn.Module):
    """VQ-VAE from steps to codes and back; each of its two strided convolutions halves the length."""

    usage: torch.Tensor

    def __init__(self, config: TotemConfig) -> None:
        super().__init__()
        width, code = config.conv_width, config.code_width
        self.down = nn.ModuleList([nn.Conv1d(1, width // 2, 4, 2, 1), nn.Conv1d(width // 2, width, 4, 2, 1)])
        self.narrow = nn.Conv1d(width, width, 3, padding=1)
        self.narrow_residuals = nn.ModuleList([_Residual(config) for _ in range(config.residual_layers)])
        self.to_code = nn.Conv1d(width, code, 1)
        self.codebook = nn.Embedding(config.num_codes, code)
        # Use of every code; 1 is the even share.
        self.register_buffer("usage", torch.zeros(config.num_codes))
        self.from_code = nn.Conv1d(code, width, 3, padding=1)
        self.wide_residuals = nn.ModuleList([_Residual(config) for _ in range(config.residual_layers)])
        self.up = nn.ModuleList(
            [nn.ConvTranspose1d(width, width // 2, 4, 2, 1), nn.ConvTranspose1d(width // 2, 1, 4, 2, 1)]
        )

    def quantise(self, steps: Float[torch.Tensor, "window step"]) -> Quantised:
        """Return the nearest vector of the codebook for every four steps.

        Where several are nearest, the lowest id is taken.
        """
        x = steps[:, None]
        for layer in self.down:
            x = functional.relu(layer(x))
        x = self.narrow(x)
        for residual in self.narrow_residuals:
            x = residual(x)
        encoded = self.to_code(functional.relu(x)).transpose(1, 2)
        ids = self.nearest(encoded)
        return Quantised(ids, self.codebook(ids), encoded)

    def nearest(self, encoded: Float[torch.Tensor, "*token code"]) -> Int[torch.Tensor, "*token"]:
        """Return ids of the nearest vectors of the codebook, the lowest where several are equal."""
        book = self.codebook.weight
        distances = encoded.square().sum(-1, keepdim=True) + book.square().sum(-1) - 2 * encoded @ book.T
        return self._first_alike()[distances.argmin(dim=-1)]

    def _first_alike(self) -> Int[torch.Tensor, " id"]:
        """Return for every id the lowest id with the same vector.

        Some CPUs round the columns of a product differently, so equal vectors may have unequal distances.
        """
        kinds = torch.unique(self.codebook.weight, dim=0, return_inverse=True)[1]
        ids = torch.arange(len(kinds), device=kinds.device)
        return torch.full_like(ids, len(ids)).scatter_reduce(0, kinds, ids, "amin")[kinds]

    @torch.no_grad()
    def restart_unused_codes(self, encoded: Float[torch.Tensor, "token code"]) -> None:
        """Record which codes a training step uses, and set long unused ones to random vectors of `encoded`.

        At first no code was used, so all are set to such vectors. The authors do not do this. Their codebook starts
        near 0, and in a training as short as ours few of its codes are ever nearest. Random restarts are from
        Dhariwal et al. 2020, section 2.2.
        """
        ids = self.nearest(encoded)
        share = torch.bincount(ids, minlength=len(self.usage)) * (len(self.usage) / len(ids))
        self.usage.mul_(DECAY).add_(share, alpha=1 - DECAY)
        is_unused = self.usage < DEAD
        rows = torch.randint(len(encoded), (int(is_unused.sum()),)).to(encoded.device)
        self.codebook.weight[is_unused] = encoded[rows]
        self.usage[is_unused] = 1.0

    def decode(self, codes: Float[torch.Tensor, "window token code"]) -> Float[torch.Tensor, "window step"]:
        """Return the steps of codes, four per code."""
        x = self.from_code(codes.transpose(1, 2))
        for residual in self.wide_residuals:
            x = residual(x)
        first, last = self.up
        return cast(torch.Tensor, last(functional.relu(first(functional.relu(x))))[:, 0])


class TotemBlock(nn.Module):
    """Block as torch's TransformerEncoderLayer (norms after sums, ReLU); each projection is a Linear."""

    def __init__(self, config: TotemConfig) -> None:
        super().__init__()
        width = config.d_model
        self.heads, self.rate = config.num_attention_heads, config.dropout
        # Heads that compression makes narrower keep this scale.
        self.scale = 1 / math.sqrt(width // self.heads)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp_in, self.mlp_out = nn.Linear(width, config.ffn_dim), nn.Linear(config.ffn_dim, width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, hidden: Float[torch.Tensor, "window token width"]) -> Float[torch.Tensor, "window token width"]:
        shape = (*hidden.shape[:2], self.heads, -1)
        query, key, value = (part(hidden).view(shape).transpose(1, 2) for part in (self.q, self.k, self.v))
        rate = self.rate if self.training else 0.0
        attended = functional.scaled_dot_product_attention(query, key, value, dropout_p=rate, scale=self.scale)
        joined = self.o(attended.transpose(1, 2).flatten(2))
        hidden = self.attention_norm(hidden + self.dropout(joined))
        mlp = self.mlp_out(self.dropout(functional.relu(self.mlp_in(hidden))))
        return cast(torch.Tensor, self.mlp_norm(hidden + self.dropout(mlp)))


class TotemNetwork(PreTrainedModel):
    """VQ-VAE, a Transformer encoder over its codes' vectors, and a linear layer to the horizon."""

    config_class = TotemConfig
    config: TotemConfig

    def __init__(self, config: TotemConfig) -> None:
        """Initialise random weights as the authors do."""
        super().__init__(config)
        tokens = config.context_length // FACTOR
        self.vqvae = VqVae(config)
        differs = config.code_width != config.d_model
        self.widen = nn.Linear(config.code_width, config.d_model) if differs else nn.Identity()
        self.encoder = nn.ModuleList([TotemBlock(config) for _ in range(config.num_hidden_layers)])
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear(tokens * config.d_model, config.prediction_length)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Initialise matrices of the forecaster by Xavier, and the codebook uniformly within 1/codes.

        Convolutions stay as torch initialises them.
        """
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
        elif isinstance(module, nn.Embedding):
            bound = 1 / self.config.num_codes
            nn.init.uniform_(module.weight, -bound, bound)

    def forward(self, ids: Int[torch.Tensor, "window token"]) -> Float[torch.Tensor, "window horizon"]:
        """Return the forecast in units of the scaled context, from codes alone."""
        return cast(torch.Tensor, self.head(self.encode(ids).flatten(1)))

    def encode(self, ids: Int[torch.Tensor, "window token"]) -> Float[torch.Tensor, "window token width"]:
        """Return states after the last block.

        The codebook is read, not trained: only the VQ-VAE changes its vectors.
        """
        hidden: torch.Tensor = self.widen(self.vqvae.codebook(ids).detach())
        hidden = self.dropout(hidden + positions(*hidden.shape[1:]).to(hidden))
        for block in self.encoder:
            hidden = block(hidden)
        return hidden


def positions(tokens: int, width: int) -> Float[torch.Tensor, "token width"]:
    """Return sines at even indices and cosines at odd ones (Vaswani et al. 2017, section 3.5)."""
    rates = torch.exp(-torch.arange(0, width, 2) * math.log(BASE) / width)
    angles = torch.arange(tokens)[:, None] * rates
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)[:, :width]
