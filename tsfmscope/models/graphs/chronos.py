"""Forecasts of Chronos-Bolt and Chronos-2 as torch modules, which exporters can trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tsfmscope.models.common.scale import HUGE, LARGEST

Embed = Callable[[torch.Tensor, torch.Tensor, int], tuple[torch.Tensor, torch.Tensor]]


class BoltGraph(nn.Module):
    """Quantiles [B, Q, H] of contexts [B, C], NaN where a step is missing, by Chronos-Bolt."""

    def __init__(self, network: Any, horizon: int) -> None:
        """Wrap a network of the package chronos."""
        super().__init__()
        self.network, self.horizon = network, horizon

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        """Return the quantiles in the data's units."""
        scaled, factor = divide_huge(context)
        return multiply_back(self.network(context=scaled).quantile_preds[:, :, : self.horizon], factor)


class Chronos2Graph(nn.Module):
    """Quantiles [B, Q, H] of contexts [B, C], NaN where a step is missing, by Chronos-2.

    Every series is a group of its own. Group attention over one series returns its value, so queries and keys of the
    group are left out.
    """

    def __init__(self, network: Any, embed: Embed, horizon: int) -> None:
        """Wrap a network of the package chronos.

        embed: function from patches, masks and the number of horizon patches to the input of block 0 and the mask
        of the attended rows.
        """
        super().__init__()
        self.network, self.embed, self.horizon = network, embed, horizon
        self.ahead = -(-horizon // int(network.chronos_config.output_patch_size))

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        """Return the quantiles in the data's units."""
        network, ahead = self.network, self.ahead
        values, factor = divide_huge(context)
        scaled, loc_scale = network.instance_norm(values)
        masks = torch.nan_to_num(network.patch((~torch.isnan(values)).float()), nan=0.0)
        patches = torch.where(masks > 0, network.patch(scaled), 0.0)
        states, attended = self.embed(patches, masks > 0, ahead)
        at = torch.arange(states.shape[1])[None]
        mask = network.encoder._expand_and_invert_time_attention_mask(attended, states.dtype)
        for block in network.encoder.block:
            over_time, over_group, feed_forward = block.layer
            states = over_time(states, position_ids=at, attention_mask=mask)[0]
            attention = over_group.self_attention
            states = feed_forward(states + attention.o(attention.v(over_group.layer_norm(states))))
        last = network.encoder.final_layer_norm(states)[:, -ahead:]
        flat = network.output_patch_embedding(last)  # [B, T, Q * patch]
        by_patch = flat.unflatten(-1, (network.num_quantiles, -1)).transpose(1, 2)  # [B, Q, T, patch]
        quantiles = network.instance_norm.inverse(by_patch.flatten(1), loc_scale)
        return multiply_back(quantiles.unflatten(1, (network.num_quantiles, -1))[:, :, : self.horizon], factor)


def divide_huge(context: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Divide contexts [B, C] above HUGE by their largest value; return them and the divisors [B, 1].

    `rescale_extreme` divides by a power of two instead, so that results differ by rounding there.
    """
    top = torch.where(torch.isnan(context), 0.0, context).abs().amax(dim=-1, keepdim=True)
    factor = torch.where(top > HUGE, top, 1.0)
    return context / factor, factor


def multiply_back(quantiles: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Return quantiles [B, Q, H] times the divisors [B, 1], clipped to the range of float32."""
    return (quantiles.double() * factor.double()[:, :, None]).clamp(-LARGEST, LARGEST).float()
