"""Forecast of PatchTST-FM as a torch module, which exporters can trace."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tsfmscope.models.common.scale import LARGEST
from tsfmscope.models.graphs.timesfm import running_max
from tsfmscope.models.patchtst_fm.windows import LARGEST_SCALED, LEAST_SCALE


class PatchTSTFMGraph(nn.Module):
    """Quantiles [B, Q, H] of contexts [B, C], NaN where a step is missing, by PatchTST-FM."""

    def __init__(self, network: Any, window: int, shortest: int, context: int, horizon: int) -> None:
        """Wrap a network whose context and forecast share `window` steps; it forecasts at least `shortest` steps."""
        super().__init__()
        self.network, self.horizon = network, horizon
        self.ahead = max(horizon, shortest)
        self.kept = min(context, window - self.ahead)

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        """Return the quantiles in the data's units."""
        network, size = self.network, self.network.size
        values = context[:, context.shape[1] - self.kept :].double()
        observed = ~torch.isnan(values)
        loc, scale = _loc_scale(values, observed)
        scaled = _asinh((torch.where(observed, values, loc) - loc) / scale)
        padded = (-(self.kept + self.ahead) % size, self.ahead)
        patches, masks = (
            nn.functional.pad(part.float(), padded).unflatten(1, (-1, size)) for part in (scaled, observed)
        )
        begun = nn.functional.pad(running_max(observed.long()), (padded[0], 0))
        real = nn.functional.pad(begun, (0, self.ahead), value=1).unflatten(1, (-1, size)).sum(dim=-1)  # [B, T]
        attended = (10 * (size - real) <= 9 * size)[:, None, None]
        vectors = network.pos_embed.embedding.weight
        states = network.in_layer(torch.cat((patches, masks), dim=-1)) + vectors[len(vectors) - patches.shape[1] :]
        for block in network.blocks:
            states = block(states, attended)
        quantiles = network.quantiles(states).flatten(2)[:, :, -self.ahead :][:, :, : self.horizon].double()
        bounded = quantiles.clamp(-LARGEST_SCALED, LARGEST_SCALED)
        answer: torch.Tensor = (_sinh(bounded) * scale[:, None] + loc[:, None]).clamp(-LARGEST, LARGEST).float()
        return answer


def _asinh(values: torch.Tensor) -> torch.Tensor:
    """Return asinh from a logarithm, since onnxruntime has none for float64."""
    size = values.abs()
    return values.sign() * (size + (size.square() + 1).sqrt()).log()


def _sinh(values: torch.Tensor) -> torch.Tensor:
    """Return sinh from exponentials, since onnxruntime has none for float64."""
    return (values.exp() - (-values).exp()) / 2


def _loc_scale(values: torch.Tensor, observed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return loc and scale [B, 1], as `patchtst_fm.windows` computes them."""
    count = observed.sum(dim=1, keepdim=True).clamp_min(1)
    filled = torch.where(observed, values, 0.0)
    loc = filled.sum(dim=1, keepdim=True) / count
    low = torch.where(observed, values, torch.inf).amin(dim=1, keepdim=True)
    high = torch.where(observed, values, -torch.inf).amax(dim=1, keepdim=True)
    loc = torch.where(low == high, low, loc)
    spread = (torch.where(observed, values - loc, 0.0).square().sum(dim=1, keepdim=True) / count).sqrt()
    return loc, torch.where(spread > LEAST_SCALE, spread, 1.0)
