"""Outputs of a model in the forward pass of its loss: healing and rounding keep them near the base's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tsfmscope.series.calendar import window_dates

if TYPE_CHECKING:
    import torch

    from tsfmscope.models.base import Family
    from tsfmscope.series.types import Windows

# Arguments of a family's loss: context, future, and dates if the family reads them.
Parts = tuple["torch.Tensor", ...]


def has_outputs(model: Family) -> bool:
    """Whether a family reads series and names the modules that give its outputs."""
    return model.modality == "series" and bool(model.output_modules)


def loss_batches(model: Family, windows: Sequence[Windows], size: int) -> Iterator[Parts]:
    """Yield the arguments of the family's loss for at most `size` windows of one data set at a time.

    Futures are cut, or filled with NaN, to the horizon that the loss needs.
    """
    import torch

    horizon = model.loss_horizon or min(item.horizon for item in windows)
    for item in windows:
        future = item.future[:, :horizon]
        future = np.pad(future, ((0, 0), (0, horizon - future.shape[1])), constant_values=np.nan)
        parts = [item.context.astype(np.float32), future.astype(np.float32)]
        if model.dated:
            parts.append(window_dates(replace(item, future=future), item.context.shape[1]).astype(np.int64))
        for start in range(0, len(item), size):
            yield tuple(torch.from_numpy(part[start : start + size]) for part in parts)


def outputs(model: Family, parts: Parts, seed: int) -> list[torch.Tensor]:
    """Return the outputs of the output modules in one forward pass of the loss.

    seed: of torch, since the loss of some families draws layouts or patch sizes.
    """
    import torch
    from torch.utils._pytree import tree_leaves

    found: list[torch.Tensor] = []
    modules = [model.network.get_submodule(name) for name in model.output_modules]
    hooks = [
        part.register_forward_hook(lambda _, __, output: found.extend(tree_leaves(output)))
        for module in modules
        for part in (module if isinstance(module, torch.nn.ModuleList) else [module])
    ]
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model.loss(*parts)
    finally:
        for hook in hooks:
            hook.remove()
    return found
