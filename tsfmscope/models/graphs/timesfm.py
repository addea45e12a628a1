"""Forecasts of TimesFM 2.0 and 2.5 as torch modules, which exporters can trace.

The functions compute what those of `tsfmscope.models.timesfm.patches` compute, in float64 as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tsfmscope.models.common.scale import LARGEST
from tsfmscope.models.timesfm import patches as timesfm_patches

# Function from patches and masks [B, T, patch] to scaled patches, and loc and scale [B] of the last one.
Scale = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]


@dataclass(frozen=True, eq=False)
class Parts:
    """Parts of a TimesFM model that its forecast consists of.

    decode, outputs: as in TimesFMFamily. patch: steps of a patch. mirrored, keeps_sign: whether a forecast is averaged
    with that of the mirror image, and whether it has no negative step after a context without one.
    """

    scale: Scale
    decode: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
    outputs: Callable[[torch.Tensor], torch.Tensor]
    patch: int
    mirrored: bool
    keeps_sign: bool


class TimesFMGraph(nn.Module):
    """Quantiles [B, Q, H] of contexts [B, C], NaN where a step is missing, and frequency ids [B], by TimesFM."""

    def __init__(self, network: Any, parts: Parts, horizon: int) -> None:
        """Wrap a network of transformers."""
        super().__init__()
        self.network, self.parts, self.horizon = network, parts, horizon

    def forward(self, context: torch.Tensor, frequency: torch.Tensor | None = None) -> torch.Tensor:
        """Return the quantiles in the data's units; frequency: ids, for a model that reads them."""
        parts = self.parts
        steps, masked = fill_gaps(context.double())
        left = -context.shape[1] % parts.patch
        patches = nn.functional.pad(steps, (left, 0)).unflatten(1, (-1, parts.patch))
        masks = nn.functional.pad(masked, (left, 0), value=True).unflatten(1, (-1, parts.patch))
        scaled, loc, scale = parts.scale(patches, masks)
        ids = masks[:, 0, 0].long() * 0 if frequency is None else frequency
        inputs = torch.where(masks, 0.0, scaled.clamp(-timesfm_patches.LARGEST, timesfm_patches.LARGEST)).float()
        output = parts.outputs(parts.decode(inputs, masks, ids)[:, -1])  # [B, H, 1 + Q]
        if parts.mirrored:
            other = parts.outputs(parts.decode(-inputs, masks, ids)[:, -1])
            output = (output - torch.cat((other[..., :1], other[..., 1:].flip(-1)), dim=-1)) / 2
        values = output.double() * scale[:, None, None] + loc[:, None, None]
        quantiles = values[:, : self.horizon, 1:].transpose(1, 2)
        if parts.keeps_sign:
            negative = (context < 0).any(dim=1)[:, None, None]
            quantiles = torch.where(negative, quantiles, quantiles.clamp(min=0.0))
        return quantiles.clamp(-LARGEST, LARGEST).float()


def fill_gaps(context: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Interpolate missing steps of contexts [B, C], and return the steps before the first observed one as a mask.

    Missing steps at the end repeat the last observed one; masked steps are 0.
    """
    length = context.shape[1]
    observed = ~torch.isnan(context)
    at = torch.arange(length).expand_as(context)
    before = running_max(torch.where(observed, at, -1))
    # The same from the end: the position of the next observed step, or `length`.
    after = length - 1 - running_max(torch.where(observed, length - 1 - at, -1).flip(1)).flip(1)
    values = torch.where(observed, context, 0.0)
    first = values.gather(1, before.clamp(min=0))
    last = values.gather(1, after.clamp(max=length - 1))
    share = (at - before).double() / (after - before).clamp(min=1).double()
    between = torch.where(after < length, first + (last - first) * share, first)
    masked = before < 0
    return torch.where(masked, 0.0, torch.where(observed, values, between)), masked


def scale_by_first_patch(
    tolerance: float, patches: torch.Tensor, masks: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scale patches [B, T, patch] as `patches.scale_by_first_patch` does; return also loc and scale [B]."""
    count, mean, deviation = _moments(patches, masks)
    enough = count >= timesfm_patches.ENOUGH
    chosen = enough & (enough.long().cumsum(dim=1) == 1)
    is_last = torch.arange(patches.shape[1]) == patches.shape[1] - 1
    chosen = chosen | (~enough.any(dim=1, keepdim=True) & is_last)
    loc, scale = (torch.where(chosen, part, 0.0).sum(dim=1) for part in (mean, deviation))
    scale = scale.clamp(min=tolerance)
    return (patches - loc[:, None, None]) / scale[:, None, None], loc, scale


def scale_running(patches: torch.Tensor, masks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scale patches [B, T, patch] as `patches.scale_running` does; return also loc and scale [B] of the last one."""
    count, centre, spread = _moments(patches.flatten(1), masks.flatten(1))
    spread = spread * torch.sqrt(count / (count - 1).clamp(min=1))
    values = torch.where(masks, 0.0, (patches - centre[:, None, None]) / _safe(spread)[:, None, None])
    count, mean, deviation = _moments(values, masks)
    earlier = torch.ones(patches.shape[1], patches.shape[1], dtype=torch.float64).tril()
    n_seen = (count @ earlier.T).clamp(min=1)
    loc = (count * mean) @ earlier.T / n_seen
    # [B, T, earlier T]
    squares = deviation[:, None] ** 2 + (mean[:, None] - loc[:, :, None]) ** 2
    scale = torch.sqrt((count[:, None] * earlier * squares).sum(dim=2) / n_seen)
    scaled = (values - loc[:, :, None]) / _safe(scale)[:, :, None]
    return scaled, centre + spread * loc[:, -1], spread * scale[:, -1]


def _moments(values: torch.Tensor, masks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return number, mean and standard deviation of unmasked values over the last axis; 0 without any."""
    count = (~masks).double().sum(dim=-1)
    divisor = count.clamp(min=1)
    mean = torch.where(masks, 0.0, values).sum(dim=-1) / divisor
    squares = torch.where(masks, 0.0, (values - mean[..., None]) ** 2).sum(dim=-1)
    return count, mean, torch.sqrt(squares / divisor)


def _safe(scale: torch.Tensor) -> torch.Tensor:
    return torch.where(scale < timesfm_patches.TOLERANCE, 1.0, scale)


def running_max(values: torch.Tensor) -> torch.Tensor:
    """Return the running maximum of [B, C], whose values are at least -1.

    It takes log2(C) steps. ONNX has no operator for it.
    """
    shift = 1
    while shift < values.shape[1]:
        values = torch.maximum(values, nn.functional.pad(values[:, :-shift], (shift, 0), value=-1))
        shift *= 2
    return values
