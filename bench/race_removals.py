"""Ways to make attention smaller without truncation, for bench/compression_race.py: removal and rounding, in place."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from tsfmscope.compression.budget import BudgetError
from tsfmscope.compression.candidates import count_parameters
from tsfmscope.compression.fidelity import last_states, window_errors
from tsfmscope.models.base import Forecaster
from tsfmscope.models.common.attention import NAMES
from tsfmscope.models.common.int8 import dequantise, quantise

ROUNDED = ("bfloat16", "int8")


def prune_heads(model: Forecaster, size: float, _: Sequence[Any]) -> None:
    """Set the output matrices of heads to zero, those with the smallest stable rank first, in place.

    A head counts as one share of its layer's parameters. One head of every layer stays.
    """
    layers = list(model.attentions())
    ranks = []
    for number, layer in enumerate(layers):
        read = layer.read()
        shared = layer.heads // layer.groups
        for head in range(layer.heads):
            values = np.linalg.svd(read.o[head] @ read.v[head // shared], compute_uv=False)
            ranks.append((float(np.square(values).sum() / max(values[0] ** 2, 1e-30)), number, head))
    total = remaining = float(count_parameters(layers))
    left = [layer.heads for layer in layers]
    for _rank, number, head in sorted(ranks):
        layer = layers[number]
        if remaining <= size * total:
            return
        if left[number] > 1:
            _zero(layer.linear("o").weight, layer.heads, head)
            left[number] -= 1
            remaining -= count_parameters([layer]) / layer.heads
    if remaining > size * total:
        raise BudgetError(f"{size}: one head of every layer has more")


def drop_layers(model: Forecaster, size: float, tokens: Sequence[Any]) -> None:
    """Set the output matrices of whole layers to zero, those with the least effect on the last states first."""
    layers = list(model.attentions())
    effects = []
    for number in range(len(layers)):
        trial = copy.deepcopy(model)
        _zero(list(trial.attentions())[number].linear("o").weight, 1, 0)
        errors = [np.nanmean(np.square(window_errors(trial, last_states(model, part), part))) for part in tokens]
        effects.append((float(np.mean(errors)), number))
    total = remaining = count_parameters(layers)
    for _effect, number in sorted(effects):
        if remaining <= size * total:
            return
        _zero(layers[number].linear("o").weight, 1, 0)
        remaining -= count_parameters([layers[number]])


def _zero(weight: torch.Tensor, heads: int, head: int) -> None:
    with torch.no_grad():
        weight.view(len(weight), heads, -1)[:, head] = 0


REMOVALS: dict[str, Callable[[Forecaster, float, Sequence[Any]], None]] = {
    "prune-heads": prune_heads,
    "drop-layers": drop_layers,
}


def round_attention(model: Forecaster, name: str) -> float:
    """Round the attention matrices in place; return their bytes over those in float32."""
    size = rounded = 0
    for layer in model.attentions():
        for matrix in NAMES:
            weight = layer.linear(matrix).weight
            numbers, scales = quantise(weight.detach())
            size += 4 * weight.numel()
            rounded += numbers.numel() + 4 * len(scales) if name == "int8" else 2 * weight.numel()
            with torch.no_grad():
                weight.copy_(dequantise(numbers, scales) if name == "int8" else weight.bfloat16())
    return rounded / size
