"""Forward passes: batches of windows, rows that are kept, and capture of hidden states of all layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Int64

from tsfmscope.errors import HealthError
from tsfmscope.models.types import LayerStates, TokenKind, Tokens

if TYPE_CHECKING:
    import torch

# Kinds of tokens that stand for values.
KINDS = ("observation", "future")
VALUED = [TokenKind[name.upper()] for name in KINDS]
# Tokens of one forward pass where `batch` is None; constants, so that reruns give the same bytes.
PASS_TOKENS = {
    # Measured by bench/embedding.py: results/embedding.md has the rates from one window to all.
    "cpu": 4096,
    # Not measured: no GPU was available. `python -m bench.embedding --device cuda` prints rates.
    "cuda": 32_768,
}


@dataclass(frozen=True, eq=False)
class Stack:
    """Blocks of a stack, in order, and the norm after the last block; None if there is none."""

    blocks: Sequence[torch.nn.Module]
    norm: torch.nn.Module | None


class Pass(NamedTuple):
    """Forward pass of a family over its tokens.

    stacks: the stacks whose states are captured.
    forward: runs a slice of the windows.
    queries: stack -> the query projection of every block's self-attention, where scores are plain q·k.
    logits: returns the logits of a softmax head for a slice of windows, [W, T, ids], for every row of the
    last stack; None without such a head.
    """

    stacks: Mapping[str, Stack]
    forward: Callable[[slice], object]
    queries: Mapping[str, Sequence[torch.nn.Module]] = MappingProxyType({})
    logits: Callable[[slice], torch.Tensor] | None = None


class Rows(NamedTuple):
    """Rows of a stack: ascending ids (window * tokens + position), and the number of tokens per window."""

    ids: Int64[np.ndarray, " row"]
    tokens: int


# Stack, layer, normed.
Point = tuple[str, int, bool]


def run_captured(one_pass: Pass, windows: int, batch: int) -> Iterator[LayerStates]:
    """Run the pass on all windows, `batch` at a time, and yield every layer of every stack.

    States are [W, T, d] in float32. Layer 0 is the input of the first block. Layer l in 1..n is the output of
    block l, counted from 1 (residual stream). The last layer after the stack's norm follows. Axes before the
    last two, such as a channel axis, are flattened into the window axis.
    """
    inputs, outputs, order = points(one_pass.stacks)
    yield from _run(one_pass.forward, inputs, outputs, order, range(0, windows, batch))


def run_kept(one_pass: Pass, windows: int, batch: int, rows_by_stack: Mapping[str, Rows]) -> Iterator[LayerStates]:
    """Run the pass and yield the wanted rows of each layer, as states [N, d], in order.

    rows_by_stack: stack -> rows; other stacks are left out. Rows are copied as soon as a layer returns, so that its
    full output can be freed before the next layer runs. The rows of a layer are freed when the caller drops them.
    Batches have even sizes.
    Raises HealthError if the output of a layer has another number of windows or tokens than expected.
    """
    import torch

    inputs, outputs, order = points({name: stack for name, stack in one_pass.stacks.items() if name in rows_by_stack})
    states: dict[Point, torch.Tensor] = {}
    for part in even_batches(windows, batch):
        with torch.inference_mode(), capture(outputs, inputs, _row_copier(states, rows_by_stack, part)):
            one_pass.forward(part)
    for point in order:
        assert point in states, f"{point} did not run"
        yield LayerStates(*point, states.pop(point).numpy())


def even_batches(windows: int, batch: int) -> Iterator[slice]:
    """Yield the fewest batches of at most `batch` windows, with sizes that differ by at most one."""
    count = -(-windows // batch)
    edges = [windows * n // max(count, 1) for n in range(count + 1)]
    yield from map(slice, edges, edges[1:])


def run_projected(one_pass: Pass, windows: int, batch: int) -> Iterator[LayerStates]:
    """Run the pass and yield the input [W, T, d] of every block's query projection; `layer` counts from 1."""
    inputs: dict[Point, torch.nn.Module] = {
        (name, layer, False): module
        for name, modules in one_pass.queries.items()
        for layer, module in enumerate(modules, start=1)
    }
    yield from _run(one_pass.forward, inputs, {}, list(inputs), range(0, windows, batch))


