"""Forecast of Moirai 2 as a torch module, which exporters can trace."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from tsfmscope.models.common.scale import LARGEST
from tsfmscope.models.graphs.timesfm import running_max
from tsfmscope.models.moirai import patches as moirai_patches


class Moirai2Graph(nn.Module):
    """Quantiles [B, Q, H] of contexts [B, C], NaN where a step is missing, by Moirai 2."""

    def __init__(self, network: Any, context: int, horizon: int) -> None:
        """Copy a Moirai2Module of uni2ts, for at most `num_predict_token` patches of horizon."""
        super().__init__()
        self.network, self.horizon = copy.deepcopy(network), horizon
        tokens = -(-context // network.patch_size)
        for block in self.network.encoder.layers:
            rotation = block.self_attn.time_qk_proj.query_proj
            rotation._init_freq(max_len=tokens)
            # The graph keeps no angles of longer contexts.
            rotation.cos, rotation.sin = rotation.cos[:tokens].clone(), rotation.sin[:tokens].clone()
            # The package would compare the number of tokens with that of its angles in every pass.
            rotation._init_freq = _keep_angles

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        """Return the quantiles in the data's units."""
        network, size = self.network, self.network.patch_size
        values = nn.functional.pad(context.double(), (-context.shape[1] % size, 0), value=torch.nan)
        observed = ~torch.isnan(values)
        loc, scale = self._loc_scale(torch.where(observed, values, 0.0), observed)
        filled = causal_means(values)
        patches, masks = filled.unflatten(1, (-1, size)), observed.unflatten(1, (-1, size))
        begun = masks.any(dim=-1).long().cumsum(dim=1) > 0  # [B, T]
        scaled = torch.where(begun[:, :, None], (patches - loc[:, None]) / scale[:, None], 0.0)
        scaled = scaled.clamp(-moirai_patches.LARGEST, moirai_patches.LARGEST).float()
        embedded = network.in_proj(torch.cat((scaled, masks.to(scaled.dtype)), dim=-1))
        sample = begun.long()
        time = (sample.cumsum(dim=1) - 1).clamp_min(0)
        attended = (sample[:, :, None] == sample[:, None]) & (time[:, None] <= time[:, :, None])
        with _ExplicitAttention():
            states = network.encoder(embedded, attended, time_id=time, var_id=torch.zeros_like(sample))
        predicted = network.out_proj(states[:, -1])  # [B, N * Q * P]
        by_patch = predicted.unflatten(-1, (network.num_predict_token, network.num_quantiles, size))
        quantiles = by_patch.transpose(1, 2).flatten(2)[:, :, : self.horizon].double()
        answer: torch.Tensor = (quantiles * scale[:, None] + loc[:, None]).clamp(-LARGEST, LARGEST).float()
        return answer

    def _loc_scale(self, filled: torch.Tensor, observed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return loc and scale [B, 1], as `moirai.patches` computes them."""
        network = self.network
        if not network.scaling:
            return torch.zeros_like(filled[:, :1]), torch.ones_like(filled[:, :1])
        count = observed.sum(dim=1, keepdim=True)
        loc = filled.sum(dim=1, keepdim=True) / count.clamp_min(1)
        squares = torch.where(observed, filled - loc, 0.0).square().sum(dim=1, keepdim=True)
        return loc, (squares / (count - 1).clamp_min(1) + network.scaler.minimum_scale).sqrt()


def causal_means(steps: torch.Tensor) -> torch.Tensor:
    """Return steps [B, C] with filled gaps, as `moirai.patches.causal_means` does."""
    observed = ~torch.isnan(steps)
    values = torch.where(observed, steps, 0.0)
    at = torch.arange(steps.shape[1]).expand_as(steps)
    last = running_max(torch.where(observed, at, -1))
    held = torch.where(last >= 0, values.gather(1, last.clamp_min(0)), 0.0)
    since = (last >= 0).long().cumsum(dim=1) - 1
    means = torch.where(last >= 0, (held.cumsum(dim=1) - held) / since.clamp_min(1), 0.0)
    return torch.where(observed, values, means)


class _ExplicitAttention(TorchFunctionMode):
    """Compute attention by softmax and products, since ONNX has no attention over the package's five axes."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is not nn.functional.scaled_dot_product_attention:
            return func(*args, **kwargs)
        query, key, value = args
        scores = query @ key.transpose(-2, -1) * (kwargs.get("scale") or query.shape[-1] ** -0.5)
        return (scores + kwargs["attn_mask"]).softmax(dim=-1) @ value


def _keep_angles(max_len: Any) -> None:
    """Take the place of `_init_freq`, whose comparison of tensors cannot be traced; the angles are long enough."""
