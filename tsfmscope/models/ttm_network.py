"""Network of TTM in plain torch: a mixer without attention, with the names and arithmetic of IBM's granite-tsfm."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import nn
from torch.nn import functional

from tsfmscope.models.common.layers import PlacedModule

# Narrowest state of a level of adaptive patching, exclusive: a narrower level keeps the patches as they are.
NARROWEST = 4


def level_factor(width: int, level: int) -> int:
    """Return the number of parts into which a level cuts each row; 1 where parts would be too narrow."""
    return 1 if width // 2**level <= NARROWEST else int(2**level)


class TTMNetwork(PlacedModule):
    """TTM of one channel: patches are embedded, mixed by an encoder and a decoder, and mapped to the horizon.

    Modules are named as in TinyTimeMixerForPrediction, so that its checkpoints load.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.rows = count_rows(config)
        self.backbone = nn.ModuleDict({"encoder": _Encoder(config, self.rows)})
        self.decoder = _Decoder(config, self.rows) if config["use_decoder"] else None
        self.head = _Head(config, self.rows)
        self.horizon = config["prediction_filter_length"] or config["prediction_length"]

    @property
    def blocks(self) -> list[MixerLayer]:
        """Mixer layers of the encoder, in the order of the forward pass."""
        return list(cast(_Encoder, self.backbone["encoder"]).mlp_mixer_encoder)

    @property
    def decoder_blocks(self) -> list[MixerLayer]:
        """Mixer layers of the decoder, in the order of the forward pass; none without a decoder."""
        return [] if self.decoder is None else list(self.decoder.decoder_block)

    def encode(
        self, patches: Float[torch.Tensor, "window patch step"], frequency: Int[torch.Tensor, " window"]
    ) -> Float[torch.Tensor, "window token width"]:
        """Return the encoder's states of scaled patches.

        frequency: frequency tokens; read only by a model with a prefix of the resolution, whose row comes first.
        """
        return cast(torch.Tensor, self.backbone["encoder"](patches, frequency))

    def forward(
        self, patches: Float[torch.Tensor, "window patch step"], frequency: Int[torch.Tensor, " window"]
    ) -> Float[torch.Tensor, "window horizon"]:
        """Return the forecast in scaled units, cut to prediction_filter_length where the config has one."""
        states = self.encode(patches, frequency)
        if self.decoder is not None:
            states = self.decoder(states, patches)
        return cast(torch.Tensor, self.head(states)[:, : self.horizon])


def count_rows(config: Mapping[str, Any]) -> int:
    """Return the number of rows of the encoder: whole patches, and the prefix where the model has one."""
    patches = (config["context_length"] - config["patch_length"]) // config["patch_stride"] + 1
    return int(patches + bool(config["resolution_prefix_tuning"]))


