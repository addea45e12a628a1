"""Network of MOMENT (Goswami et al. 2024): T5's encoder over patches, of which masked ones are reconstructed.

Module and parameter names are those of momentfm 0.1.4. The encoder is transformers' T5Stack, as in the package; the
rest is written from that code's arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import torch
from jaxtyping import Bool, Float
from torch import nn
from transformers import T5Config, T5EncoderModel

from tsfmscope.models.common.layers import PlacedModule
from tsfmscope.models.t5_decoding import use_windowwise

# Tensors of released files that are left out: an embedding of words that nothing reads, and sine positions.
UNUSED = ("encoder.embed_tokens.weight", "patch_embedding.position_embedding.pe")
# Gain of the random orthogonal weights of the embedding and of the head, as in the package.
GAIN = 1.41


class PatchEmbedding(nn.Module):
    """Linear embedding of patches, a learned vector for masked ones, and sine positions."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.value_embedding = nn.Linear(config["patch_len"], config["d_model"], bias=config["value_embedding_bias"])
        self.mask_embedding = nn.Parameter(torch.zeros(config["d_model"]))
        self.dropout = nn.Dropout(config["patch_dropout"])
        self.has_positions = config["add_positional_embedding"]
        self.n_patches = config["seq_len"] // config["patch_len"]
        _fill_linear(self.value_embedding)

    def forward(
        self, values: Float[torch.Tensor, "window token patch"], is_known: Bool[torch.Tensor, "window token"]
    ) -> Float[torch.Tensor, "window token width"]:
        embedded = torch.where(is_known[..., None], self.value_embedding(values), self.mask_embedding)
        if self.has_positions:
            embedded = embedded + self.positions(embedded)[self.n_patches - values.shape[1] :]
        return cast(torch.Tensor, self.dropout(embedded))

    def positions(self, like: torch.Tensor) -> Float[torch.Tensor, "patch width"]:
        """Return the vectors of all positions of a window: sines at even and cosines at odd places."""
        width = like.shape[-1]
        place = torch.arange(self.n_patches, device=like.device).float()[:, None]
        frequency = (torch.arange(0, width, 2, device=like.device).float() * -(math.log(10000.0) / width)).exp()
        angles = place * frequency
        return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1).to(like.dtype)


class Head(nn.Module):
    """Linear map from the state of a patch to its steps."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config["head_dropout"])
        self.linear = nn.Linear(config["d_model"], config["patch_len"])
        _fill_linear(self.linear)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, self.linear(self.dropout(states)))


class MomentNetwork(PlacedModule):
    """MOMENT with the head of its pre-training, which reconstructs patches."""

    # As transformers' networks declare it; the check of a checkpoint's tensors reads it.
    _keys_to_ignore_on_load_unexpected = tuple(f"^{name}$" for name in UNUSED)

    def __init__(self, config: Mapping[str, Any], encoder: Mapping[str, Any]) -> None:
        """Build the network of a full config, see `moment.Config`; encoder: its keys that T5Config reads.

        The package's encoder also has an embedding of words, which nothing reads; it is left out.
        """
        super().__init__()
        self.patch_embedding = PatchEmbedding(config)
        self.encoder = T5EncoderModel(T5Config(**encoder, vocab_size=1, pad_token_id=0, eos_token_id=0)).get_encoder()
        self.encoder.embed_tokens = None
        self.head = Head(config)
        use_windowwise(self.encoder)

    def forward(
        self,
        values: Float[torch.Tensor, "window token patch"],
        is_known: Bool[torch.Tensor, "window token"],
        attended: Bool[torch.Tensor, "window token"],
    ) -> Float[torch.Tensor, "window token patch"]:
        """Return the reconstructed patches, scaled.

        values: scaled patches, the last one at the end of the window. is_known: whether a patch is read, else it is
        masked. attended: whether tokens attend to a patch.
        """
        embedded = self.patch_embedding(values, is_known)
        states = self.encoder(inputs_embeds=embedded, attention_mask=attended.to(embedded.dtype)).last_hidden_state
        return cast(torch.Tensor, self.head(states))


def _fill_linear(module: nn.Linear) -> None:
    """Draw orthogonal weights and set the bias to 0."""
    nn.init.orthogonal_(module.weight, gain=GAIN)
    if module.bias is not None:
        nn.init.zeros_(module.bias)
