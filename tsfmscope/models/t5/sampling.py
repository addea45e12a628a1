"""Sampling from a T5 decoder: one encoder pass and one set of cross-attention keys and values per window.

The distribution is that of transformers' `generate` with min_new_tokens = max_new_tokens: EOS excluded, then
temperature, top-k, top-p. The samples of a window are the queries of one cross-attention, so its keys are
neither copied nor read again for each sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tsfmscope.models.t5.decoding import StepDecoder

if TYPE_CHECKING:
    import torch

# Sample paths decoded together: enough to fill matrix products, few enough for the cache.
ROWS = 2048


class Warp(NamedTuple):
    """Settings that turn logits into probabilities, named as in chronos' config.

    excluded: ids that are never sampled.
    """

    temperature: float
    top_k: int | None
    top_p: float
    excluded: int | list[int]


def sample_ids(
    network: Any, ids: torch.Tensor, mask: torch.Tensor, uniforms: torch.Tensor, config: Any
) -> torch.Tensor:
    """Return sampled ids [W, S, H] for encoder ids and mask [W, T].

    uniforms: [W, S, H] in [0, 1); each decides one step of one path.
    """
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
    """Return ids [W, S, H], chosen step by step.

    choose: takes logits [W, S, V] and the step, and returns ids [W, S].
    """
    import torch

    current, ids = decoder.start, []
    for step in range(decoder.steps):
        current = choose(decoder.logits(current, step), step)
        ids.append(current)
    return torch.stack(ids, dim=-1)


def draw(logits: torch.Tensor, uniforms: torch.Tensor, warp: Warp) -> torch.Tensor:
    """Sample ids [W, S] by inverse CDF, the most likely ids first.

    With ties at the k-th logit exactly k ids are kept, not all that tie. Logits of excluded ids are
    overwritten.
    """
    import torch

    logits[..., warp.excluded] = -math.inf
    if warp.temperature != 1.0:
        logits = logits / warp.temperature
    n_ids = min(warp.top_k or logits.shape[-1], logits.shape[-1])
    # In descending order.
    values, ids = torch.topk(logits, n_ids, dim=-1)
    probabilities = torch.softmax(values.double(), dim=-1)
    cumulated = probabilities.cumsum(dim=-1)
    # An id stays if the ids before it have less than top_p together; the first always stays.
    if warp.top_p < 1.0:
        outside = cumulated - probabilities >= warp.top_p
        outside[..., 0] = False
        cumulated = probabilities.masked_fill(outside, 0.0).cumsum(dim=-1)
    index = (cumulated <= uniforms[..., None] * cumulated[..., -1:]).sum(dim=-1).clamp(max=n_ids - 1)
    return ids.gather(-1, index[..., None])[..., 0]
