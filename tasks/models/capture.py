"""Hidden states of named modules, and of every layer of a model's stacks, from one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.models.types import LayerStates

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class Stack:
    """A stack's blocks in their order, and the norm that its last state goes through, where there is one."""

    blocks: Sequence[torch.nn.Module]
    norm: torch.nn.Module | None


def run_captured(
    stacks: Mapping[str, Stack], forward: Callable[[slice], object], windows: int, batch: int
) -> Iterator[LayerStates]:
    """Run `forward` on slices of the windows; yield every layer of every stack, [W, T, d] float32 each.

    Layer 0 is what block 0 is given, layer l what block l - 1 answers (residual stream), then the last layer after the
    stack's norm. Axes before the last two, such as a channel's, are taken for windows.
    """
    inputs: dict[Hashable, torch.nn.Module] = {}
    outputs: dict[Hashable, torch.nn.Module] = {}
    order: list[tuple[str, int, bool]] = []
    for name, stack in stacks.items():
        last = len(stack.blocks)
        inputs[name, 0, False] = stack.blocks[0]
        outputs |= {(name, layer, False): block for layer, block in enumerate(stack.blocks, start=1)}
        order += [(name, layer, False) for layer in range(last + 1)]
        if stack.norm is not None:
            outputs[name, last, True] = stack.norm
            order.append((name, last, True))
    parts = _collect(outputs, inputs, forward, range(0, windows, batch))
    for name, layer, normed in order:
        yield LayerStates(name, layer, normed, np.concatenate(parts.pop((name, layer, normed))))


def run_projected(
    projections: Mapping[str, Sequence[torch.nn.Module]], forward: Callable[[slice], object], windows: int, batch: int
) -> Iterator[LayerStates]:
    """Run `forward` on slices of the windows; yield what a projection of every block is given, [W, T, d] float32 each.

    projections: stack -> one module a block; `layer` counts blocks from 1.
    """
    inputs: dict[Hashable, torch.nn.Module] = {
        (name, layer): module for name, some in projections.items() for layer, module in enumerate(some, start=1)
    }
    parts = _collect({}, inputs, forward, range(0, windows, batch))
    for name, some in projections.items():
        for layer in range(1, len(some) + 1):
            yield LayerStates(name, layer, False, np.concatenate(parts.pop((name, layer))))


def _collect(
    outputs: Mapping[Hashable, torch.nn.Module],
    inputs: Mapping[Hashable, torch.nn.Module],
    forward: Callable[[slice], object],
    starts: range,
) -> dict[Hashable, list[np.ndarray]]:
    """What `capture` keeps of each batch, as float32 arrays of three axes."""
    import torch

    parts: dict[Hashable, list[np.ndarray]] = {key: [] for key in (*inputs, *outputs)}
    for start in starts:
        with torch.inference_mode(), capture(outputs, inputs) as states:
            forward(slice(start, start + starts.step))
        for key, collected in parts.items():
            collected.append(states[key].flatten(0, -3).float().cpu().numpy())
    return parts


@contextmanager
def capture(
    outputs: Mapping[Hashable, torch.nn.Module], inputs: Mapping[Hashable, torch.nn.Module] | None = None
) -> Iterator[dict[Hashable, torch.Tensor]]:
    """Collect what modules answer (`outputs`) and what they are given (`inputs`) while the context is open.

    A module that answers a tuple gives its first tensor; the last call of a module wins. Hooks are removed on exit,
    also after an error. Keys of `outputs` and `inputs` must differ.
    """
    states: dict[Hashable, torch.Tensor] = {}
    handles = []
    for key, module in outputs.items():
        handles.append(module.register_forward_hook(_keep_output(states, key)))
    for key, module in (inputs or {}).items():
        handles.append(module.register_forward_pre_hook(_keep_input(states, key), with_kwargs=True))
    try:
        yield states
    finally:
        for handle in handles:
            handle.remove()


def _keep_output(states: dict[Hashable, torch.Tensor], key: Hashable) -> Any:
    def hook(module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
        states[key] = _first_tensor(output, module)

    return hook


def _keep_input(states: dict[Hashable, torch.Tensor], key: Hashable) -> Any:
    def hook(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        states[key] = _first_tensor((*args, *kwargs.values()), module)

    return hook


def _first_tensor(value: Any, module: torch.nn.Module) -> torch.Tensor:
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach()
    items = value.values() if isinstance(value, Mapping) else value
    for item in items if isinstance(items, tuple | list) or isinstance(value, Mapping) else ():
        if isinstance(item, torch.Tensor):
            return item.detach()
    raise TypeError(f"{type(module).__name__}: expected a tensor or a tuple that holds one, got {type(value).__name__}")
