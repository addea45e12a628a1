"""Inputs of a model's attention matrices, and gradients of its training loss, over calibration windows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from tsfmscope.errors import HealthError, ModelError
from tsfmscope.models.common.attention import NAMES
from tsfmscope.series.calendar import window_dates

if TYPE_CHECKING:
    import torch

    from tsfmscope.models.base import Family
    from tsfmscope.series.types import Windows

# Windows per group. The Fisher information is defined by the gradients of single windows. The gradients of groups need
# less memory; the public code of GFWSVD averages over 16 batches for the same reason.
GROUP = 4
# A row counts if the norm of its gradient is above this share of the largest. The gradient of a query that attends to
# one key is 0 on some processors, and rounding error on others.
NOISE = 1e-6
# Bounds of the norm of a row's gradient, as multiples of the mean norm of its group (public code of KFAC-SVD, where the
# mean is over one sequence).
LEAST_NORM, LARGEST_NORM = 0.1, 10.0

# Arguments of a family's loss: context, future, and dates if the family reads them.
Parts = tuple["torch.Tensor", ...]


@dataclass(frozen=True, eq=False)
class LossStatistics:
    """Statistics of one matrix W [out, in] over the rows whose output has a gradient.

    A row is the input x of the matrix at one token; g is the gradient by the output W x of the loss of a group times
    the number of its windows. Rows with a gradient of zero, such as padding, cannot change the loss and are left out.

    inputs: mean of x xᵀ. magnitudes: mean of |x|. outputs: mean of g gᵀ, with norms of g clipped to LEAST_NORM and
    LARGEST_NORM. gradients: gradient by W of the loss of each group, in float32 to save memory.
    All are zeros if no row has a gradient.
    """

    inputs: Float[np.ndarray, "in in"]
    magnitudes: Float[np.ndarray, " in"]
    outputs: Float[np.ndarray, "out out"]
    gradients: Float[np.ndarray, "group out in"]


def gather_gradients(model: Family, windows: Sequence[Windows], *, group: int = GROUP) -> dict[str, Any]:
    """Return the statistics of every matrix of every attention layer: layer -> q, k, v or o -> `LossStatistics`.

    The loss is the family's training loss, with dropout off. windows: calibration windows with their futures, one item
    per data set; each item is divided into groups of at most `group` windows. Memory holds one gradient per group and
    matrix. The network is left in evaluation mode.
    ModelError if a family describes no attention layers or if there is no window; HealthError if the loss or a gradient
    is not finite.
    """
    import torch

    layers = list(model.attentions())
    if not layers or not any(map(len, windows)):
        lacks = "no calibration window" if layers else "no attention layers"
        raise ModelError(f"{model.name}: got {lacks}, expected both; name a data set with longer series")
    linears = {(layer.name, name): layer.linear(name) for layer in layers for name in NAMES}
    groups = sum(math.ceil(len(item) / group) for item in windows)
    sums = {point: _Sums(groups, *linear.weight.shape) for point, linear in linears.items()}
    model.network.eval()
    for index, parts in enumerate(loss_batches(model, windows, group)):
        with torch.enable_grad(), torch.random.fork_rng(devices=[]), _recorded(linears) as calls:
            # The loss of some families draws patch sizes or layouts.
            torch.manual_seed(0)
            loss = model.loss(*parts)
            _require_finite(loss, f"{model.name}: the loss of calibration windows")
            flat = [(point, states, output) for point, pairs in calls.items() for states, output in pairs]
            gradients = torch.autograd.grad(loss, [output for *_, output in flat], allow_unused=True)
        for (point, states, _), gradient in zip(flat, gradients, strict=True):
            if gradient is not None:
                _require_finite(gradient, f"{model.name}: a gradient of {'.'.join(point)} on calibration windows")
                sums[point].add(index, len(parts[0]), _rows(states), _rows(gradient))
    found: dict[str, dict[str, LossStatistics]] = {}
    for (layer, name), item in sums.items():
        found.setdefault(layer, {})[name] = item.statistics()
    return found


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


def _require_finite(values: torch.Tensor, name: str) -> None:
    if not values.isfinite().all():
        raise HealthError(
            f"{name} is not finite, expected numbers; check the weights and their dtype, or calibrate on other data"
        )


class _Sums:
    """Sums over the rows of one matrix, updated call by call."""

    def __init__(self, groups: int, n_out: int, n_in: int) -> None:
        self._rows = 0
        self._inputs, self._magnitudes = np.zeros((n_in, n_in)), np.zeros(n_in)
        self._outputs = np.zeros((n_out, n_out))
        self._gradients = np.zeros((groups, n_out, n_in), np.float32)

    def add(
        self, group: int, windows: int, states: Float[np.ndarray, "row in"], gradients: Float[np.ndarray, "row out"]
    ) -> None:
        """Add the rows of a call. windows: number of windows in the group; its loss is a mean over them."""
        norms = np.linalg.norm(gradients, axis=1)
        counted = norms > NOISE * norms.max(initial=0.0)
        states, gradients, norms = states[counted], gradients[counted], norms[counted]
        if not len(norms):
            return
        self._gradients[group] += gradients.T @ states
        self._rows += len(norms)
        self._inputs += states.T @ states
        self._magnitudes += np.abs(states).sum(axis=0)
        bounds = norms.mean() * np.array([LEAST_NORM, LARGEST_NORM])
        clipped = windows * gradients * (np.clip(norms, *bounds) / norms)[:, None]
        self._outputs += clipped.T @ clipped

    def statistics(self) -> LossStatistics:
        rows = max(1, self._rows)
        return LossStatistics(self._inputs / rows, self._magnitudes / rows, self._outputs / rows, self._gradients)


Calls = dict[tuple[str, str], list[tuple["torch.Tensor", "torch.Tensor"]]]


@contextmanager
def _recorded(linears: Mapping[tuple[str, str], torch.nn.Module]) -> Iterator[Calls]:
    """Record input and output of every call of these modules."""
    calls: Calls = {point: [] for point in linears}

    def record(point: tuple[str, str], _: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        # Without it, the first layers of a model with frozen weights would have no gradient.
        if not output.requires_grad:
            output.requires_grad_()
        calls[point].append((inputs[0].detach(), output))

    handles = [linear.register_forward_hook(partial(record, point)) for point, linear in linears.items()]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _rows(states: torch.Tensor) -> Float[np.ndarray, "row width"]:
    array: np.ndarray = states.detach().double().cpu().numpy()
    return array.reshape(-1, array.shape[-1])
