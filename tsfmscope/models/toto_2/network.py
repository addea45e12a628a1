"""Network of Toto 2.0 (Khwaja et al. 2026): a unit-scaled decoder whose layers read time or other series.

Names of modules and parameters are those of the package toto-2 2.0.0, except that queries, keys and values have a
projection each, and so have the two halves of the gated MLP. The computations are written from that code's arithmetic.

Unit scaling (Blake et al. 2025): weights have variance 1, and factors that depend on the widths at the release stand
next to the matrices. Weights are held as released, so that files and memory agree to the bit. The factor of
a projection of queries, keys or values is applied to its input, hence its bias is held times this factor
(`Attention.in_scale`). Nothing then lies between W_V and W_O.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import nn
from torch.nn import functional

from tsfmscope.models.common.layers import PlacedModule, RMSNorm
from tsfmscope.models.toto_2.attention import ROTATED, Attention, Rotation, make_rotation

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
# Forward scale of the unit-scaled SiLU: geometric interpolation of 2 and sqrt(2 / (1 - 1/pi)), unit_scaling 0.3.5.
SILU_SCALE = 2**0.2 * (2 / (1 - 1 / math.pi)) ** 0.4


class GatedMlp(nn.Module):
    """Gated MLP, W_2 (value * silu(gate)); the package's fc1 is the matrix of values above that of gates."""

    def __init__(self, width: int, inner: int, *, bias: bool) -> None:
        super().__init__()
        self.inner = inner
        self.fc1_value, self.fc1_gate = (nn.Linear(width, inner, bias=bias) for _ in range(2))
        self.fc2 = nn.Linear(inner, width, bias=bias)
        self.in_scale, self.out_scale = width**-0.5, inner**-0.5

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        value, gate = self.fc1_value(states) * self.in_scale, self.fc1_gate(states) * self.in_scale
        output: torch.Tensor = self.fc2(value * functional.silu(gate)) * self.out_scale
        return output


class ResidualMlp(nn.Module):
    """MLP with a SiLU and a linear shortcut, before the first block and after the last.

    is_readout: outputs are divided by the number of their inputs, not by its root.
    """

    def __init__(self, inputs: int, outputs: int, hidden: int, *, is_readout: bool) -> None:
        super().__init__()
        self.linear1, self.linear2 = nn.Linear(inputs, hidden), nn.Linear(hidden, outputs)
        self.skip_proj = nn.Linear(inputs, outputs)
        self.in_scale, power = inputs**-0.5, -1.0 if is_readout else -0.5
        # Both branches have half of the variance.
        self.out_scale, self.skip_scale = hidden**power / math.sqrt(2), inputs**power / math.sqrt(2)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        inner = functional.silu(self.linear1(values) * self.in_scale) * SILU_SCALE
        output: torch.Tensor = self.linear2(inner) * self.out_scale + self.skip_proj(values) * self.skip_scale
        return output


class Block(nn.Module):
    """Attention and MLP; each reads the normed stream, and stream and output are added with weights of norm 1."""

    def __init__(self, shape: Mapping[str, Any], number: int) -> None:
        super().__init__()
        width, norm = shape["d_model"], (shape["norm_eps"], shape["norm_include_weight"])
        self.attn = Attention(shape, is_variate=is_variate(shape, number))
        self.ffn = GatedMlp(width, shape["d_ff"], bias=shape["mlp_bias"])
        self.norm1, self.norm2 = RMSNorm(width, *norm), RMSNorm(width, *norm)
        attn_tau, mlp_tau = residual_taus(shape, number)
        self.register_buffer("attn_tau", torch.tensor(attn_tau))
        self.register_buffer("mlp_tau", torch.tensor(mlp_tau))

    def forward(
        self,
        states: Float[torch.Tensor, "window token width"],
        mask: torch.Tensor | None,
        rotation: Rotation,
    ) -> Float[torch.Tensor, "window token width"]:
        """Return the stream.

        mask: [B, 1, T, T] of a time layer, None where causal; [T or 1, 1, B, B] of a variate layer.
        """
        normed = self.norm1(states)
        if self.attn.is_variate:
            added = self.attn(normed.transpose(0, 1), mask, None).transpose(0, 1)
        else:
            added = self.attn(normed, mask, rotation)
        states = _add(states, added, cast(torch.Tensor, self.attn_tau))
        return _add(states, self.ffn(self.norm2(states)), cast(torch.Tensor, self.mlp_tau))


class Decoder(nn.Module):
    """Blocks and final norm."""

    def __init__(self, shape: Mapping[str, Any]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(shape, number) for number in range(shape["num_layers"]))
        self.out_norm = RMSNorm(shape["d_model"], shape["norm_eps"], shape["norm_include_weight"])


