"""Moving average of the weights of a training, which forecasts better than the last weights."""

from __future__ import annotations

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
        self._current = {} if decay is None else _floating(network)
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


def _floating(network: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the network's tensors by name, detached but in the same memory; a shared tensor once."""
    by_memory: dict[int, tuple[str, torch.Tensor]] = {}
    for name, tensor in network.state_dict().items():
        if tensor.is_floating_point():
            by_memory.setdefault(tensor.data_ptr(), (name, tensor))
    return dict(by_memory.values())
