"""Sample paths of Lag-Llama: one pass over a window's context, then one token of every path at a time.

The next value of a path is drawn by inverse CDF from given uniforms. Another batch size therefore changes a
path by rounding only.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch.nn import functional

from tsfmscope.models.common.layers import join_heads
from tsfmscope.models.lag_llama.network import LagLlamaNetwork, Standardised, StudentT, features, rotary_angles

if TYPE_CHECKING:
    from tsfmscope.models.lag_llama.network import Attention

# Sample paths that are computed together: enough to fill matrix products, few enough for the
# caches.
ROWS = 1024
# Replaces a uniform of 0, whose quantile is infinite. It is half of the smallest positive uniform
# that can be drawn.
SMALLEST = 2.0**-54


def sample_paths(
    network: LagLlamaNetwork,
    scaled: Standardised,
    lags: torch.Tensor,
    tokens: int,
    calendar: Float[torch.Tensor, "window step 6"],
    uniforms: Float[np.ndarray, "window path horizon"],
    rope_factor: float,
) -> Float[np.ndarray, "window path horizon"]:
    """Return the scaled values of every sample path.

    Each value is drawn given the last `tokens` steps of the context and the path so far.
    calendar: features of these `tokens` steps and of the horizon's steps. uniforms: in [0, 1), one per value.
    loc and scale stay those of the context, as in training. Deviation: the released code estimates them again
    after each sampled step, which it counts as observed. All inputs would then change, so that no keys could
    be cached.
    """
    windows, paths, horizon = uniforms.shape
    before = scaled.steps.shape[1]
    positions = torch.arange(before + horizon, device=lags.device)
    with torch.inference_mode():
        inputs = features(scaled.steps, scaled.static, lags, positions[before - tokens : before], calendar[:, :tokens])
        decoder = PathDecoder(network, inputs, paths, horizon, rope_factor)
        known = scaled.steps.new_empty(windows, paths, before + horizon)
        known[..., :before] = scaled.steps[:, None]
        static = scaled.static[:, None].expand(-1, paths, -1)
        answer = decoder.first
        for step, position in enumerate(positions[before:]):
            known[..., position] = _quantiles_at(answer, uniforms[:, :, step])
            if step + 1 < horizon:
                # All paths of a window share the date.
                own = calendar[:, None, tokens + step, None]  # [W, 1, 1, 6]
                answer = decoder.next(features(known, static, lags, position[None], own)[:, :, 0], step)
    return known[..., before:].double().cpu().numpy()


def _quantiles_at(answer: StudentT, uniforms: Float[np.ndarray, "window path"]) -> torch.Tensor:
    """Return the quantiles [W, S], at the levels `uniforms`, of distributions [W, S] or [W, 1]."""
    from scipy.special import stdtrit

    df, loc, scale = (part.double().cpu().numpy() for part in answer)
    values = loc + scale * stdtrit(df, np.maximum(uniforms, SMALLEST))
    return torch.from_numpy(values).to(answer.loc)


class PathDecoder:
    """Decoder that computes one token of every path at a time, with preallocated key and value caches.

    The paths of a window share the keys and values of its context.
    """

    def __init__(
        self, network: LagLlamaNetwork, inputs: torch.Tensor, paths: int, horizon: int, rope_factor: float
    ) -> None:
        """Run the context and allocate caches for `horizon` tokens of `paths` paths per window.

        inputs: [W, T, F], of the context's tokens.
        """
        self.network, self.tokens = network, inputs.shape[1]
        self._cos, self._sin = rotary_angles(self.tokens + horizon, network.head_width, rope_factor, inputs.device)
        self._context: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._own: list[tuple[torch.Tensor, torch.Tensor]] = []
        states = network.transformer.wte(inputs)
        positions = slice(0, self.tokens)
        for block in network.blocks:
            query, key, value = block.attn.project(block.rms_1(states), self._cos[positions], self._sin[positions])
            heads = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            states = states + block.attn.c_proj(join_heads(heads))
            states = states + block.mlp(block.rms_2(states))
            self._context.append((key, value))
            room = (*key.shape[:2], paths, horizon)
            own = (tensor.new_empty((*room, tensor.shape[-1])) for tensor in (key, value))  # [W, h, S, H, d_h or d_v]
            self._own.append((next(own), next(own)))
        self.first = network.head(states[:, -1:])  # [W, 1]

    def next(self, inputs: torch.Tensor, step: int) -> StudentT:
        """Return the distributions [W, S] of the step after `step`, given the inputs [W, S, F] of `step`."""
        states = self.network.transformer.wte(inputs)
        for index, block in enumerate(self.network.blocks):
            states = states + self._attend(block.attn, block.rms_1(states), index, step)
            states = states + block.mlp(block.rms_2(states))
        return self.network.head(states)

    def _attend(self, attention: Attention, states: torch.Tensor, index: int, step: int) -> torch.Tensor:
        position = self.tokens + step
        query, key, value = attention.project(states, self._cos[position], self._sin[position])  # [W, h, S, d_h]
        (keys, values), (own_keys, own_values) = self._context[index], self._own[index]
        own_keys[..., step, :], own_values[..., step, :] = key, value
        query = (query / math.sqrt(query.shape[-1])).contiguous()
        shared = query @ keys.transpose(-1, -2)  # [W, h, S, T]
        own = (query[..., None, :] @ own_keys[..., : step + 1, :].transpose(-1, -2))[..., 0, :]  # [W, h, S, step + 1]
        weights = torch.softmax(torch.cat((shared, own), dim=-1), dim=-1)
        over_context, over_own = weights.split((self.tokens, step + 1), dim=-1)
        from_own = (over_own[..., None, :] @ own_values[..., : step + 1, :])[..., 0, :]
        output: torch.Tensor = attention.c_proj(join_heads(over_context @ values + from_own))
        return output
