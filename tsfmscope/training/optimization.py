"""Learning rate of every training, and the moving average of its weights, which forecasts better than the last."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class Average:
    """Exponential moving average of a network's floating-point weights and buffers.

    decay: factor of the average at each step, less in the first steps. None: nothing is averaged, and every
    method does nothing.
    """

    def __init__(self, network: torch.nn.Module, decay: float | None) -> None:
        self._decay = decay
        # The network's tensors by name, detached but in the same memory; a shared tensor once.
        by_memory: dict[int, tuple[str, torch.Tensor]] = {}
        for name, tensor in () if decay is None else network.state_dict().items():
            if tensor.is_floating_point():
                by_memory.setdefault(tensor.data_ptr(), (name, tensor))
        self._current = dict(by_memory.values())
        self.weights = {name: weight.clone() for name, weight in self._current.items()}

    def update(self, step: int) -> None:
        """Take the weights after step `step` (from 1) into the average."""
        if self._decay is None:
            return
        decay = min(self._decay, (1 + step) / (10 + step))
        for name, current in self._current.items():
            self.weights[name].lerp_(current, 1 - decay)

    def swap(self) -> None:
        """Exchange the network's weights and the average; a second call undoes it."""
        for name, current in self._current.items():
            kept = current.clone()
            current.copy_(self.weights[name])
            self.weights[name].copy_(kept)


def rate(step: int, steps: int, warm_up: float, schedule: str | None) -> float:
    """Return the factor of the learning rate at a step: a decay to 0 at `steps`, times a linear warm-up.

    The decay is half a cosine if `schedule` is "cosine", else a line. warm_up: number of steps of the warm-up; 0: none.
    """
    part = min(1.0, step / steps)
    decay = (1 + math.cos(math.pi * part)) / 2 if schedule == "cosine" else 1.0 - part
    return min((step + 1) / warm_up, 1.0) * decay if warm_up else decay
