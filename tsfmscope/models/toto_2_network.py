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
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import nn
from torch.nn import functional

from tsfmscope.models.common.attention import AttentionLayer, Widths, any_width
from tsfmscope.models.common.layers import PlacedModule, RMSNorm, join_heads, split_heads

# Share of a head that is rotated, base of its frequencies, and patches per unit of the xPos exponent: the package's.
ROTATED, BASE, XPOS_STEPS = 0.5, 10_000.0, 256
PARTS = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}


class Rotation(NamedTuple):
    """Cosines and sines of the angles of every patch and rotated dimension, and the factors of xPos on queries."""

    cos: Float[torch.Tensor, "token rotated"]
    sin: Float[torch.Tensor, "token rotated"]
    stretch: Float[torch.Tensor, "token rotated"] | None

    def queries(self, heads: torch.Tensor) -> torch.Tensor:
        """Rotate the first dimensions of query heads [..., T, d_h]."""
        return self._rotate(heads, self.stretch)

    def keys(self, heads: torch.Tensor) -> torch.Tensor:
        """Rotate the first dimensions of key heads [..., T, d_h]."""
        return self._rotate(heads, None if self.stretch is None else 1 / self.stretch)

    def _rotate(self, heads: torch.Tensor, factor: torch.Tensor | None) -> torch.Tensor:
        width = self.cos.shape[-1]
        part = heads[..., :width]
        even, odd = part[..., ::2], part[..., 1::2]
        turned = part * self.cos + torch.stack((-odd, even), dim=-1).flatten(-2) * self.sin
        return torch.cat((turned if factor is None else turned * factor, heads[..., width:]), dim=-1)


