"""Continuation of contexts with Time-MoE: every step is read once, and its keys and values are cached."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int

from tsfmscope.models.time_moe.network import TimeMoENetwork, causal_mask

# Tokens of the windows that are continued together: 1.2 GB of keys and values at the 50M shape.
TOKENS = 1 << 15


def continue_values(
    network: TimeMoENetwork,
    values: Float[torch.Tensor, "window token"],
    start: Int[torch.Tensor, " window"],
    horizon: int,
    lengths: Sequence[int],
) -> Float[torch.Tensor, "window horizon"]:
    """Return the steps after scaled `values`.

    The longest head that fits the remaining horizon forecasts first, then the longest that fits the rest, and
    so on. start: as in the network's forward. lengths: steps of every head. The result equals that of passes
    over the whole series so far, up to rounding.
    """
    windows = max(1, TOKENS // (values.shape[1] + horizon))
    parts = zip(values.split(windows), start.split(windows), strict=True)
    return torch.cat([_continue_batch(network, *part, horizon, lengths) for part in parts])


def _continue_batch(
    network: TimeMoENetwork, values: torch.Tensor, start: torch.Tensor, horizon: int, lengths: Sequence[int]
) -> torch.Tensor:
    reader = Reader(network, start, values.shape[1] + horizon)
    left, parts = horizon, []
    while left:
        number = max((i for i, length in enumerate(lengths) if length <= left), default=0)
        values = network.lm_heads[number](reader.read(values))[:, :left]
        left -= values.shape[1]
        parts.append(values)
    return torch.cat(parts, dim=1)


class Reader:
    """Forward pass over steps as they arrive, with preallocated keys and values of earlier steps."""

    def __init__(self, network: TimeMoENetwork, start: torch.Tensor, room: int) -> None:
        """Prepare for at most `room` steps of each window; start: first step that is not padding."""
        self.network, self._start, self._room, self._seen = network, start, room, 0
        self._caches: list[tuple[torch.Tensor, torch.Tensor]] = []

    def read(self, values: Float[torch.Tensor, "window token"]) -> Float[torch.Tensor, "window width"]:
        """Read the next steps and return the normed state of the last one."""
        network, first, end = self.network, self._seen, self._seen + values.shape[1]
        cos, sin = network.angles(torch.arange(first, end, device=values.device) - self._start[:, None])
        free = not bool((self._start > 0).any()) and (first == 0 or values.shape[1] == 1)
        mask = None if free else causal_mask(first, end, self._start)
        states = network.model.embed_layer(values)
        for index, block in enumerate(network.blocks):
            normed = block.input_layernorm(states)
            query, key, value = block.self_attn.project(normed, cos, sin)
            keys, all_values = self._store(index, key, value)
            states = states + block.self_attn.attend(query, keys, all_values, mask, causal=free and first == 0)
            states = states + block.ffn_layer(block.post_attention_layernorm(states))[0]
        self._seen = end
        last: torch.Tensor = network.model.norm(states[:, -1])
        return last

    def _store(self, index: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Store keys and values; return those of all steps so far, [B, h, T, width].

        The first pass returns its own keys and values, which are copied to the cache but not read back.
        """
        if not self._seen:
            room = [tensor.new_empty(*tensor.shape[:2], self._room, tensor.shape[-1]) for tensor in (key, value)]
            self._caches.append((room[0], room[1]))
        at = slice(self._seen, self._seen + key.shape[2])
        for cache, tensor in zip(self._caches[index], (key, value), strict=True):
            cache[:, :, at] = tensor
        keys, values = (cache[:, :, : at.stop] for cache in self._caches[index])
        return (key, value) if not self._seen else (keys, values)
