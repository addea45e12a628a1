"""Sampling from a T5 decoder: one encoder pass and one set of cross-attention keys and values a window.

The distribution is that of transformers' `generate` with min_new_tokens = max_new_tokens: EOS excluded, then
temperature, top-k, top-p. The decoder is walked block by block over preallocated caches; the samples of a window are
the queries of one cross attention, so its keys are neither copied nor read again for each sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

ROWS = 2048  # sample paths walked together: enough to fill matrix products, small enough for the cache


class Warp(NamedTuple):
    """How logits become probabilities; the fields of chronos' config."""

    temperature: float
    top_k: int | None
    top_p: float
    excluded: int | list[int]


def sample_ids(
    network: Any, ids: torch.Tensor, mask: torch.Tensor, uniforms: torch.Tensor, config: Any
) -> torch.Tensor:
    """Sampled ids [W, S, H] for encoder ids and mask [W, T]; uniforms [W, S, H] in [0, 1) decide each step."""
    import torch

    warp = Warp(config.temperature, config.top_k, config.top_p, config.eos_token_id)
    windows = max(1, ROWS // uniforms.shape[1])
    parts = []
    with torch.inference_mode():
        for start in range(0, len(ids), windows):
            part = slice(start, start + windows)
            decoder = StepDecoder(network, ids[part], mask[part], *uniforms.shape[1:])
            parts.append(walk(decoder, _chooser(uniforms[part].to(ids.device), warp)))
    return torch.cat(parts)


def _chooser(uniforms: torch.Tensor, warp: Warp) -> Callable[[torch.Tensor, int], torch.Tensor]:
    return lambda logits, step: draw(logits, uniforms[:, :, step], warp)


def walk(decoder: StepDecoder, choose: Callable[[torch.Tensor, int], torch.Tensor]) -> torch.Tensor:
    """Ids [W, S, H] chosen step by step: `choose` gets logits [W, S, V] and the step, and answers ids [W, S]."""
    import torch

    current, chosen = decoder.start, []
    for step in range(decoder.steps):
        current = choose(decoder.logits(current, step), step)
        chosen.append(current)
    return torch.stack(chosen, dim=-1)


def draw(logits: torch.Tensor, uniforms: torch.Tensor, warp: Warp) -> torch.Tensor:
    """Ids [W, S] by inverse CDF, likeliest ids first. Ties at the k-th logit: k ids are kept, not all that tie."""
    import torch

    logits[..., warp.excluded] = -math.inf
    logits = logits / warp.temperature
    kept = min(warp.top_k or logits.shape[-1], logits.shape[-1])
    values, ids = torch.topk(logits, kept, dim=-1)  # descending
    probabilities = torch.softmax(values.double(), dim=-1)
    cumulated = probabilities.cumsum(dim=-1)
    if warp.top_p < 1.0:  # an id stays if those before it hold less than top_p; the first always stays
        outside = cumulated - probabilities >= warp.top_p
        outside[..., 0] = False
        cumulated = probabilities.masked_fill(outside, 0.0).cumsum(dim=-1)
    index = (cumulated <= uniforms[..., None] * cumulated[..., -1:]).sum(dim=-1).clamp(max=kept - 1)
    return ids.gather(-1, index[..., None])[..., 0]


class StepDecoder:
    """A T5 decoder that reads one id of every sample path at a time."""

    def __init__(self, network: Any, ids: torch.Tensor, mask: torch.Tensor, samples: int, steps: int) -> None:
        """Encode the windows [W, T] once and allocate the caches of W x samples paths and `steps` steps."""
        import torch

        self.network, self.steps, self.samples, self.windows = network, steps, samples, len(ids)
        self._stack = network.decoder
        encoded = network.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        first = self._stack.block[0].layer[0].SelfAttention
        self._bias = first.compute_bias(steps, steps)[0]  # [h, H, H]
        lowest = torch.finfo(encoded.dtype).min
        self._masked = None if bool(mask.all()) else torch.where(mask, 0.0, lowest).to(encoded.dtype)[:, None, None, :]
        self._cross = [self._cross_cache(block.layer[1].EncDecAttention, encoded) for block in self._stack.block]
        self._own = [self._own_cache(block.layer[0].SelfAttention, encoded) for block in self._stack.block]
        self.start = torch.full((len(ids), samples), network.config.decoder_start_token_id, device=ids.device)

    @property
    def caches(self) -> list[torch.Tensor]:
        """Keys and values that it holds."""
        return [part for pair in (*self._cross, *self._own) for part in pair]

    def logits(self, ids: torch.Tensor, step: int) -> torch.Tensor:
        """Logits [W, S, V] as the model emits them, given the ids [W, S] that stand at `step`."""
        hidden = self._stack.embed_tokens(ids)
        for index, block in enumerate(self._stack.block):
            own, cross, dense = block.layer
            hidden = hidden + self._attend_own(own.SelfAttention, own.layer_norm(hidden), index, step)
            hidden = hidden + self._attend_cross(cross.EncDecAttention, cross.layer_norm(hidden), index)
            hidden = dense(hidden)
        hidden = self._stack.final_layer_norm(hidden)
        if self.network.config.scale_decoder_outputs:
            hidden = hidden * self.network.model_dim**-0.5
        logits: torch.Tensor = self.network.lm_head(hidden)
        return logits

    def _attend_own(self, attention: Any, hidden: torch.Tensor, index: int, step: int) -> torch.Tensor:
        import torch

        keys, values = self._own[index]  # [W * S, h, d, H] and [W * S, h, H, d]
        paths, heads = self.windows * self.samples, attention.n_heads
        keys[..., step] = attention.k(hidden).view(paths, heads, -1)
        values[:, :, step] = attention.v(hidden).view(paths, heads, -1)
        query = attention.q(hidden).view(paths, heads, 1, -1)
        seen = step + 1
        scores = torch.matmul(query * attention.scaling, keys[..., :seen])
        weights = torch.softmax(scores.add_(self._bias[:, step:seen, :seen]), dim=-1)
        out = torch.matmul(weights, values[:, :, :seen])
        return self._joined(attention, out)

    def _attend_cross(self, attention: Any, hidden: torch.Tensor, index: int) -> torch.Tensor:
        from torch.nn.functional import scaled_dot_product_attention

        keys, values = self._cross[index]  # [W, h, T, d]
        query = attention.q(hidden).view(self.windows, self.samples, attention.n_heads, -1).transpose(1, 2)
        out = scaled_dot_product_attention(query, keys, values, attn_mask=self._masked, scale=attention.scaling)
        return self._joined(attention, out.transpose(1, 2))

    def _joined(self, attention: Any, heads: torch.Tensor) -> torch.Tensor:
        joined: torch.Tensor = attention.o(heads.reshape(self.windows, self.samples, -1))
        return joined

    def _cross_cache(self, attention: Any, encoded: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        shape = (*encoded.shape[:2], attention.n_heads, -1)
        keys, values = attention.k(encoded).view(shape), attention.v(encoded).view(shape)
        return keys.transpose(1, 2).contiguous(), values.transpose(1, 2).contiguous()

    def _own_cache(self, attention: Any, encoded: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        paths, heads = self.windows * self.samples, attention.n_heads
        key_width = attention.k.out_features // heads
        value_width = attention.v.out_features // heads
        return (
            encoded.new_empty(paths, heads, key_width, self.steps),
            encoded.new_empty(paths, heads, self.steps, value_width),
        )
