"""Attention of Toto 2.0: over the patches before (time), or over the series of a group at one patch (variate)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import nn
from torch.nn import functional

from tsfmscope.models.common.attention import AttentionLayer, Widths, any_width
from tsfmscope.models.common.layers import RMSNorm, join_heads, split_heads

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