class Toto2Network(PlacedModule):
    """Network from scaled patches to quantiles of the next patch.

    shape: keys of config.json, without defaults.
    """

    def __init__(self, shape: Mapping[str, Any]) -> None:
        super().__init__()
        width, self.size = shape["d_model"], shape["patch_size"]
        rotated = int(ROTATED * shape["qk_dim"])
        self.rotated, self.has_xpos = rotated, shape["use_xpos"]
        self.patch_proj = ResidualMlp(2 * self.size, width, 4 * width, is_readout=False)
        self.transformer = Decoder(shape)
        head = ResidualMlp(width, self.size * len(LEVELS), 4 * width, is_readout=True)
        # Released names: output_head.param_projection.proj.
        self.output_head = nn.ModuleDict({"param_projection": nn.ModuleDict({"proj": head})})

    @property
    def head(self) -> ResidualMlp:
        """Projection of the last states to quantiles."""
        return cast(ResidualMlp, self.get_submodule("output_head.param_projection.proj"))

    @property
    def blocks(self) -> list[Block]:
        """Blocks, first to last."""
        return cast(list[Block], list(self.transformer.layers))

    def draw_weights(self) -> Toto2Network:
        """Draw the weights as the package does: matrices from a normal distribution of variance 1, biases 0."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        return self

    def forward(
        self,
        values: Float[torch.Tensor, "window token patch"],
        unknown: Float[torch.Tensor, "window token patch"],
        attended: Bool[torch.Tensor, "window token"],
        groups: Int[torch.Tensor, " window"] | None = None,
    ) -> Float[torch.Tensor, "window token width"]:
        """Return normed last states.

        values: scaled steps, 0 where unknown. unknown: 1 where a step is missing or to be forecast, else 0. attended:
        False for context patches without an observed step, which only such patches read. groups: windows with the
        same number read each other in variate layers; by default each is alone.
        """
        over_time, over_group = _masks(attended, groups)
        rotation = make_rotation(values.shape[1], self.rotated, self.has_xpos, self.device)
        states: torch.Tensor = self.patch_proj(torch.cat((values, unknown), dim=-1))
        for block in self.blocks:
            states = block(states, over_group if block.attn.is_variate else over_time, rotation)
        normed: torch.Tensor = self.transformer.out_norm(states)
        return normed

    def quantiles(
        self, states: Float[torch.Tensor, "window token width"]
    ) -> Float[torch.Tensor, "window token patch quantile"]:
        """Return quantiles of the patch after each token, in scaled units; they need not ascend."""
        output: torch.Tensor = self.head(states).unflatten(-1, (self.size, len(LEVELS)))
        return output


def is_variate(shape: Mapping[str, Any], number: int) -> bool:
    """Return whether a block, counted from 0, reads the series of a group and not the time."""
    size, count = shape["layer_group_size"], shape["num_variate_layers_per_group"]
    at = number % size
    return bool(at < count if shape["variate_layer_first"] else at >= size - count)


def residual_taus(shape: Mapping[str, Any], number: int) -> tuple[float, float]:
    """Return the weights of attention and MLP of a block, counted from 0, relative to the stream.

    Source: transformer_residual_scaling_rule of unit_scaling (Blake et al. 2025, appendix G). Each attention and each
    MLP then has the same share of the last state's variance.
    """
    ratio, blocks = shape["residual_attn_ratio"], shape["num_layers"]
    mlp = shape["residual_mult"] * math.sqrt(2 / (1 + ratio**2))
    attention = ratio * mlp
    before = blocks + number * (attention**2 + mlp**2)
    return attention / math.sqrt(before), mlp / math.sqrt(before + attention**2)


def _add(stream: torch.Tensor, added: torch.Tensor, tau: torch.Tensor) -> torch.Tensor:
    """Return the sum of stream and tau times the output of a layer, at unit variance."""
    total = torch.sqrt(1 + tau**2)
    return added * (tau / total) + stream / total


def _masks(
    attended: Bool[torch.Tensor, "window token"], groups: Int[torch.Tensor, " window"] | None
) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Return which patches [B, 1, T, T] and which series [T or 1, 1, B, B] each patch reads.

    None in place of the first: all patches before and the patch itself.
    """
    over_time = None
    if not bool(attended.all()):
        alike = attended[:, :, None] == attended[:, None]
        over_time = (alike & torch.ones_like(alike[0]).tril())[:, None]
    if groups is None:
        alone = torch.eye(len(attended), dtype=torch.bool, device=attended.device)
        return over_time, alone[None, None]
    alike = attended.T[:, :, None] == attended.T[:, None]
    return over_time, (alike & (groups[:, None] == groups))[:, None]