def make_rotation(tokens: int, rotated: int, has_xpos: bool, device: torch.device) -> Rotation:
    """Return angles and xPos factors (Sun et al. 2022) of this number of patches.

    rotated: dimensions of a head that are rotated. Scores depend on distances only; xPos counts from the middle, as in
    the package, to keep factors small.
    """
    pairs = torch.arange(0, rotated, 2, device=device)
    at = torch.arange(tokens, device=device)
    angles = (at[:, None].float() / BASE ** (pairs / rotated)).repeat_interleave(2, dim=-1)
    if not has_xpos:
        return Rotation(angles.cos(), angles.sin(), None)
    base = (pairs + 0.4 * rotated) / (1.4 * rotated)
    stretch = base ** ((at - tokens // 2)[:, None] / XPOS_STEPS)
    return Rotation(angles.cos(), angles.sin(), stretch.repeat_interleave(2, dim=-1))


class PerDimScale(nn.Module):
    """Learned positive factor of each dimension of a query, softplus(p) / ln 2."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.per_dim_scale = nn.Parameter(torch.zeros(width))

    def factors(self) -> torch.Tensor:
        """Return the factors; 1 where the parameter is 0."""
        return functional.softplus(self.per_dim_scale) / math.log(2)


class Attention(nn.Module):
    """Attention over the patches before (time) or over the series of a group at one patch (variate).

    Scores are q·k over the width of a key, not over its root.
    """

    def __init__(self, shape: Mapping[str, Any], *, is_variate: bool) -> None:
        super().__init__()
        width, self.heads, self.groups = shape["d_model"], shape["num_heads"], shape["num_groups"]
        key, value, bias = shape["qk_dim"], shape["v_dim"], shape["attn_bias"]
        # Widths of a head at the release; a compressed one may be narrower.
        self.key_width, self.value_width = key, value
        self.is_variate, self.scale = is_variate, 1 / key
        self.in_scale, self.out_scale = width**-0.5, (value * self.heads) ** -0.5
        self.q_proj = nn.Linear(width, self.heads * key, bias=bias)
        self.k_proj = nn.Linear(width, self.groups * key, bias=bias)
        self.v_proj = nn.Linear(width, self.groups * value, bias=bias)
        self.out_proj = nn.Linear(self.heads * value, width, bias=bias)
        eps, has_weight = shape["norm_eps"], shape["qk_norm_include_weight"]
        self.q_norm, self.k_norm = (RMSNorm(key, eps, has_weight) if shape["qk_norm"] else None for _ in range(2))
        self._pds = PerDimScale(key) if shape["per_dim_scale"] else None

    def forward(
        self,
        states: Float[torch.Tensor, "row column width"],
        mask: Bool[torch.Tensor, "#row 1 column column"] | None,
        rotation: Rotation | None,
    ) -> Float[torch.Tensor, "row column width"]:
        scaled = states * self.in_scale
        query = split_heads(self.q_proj(scaled), self.heads)
        key, value = (split_heads(part(scaled), self.groups) for part in (self.k_proj, self.v_proj))
        if self.q_norm is not None and self.k_norm is not None:
            query, key = self.q_norm(query), self.k_norm(key)
        if self._pds is not None:
            query = query * self._pds.factors()
        if rotation is not None:
            query, key = rotation.queries(query), rotation.keys(key)
        if self.heads > self.groups:
            key, value = (part.repeat_interleave(self.heads // self.groups, dim=1) for part in (key, value))
        heads = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None, scale=self.scale
        )
        output: torch.Tensor = self.out_proj(join_heads(heads)) * self.out_scale
        return output

    def read_itself(self, states: Float[torch.Tensor, "row column width"]) -> Float[torch.Tensor, "row column width"]:
        """Return the output where every column reads itself only, so that queries and keys have no effect."""
        value = split_heads(self.v_proj(states * self.in_scale), self.groups)
        value = value.repeat_interleave(self.heads // self.groups, dim=1)
        output: torch.Tensor = self.out_proj(join_heads(value)) * self.out_scale
        return output


def attentions(blocks: Iterable[Any]) -> Iterator[AttentionLayer]:
    """Yield the attention of every block, of kind `time` or `group`.

    Queries and keys of time layers are rotated. Those of variate layers are plain where they are not normed.
    """
    for layer, block in enumerate(blocks, start=1):
        module = block.attn
        kind, is_folded = ("group" if module.is_variate else "time"), module._pds is not None and module.q_norm is None
        yield AttentionLayer(
            "decoder", layer, kind, module, module.heads, module.groups, module.scale,
            module.is_variate and module.q_norm is None,
            _resize_folded if is_folded else any_width, PARTS, _query_scale if is_folded else None,
        )  # fmt: skip


def _query_scale(module: Attention) -> np.ndarray:
    assert module._pds is not None
    factors: np.ndarray = module._pds.factors().detach().float().cpu().numpy()
    return factors


def _resize_folded(module: Attention, widths: Widths) -> None:
    """Set the factors of queries to 1, since `read` has folded them into W_Q, at the width of a key."""
    assert module._pds is not None
    old = module._pds.per_dim_scale
    module._pds.per_dim_scale = nn.Parameter(old.new_zeros(widths.key), requires_grad=old.requires_grad)


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
        self, states: Float[torch.Tensor, "window token width"], mask: torch.Tensor | None, rotation: Rotation
    ) -> Float[torch.Tensor, "window token width"]:
        """Return the stream.

        mask: [B, 1, T, T] of a time layer, None where causal; [T or 1, 1, B, B] of a variate layer.
        """
        normed = self.norm1(states)
        if self.attn.is_variate:
            added = self.attn(normed.transpose(0, 1), mask, None).transpose(0, 1)
        else:
            added = self.attn(normed, mask, rotation)
        return self.add(states, added)

    def add(
        self, states: Float[torch.Tensor, "window token width"], added: Float[torch.Tensor, "window token width"]
    ) -> Float[torch.Tensor, "window token width"]:
        """Return the stream after the output of the attention and that of the MLP are added."""
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
        rotation = self.rotate_patches(values.shape[1])
        states: torch.Tensor = self.patch_proj(torch.cat((values, unknown), dim=-1))
        for block in self.blocks:
            states = block(states, over_group if block.attn.is_variate else over_time, rotation)
        normed: torch.Tensor = self.transformer.out_norm(states)
        return normed

    def rotate_patches(self, tokens: int) -> Rotation:
        """Return the rotation of this number of patches."""
        return make_rotation(tokens, self.rotated, self.has_xpos, self.device)

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