class MixerLayer(nn.Module):
    """Mixes across the rows, then across the features of each row; input and output are [B, T, d].

    factor: equal parts into which every row is cut while the layer works on it, as adaptive patching does. The parts
    of a row are consecutive features, so that the cut and its inverse are views.
    """

    def __init__(self, config: Mapping[str, Any], rows: int, width: int, dropout: float, factor: int) -> None:
        super().__init__()
        self.factor = factor
        rows, width = rows * factor, width // factor
        self.patch_mixer = _Mixer(config, width, rows, dropout) if rows > 1 else None
        self.feature_mixer = _Mixer(config, width, width, dropout)

    def forward(self, states: Float[torch.Tensor, "window token width"]) -> Float[torch.Tensor, "window token width"]:
        """Return the mixed states."""
        count, rows, width = states.shape
        parts = states.reshape(count, rows * self.factor, width // self.factor)
        if self.patch_mixer is not None:
            parts = parts + self.patch_mixer.mix(self.patch_mixer.norm(parts).transpose(1, 2)).transpose(1, 2)
        parts = parts + self.feature_mixer.mix(self.feature_mixer.norm(parts))
        return parts.reshape(count, rows, width)


class _Mixer(nn.Module):
    """Norm over the features, then an MLP over an axis of `size`, and a gate that weighs its output.

    The gate is the package's "gated attention": a softmax over the axis, of a linear map of the output.
    """

    def __init__(self, config: Mapping[str, Any], width: int, size: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.Sequential(OrderedDict(norm=nn.LayerNorm(width, eps=config["norm_eps"])))
        self.mlp = _Mlp(size, size * config["expansion_factor"], dropout)
        self.gating_block = _Gate(size) if config["gated_attn"] else None

    def mix(self, values: torch.Tensor) -> torch.Tensor:
        """Return what is added to the states, for normed states whose last axis has `size`."""
        mixed: torch.Tensor = self.mlp(values)
        return mixed if self.gating_block is None else self.gating_block(mixed)


class _Mlp(nn.Module):
    def __init__(self, size: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(size, hidden), nn.Linear(hidden, size)
        self.dropout = dropout

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        hidden = functional.dropout(functional.gelu(self.fc1(values)), self.dropout, self.training)
        return functional.dropout(self.fc2(hidden), self.dropout, self.training)


class _Gate(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.attn_layer = nn.Linear(size, size)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, values * self.attn_layer(values).softmax(dim=-1))


class _MixerStack(nn.Module):
    """Mixer layers one after another: of every level, the finest patches first, or without levels."""

    def __init__(
        self, config: Mapping[str, Any], rows: int, width: int, layers: int, levels: int, dropout: float
    ) -> None:
        super().__init__()

        def make(factor: int) -> list[MixerLayer]:
            return [MixerLayer(config, rows, width, dropout, factor) for _ in range(layers)]

        factors = [level_factor(width, level) for level in reversed(range(levels))]
        by_level = [nn.ModuleDict({"mixer_layers": nn.ModuleList(make(factor))}) for factor in factors]
        self.mixers = nn.ModuleList(by_level or make(1))

    def __iter__(self) -> Iterator[MixerLayer]:
        for module in self.modules():
            if isinstance(module, MixerLayer):
                yield module

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        for layer in self:
            states = layer(states)
        return states


class _Encoder(nn.Module):
    def __init__(self, config: Mapping[str, Any], rows: int) -> None:
        super().__init__()
        patch, width = config["patch_length"], config["d_model"]
        self.patcher = nn.Linear(patch, width)
        layers, levels = config["num_layers"], config["adaptive_patching_levels"]
        self.mlp_mixer_encoder = _MixerStack(config, rows, width, layers, levels, config["dropout"])
        self.freq_mod = None
        if config["resolution_prefix_tuning"]:
            between = (patch + width) // 2
            embedding = nn.Embedding(config["frequency_token_vocab_size"], patch)
            self.freq_mod = nn.Sequential(embedding, nn.Linear(patch, between), nn.GELU(), nn.Linear(between, width))

    def forward(self, patches: torch.Tensor, frequency: torch.Tensor) -> torch.Tensor:
        embedded = self.patcher(patches)
        if self.freq_mod is not None:
            embedded = torch.cat((self.freq_mod(frequency)[:, None], embedded), dim=1)
        return cast(torch.Tensor, self.mlp_mixer_encoder(embedded))


class _Decoder(nn.Module):
    def __init__(self, config: Mapping[str, Any], rows: int) -> None:
        super().__init__()
        width = config["decoder_d_model"]
        self.adapter = nn.Linear(config["d_model"], width) if config["d_model"] != width else None
        has_raw = config["decoder_raw_residual"]
        self.decoder_raw_embedding = nn.Linear(config["patch_length"], width) if has_raw else None
        layers, levels = config["decoder_num_layers"], config["decoder_adaptive_patching_levels"]
        self.decoder_block = _MixerStack(config, rows, width, layers, levels, config["head_dropout"])

    def forward(self, states: torch.Tensor, patches: torch.Tensor) -> torch.Tensor:
        if self.adapter is not None:
            states = self.adapter(states)
        if self.decoder_raw_embedding is not None:
            # The prefix has no raw patch: the package embeds zeros for it.
            padded = functional.pad(patches, (0, 0, states.shape[1] - patches.shape[1], 0))
            states = states + self.decoder_raw_embedding(padded)
        return cast(torch.Tensor, self.decoder_block(states))


class _Head(nn.Module):
    def __init__(self, config: Mapping[str, Any], rows: int) -> None:
        super().__init__()
        width = config["decoder_d_model"] if config["use_decoder"] else config["d_model"]
        self.dropout = config["head_dropout"]
        self.base_forecast_block = nn.Linear(rows * width, config["prediction_length"])

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        flat = functional.dropout(states.flatten(1), self.dropout, self.training)
        return cast(torch.Tensor, self.base_forecast_block(flat))