def run_head(one_pass: Pass, part: slice) -> Float32[np.ndarray, "window token id"]:
    """Return the logits of the softmax head for these windows."""
    import torch

    assert one_pass.logits is not None, "the Pass of a family with softmax_head has `logits`"
    with torch.inference_mode():
        logits: np.ndarray = one_pass.logits(part).float().cpu().numpy()
    return logits


def _run(
    forward: Callable[[slice], object],
    inputs: Mapping[Point, torch.nn.Module],
    outputs: Mapping[Point, torch.nn.Module],
    order: Sequence[Point],
    starts: range,
) -> Iterator[LayerStates]:
    """Run the batches and yield the captured states of each point, concatenated over the batches."""
    import torch

    parts: dict[Point, list[np.ndarray]] = {point: [] for point in order}
    for start in starts:
        part = slice(start, min(start + starts.step, starts.stop))
        with (
            torch.inference_mode(),
            capture(outputs, inputs, lambda _, states: states.flatten(0, -3).float().cpu()) as states,
        ):
            forward(part)
        for point, collected in parts.items():
            collected.append(states[point].numpy())
    for point in order:
        yield LayerStates(*point, np.concatenate(parts.pop(point)))


def points(
    stacks: Mapping[str, Stack],
) -> tuple[dict[Point, torch.nn.Module], dict[Point, torch.nn.Module], list[Point]]:
    """Return the modules whose input is a layer's state, those whose output is, and all points in order."""
    inputs: dict[Point, torch.nn.Module] = {}
    outputs: dict[Point, torch.nn.Module] = {}
    for name, stack in stacks.items():
        inputs[name, 0, False] = stack.blocks[0]
        outputs |= {(name, layer, False): block for layer, block in enumerate(stack.blocks, start=1)}
        if stack.norm is not None:
            outputs[name, len(stack.blocks), True] = stack.norm
    names = list(stacks)
    return inputs, outputs, sorted([*inputs, *outputs], key=lambda point: (names.index(point[0]), *point[1:]))


def _row_copier(
    states_by_point: dict[Point, torch.Tensor], rows_by_stack: Mapping[str, Rows], part: slice
) -> Callable[[Point, torch.Tensor], torch.Tensor]:
    """Return a function that copies the wanted rows of these windows from a layer's states [..., T, d].

    states_by_point: point -> the wanted rows of all windows, [N, d] in float32 on the CPU; filled batch by batch.
    """
    import torch

    slices, indices = {}, {}
    for name, (ids, tokens) in rows_by_stack.items():
        slices[name] = slice(*np.searchsorted(ids, (part.start * tokens, part.stop * tokens)).tolist())
        indices[name] = torch.from_numpy(ids[slices[name]] - part.start * tokens)

    def take(point: Point, states: torch.Tensor) -> torch.Tensor:
        stack, layer, _ = point
        ids, tokens = rows_by_stack[stack]
        shape, expected = tuple(states.flatten(0, -3).shape[:2]), (part.stop - part.start, tokens)
        if shape != expected:
            raise HealthError(f"{stack} layer {layer}: got {shape} windows and tokens, expected {expected}")
        if point not in states_by_point:
            states_by_point[point] = torch.from_numpy(np.empty((len(ids), states.shape[-1]), np.float32))
        # Stored back, so that the ids move to the device only once per batch.
        indices[stack] = indices[stack].to(states.device)
        rows, all_rows = states_by_point[point][slices[stack]], states.flatten(0, -2)
        if all_rows.device == rows.device and all_rows.dtype == rows.dtype:
            torch.index_select(all_rows, 0, indices[stack], out=rows)
        else:
            rows.copy_(all_rows.index_select(0, indices[stack]))
        return rows

    return take


