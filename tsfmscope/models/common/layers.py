"""Parts of networks that we wrote."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn


class PlacedModule(nn.Module):
    """Network that states the device of its weights."""

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.parameters()).device


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last axis, x / sqrt(mean(x^2) + eps), with or without a weight."""

    def __init__(self, width: int, eps: float, has_weight: bool = True) -> None:
        super().__init__()
        self.eps = eps
        self.register_parameter("weight", nn.Parameter(torch.ones(width)) if has_weight else None)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        normed = states * torch.rsqrt(states.square().mean(dim=-1, keepdim=True) + self.eps)
        if self.weight is not None:
            normed = normed * cast(torch.Tensor, self.weight)
        return normed


def split_heads(projected: torch.Tensor, heads: int) -> torch.Tensor:
    """Return [B, T, h * d_h] as [B, h, T, d_h]."""
    split: torch.Tensor = projected.unflatten(-1, (heads, -1)).transpose(1, 2)
    return split


def join_heads(heads: torch.Tensor) -> torch.Tensor:
    """Return [B, h, T, d_h] as [B, T, h * d_h]."""
    joined: torch.Tensor = heads.transpose(1, 2).flatten(-2)
    return joined


def rotate(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Return heads [..., T, d_h], rotated by their position; coordinate i is paired with i + d_h / 2."""
    first, second = heads.chunk(2, dim=-1)
    return heads * cos + torch.cat((-second, first), dim=-1) * sin
