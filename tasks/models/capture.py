"""Hidden states of named modules from one forward pass."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


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