@contextmanager
def capture(
    outputs: Mapping[Any, torch.nn.Module],
    inputs: Mapping[Any, torch.nn.Module] | None = None,
    take: Callable[[Any, torch.Tensor], torch.Tensor] | None = None,
) -> Iterator[dict[Any, torch.Tensor]]:
    """Collect the outputs of some modules and the inputs of others while the context is open.

    outputs, inputs: key -> module; keys must differ between the two. Yields a dict from key to tensor.
    take(key, tensor): returns what to keep of a tensor, and is called at once; None keeps the whole tensor.
    Where a module returns several values, the first tensor among them is taken. If a module is called more
    than once, the last call counts. Hooks are removed on exit, also after an error.
    Raises TypeError if a module's value contains no tensor.
    """
    states: dict[Any, torch.Tensor] = {}

    def keep(key: Any, value: Any, module: torch.nn.Module) -> None:
        tensor = first_tensor(value, module)
        states[key] = tensor if take is None else take(key, tensor)

    def keep_input(key: Any, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        keep(key, (*args, *kwargs.values()), module)

    handles = [
        module.register_forward_hook(lambda module, args, output, key=key: keep(key, output, module))
        for key, module in outputs.items()
    ]
    for key, module in (inputs or {}).items():
        handles.append(module.register_forward_pre_hook(partial(keep_input, key), with_kwargs=True))
    try:
        yield states
    finally:
        for handle in handles:
            handle.remove()


def first_tensor(value: Any, module: torch.nn.Module) -> torch.Tensor:
    """Return the first tensor of what a module takes or returns, which shares its memory; TypeError without one."""
    import torch

    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple | list) else (value,)
    for item in items:
        if isinstance(item, torch.Tensor):
            return item.detach()
    raise TypeError(f"{type(module).__name__}: expected a tensor or a tuple that holds one, got {type(value).__name__}")


def pass_windows(tokens: Tokens, device: str) -> int:
    """Return the windows per forward pass on a device such as "cuda:0".

    They are PASS_TOKENS divided by the tokens of a window, and at least 1.
    """
    return max(1, PASS_TOKENS[device.partition(":")[0]] // window_tokens(tokens))


def window_tokens(tokens: Tokens) -> int:
    """Return the number of tokens of one window, summed over all stacks."""
    return sum(kinds.shape[1] for kinds in tokens.kinds.values())


@contextmanager
def in_batches(model: Any, batch: int) -> Iterator[None]:
    """Set a family's windows per forward pass while the context is open."""
    usual, model.batch = model.batch, batch
    try:
        yield
    finally:
        model.batch = usual


def kept_rows(tokens: Tokens, kinds: tuple[str, ...] | list[str], rows: int, seed: int) -> Mapping[str, np.ndarray]:
    """Return, for each stack, the ascending ids (window * T + position) of at most `rows` kept tokens.

    kinds: names of TokenKind. Raises ValueError for an unknown kind, or if no stack has a token of these
    kinds.
    """
    names = [kind.name.lower() for kind in TokenKind]
    if unknown := sorted(set(kinds) - set(names)):
        raise ValueError(f"kinds: got {unknown}, expected some of {names}")
    kind_codes = [TokenKind[kind.upper()] for kind in kinds]
    ids_by_stack = {}
    for index, (stack, values) in enumerate(tokens.kinds.items()):
        ids = np.flatnonzero(np.isin(values, kind_codes))
        if len(ids) > rows:
            ids = np.sort(np.random.default_rng([seed, index]).choice(ids, rows, replace=False))
        ids_by_stack[stack] = ids
    if not any(map(len, ids_by_stack.values())):
        raise ValueError(f"kinds: no stack has a token of {list(kinds)}; name other kinds")
    return ids_by_stack


def run_windows(tokens: Tokens, rows: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the windows that contain a kept token and are therefore run, ascending."""
    return np.unique(np.concatenate([ids // tokens.kinds[stack].shape[1] for stack, ids in rows.items()]))


def sample_windows(tokens: Tokens, rows: int, seed: int) -> Tokens:
    """Return the fewest randomly chosen windows that have `rows` value tokens in every stack.

    Value tokens are those that stand for values. Stacks with one token per window do not count. All windows
    are returned if they have fewer such tokens, and at least one is returned. The result keeps the original
    order of the windows.
    """
    order, needed = np.random.default_rng([seed, 4]).permutation(len(tokens)), 1
    for kinds in tokens.kinds.values():
        if kinds.shape[1] > 1:
            reached = np.cumsum(np.isin(kinds, VALUED).sum(axis=1)[order])
            needed = max(needed, int(np.searchsorted(reached, rows)) + 1)
    return tokens.take(np.sort(order[:needed]))
