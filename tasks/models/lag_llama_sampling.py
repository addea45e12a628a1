"""Sample paths of Lag-Llama, one pass over a window's context and then one token of every path at a time.

A path's next token is drawn by inverse CDF from uniforms, so that a path moves by rounding only where its batch does.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch.nn import functional

from tasks.models.lag_llama_network import LagLlamaNetwork, Standardised, StudentT, features, rotary

if TYPE_CHECKING:
    from tasks.models.lag_llama_network import Attention

ROWS = 1024  # sample paths walked together: enough to fill matrix products, small enough for the caches
SMALLEST = 2.0**-54  # in place of a uniform of 0, whose quantile is infinite; half of the next one that is drawn


def sample_paths(
    network: LagLlamaNetwork,
    scaled: Standardised,
    lags: torch.Tensor,
    tokens: int,
    uniforms: Float[np.ndarray, "window path horizon"],
    rope_factor: float,
) -> Float[np.ndarray, "window path horizon"]:
    """Scaled values of every path: each is drawn given the context's last `tokens` steps and the path so far.

    loc and scale stay those of the context, as in training. The released code estimates them anew with each sampled
    step among the observed ones, so that no key could be kept.
    """
    windows, paths, horizon = uniforms.shape
    before = scaled.steps.shape[1]
    positions = torch.arange(before + horizon, device=lags.device)
    with torch.inference_mode():
        inputs = features(scaled.steps, scaled.static, lags, positions[before - tokens : before])
        decoder = PathDecoder(network, inputs, paths, horizon, rope_factor)
        known = scaled.steps.new_empty(windows, paths, before + horizon)
        known[..., :before] = scaled.steps[:, None]
        static = scaled.static[:, None].expand(-1, paths, -1)
        answer = decoder.first
        for step, place in enumerate(positions[before:]):
            known[..., place] = _drawn(answer, uniforms[:, :, step])
            if step + 1 < horizon:
                answer = decoder.next(features(known, static, lags, place[None])[:, :, 0], step)
    return known[..., before:].double().cpu().numpy()


def _drawn(answer: StudentT, uniforms: Float[np.ndarray, "window path"]) -> torch.Tensor:
    """Quantiles [W, S] of the distributions [W, S] or [W, 1]."""
    from scipy.special import stdtrit

    df, loc, scale = (part.double().cpu().numpy() for part in answer)
    values = loc + scale * stdtrit(df, np.maximum(uniforms, SMALLEST))
    return torch.from_numpy(values).to(answer.loc)


class PathDecoder:
    """Walks the blocks over preallocated caches; a window's paths share the keys and values of its context."""

    def __init__(
        self, network: LagLlamaNetwork, inputs: torch.Tensor, paths: int, horizon: int, rope_factor: float
    ) -> None:
        """Read the context, inputs [W, T, F], and make room for `horizon` tokens of `paths` paths a window."""
        self.network, self.tokens = network, inputs.shape[1]
        self._cos, self._sin = rotary(self.tokens + horizon, network.head_width, rope_factor, inputs.device)
        self._context: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._own: list[tuple[torch.Tensor, torch.Tensor]] = []
        states = network.transformer.wte(inputs)
        place = slice(0, self.tokens)
        for block in network.blocks:
            query, key, value = block.attn.projected(block.rms_1(states), self._cos[place], self._sin[place])
            heads = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            states = states + block.attn.joined(heads)
            states = states + block.mlp(block.rms_2(states))
            self._context.append((key, value))
            room = (*key.shape[:2], paths, horizon)
            own = (one.new_empty((*room, one.shape[-1])) for one in (key, value))  # [W, h, S, H, d_h or d_v]
            self._own.append((next(own), next(own)))
        self.first = network.head(states[:, -1:])  # [W, 1]

    def next(self, inputs: torch.Tensor, step: int) -> StudentT:
        """Distributions [W, S] of the step after `step`, given the inputs [W, S, F] of this one."""
        states = self.network.transformer.wte(inputs)
        for index, block in enumerate(self.network.blocks):
            states = states + self._attend(block.attn, block.rms_1(states), index, step)
            states = states + block.mlp(block.rms_2(states))
        return self.network.head(states)

    def _attend(self, attention: Attention, states: torch.Tensor, index: int, step: int) -> torch.Tensor:
        place = self.tokens + step
        query, key, value = attention.projected(states, self._cos[place], self._sin[place])  # [W, h, S, d_h]
        (keys, values), (own_keys, own_values) = self._context[index], self._own[index]
        own_keys[..., step, :], own_values[..., step, :] = key, value
        query = (query / math.sqrt(query.shape[-1])).contiguous()
        shared = query @ keys.transpose(-1, -2)  # [W, h, S, T]
        own = (query[..., None, :] @ own_keys[..., : step + 1, :].transpose(-1, -2))[..., 0, :]  # [W, h, S, step + 1]
        weights = torch.softmax(torch.cat((shared, own), dim=-1), dim=-1)
        over_context, over_own = weights.split((self.tokens, step + 1), dim=-1)
        from_own = (over_own[..., None, :] @ own_values[..., : step + 1, :])[..., 0, :]
        return attention.joined(over_context @ values + from_own)
