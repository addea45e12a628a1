"""Operations, memory and bytes of a model's work, predicted from the shapes of its network.

Nothing is run: shapes come from `Family.weights`, numbers of tokens from the caller. docs/paper_scale.md compares the
predictions with measurements.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tsfmscope.tasks.models.base import Forecaster
from tsfmscope.tasks.models.common.batches import PASS_TOKENS
from tsfmscope.tasks.speed import Work

if TYPE_CHECKING:
    from tsfmscope.tasks.models.base import Family
    from tsfmscope.tasks.models.types import WeightMatrix

FLOAT = 4
# Bytes of a row of an activation file besides its state, by the columns of `entries.embeddings.schema`: stack, layer,
# normed, token, series, origin, position, kind, type.
ROW_BYTES = 1 + 2 + 1 / 8 + 8 + 4 + 8 + 4 + 1 + 4
# Bytes of a record batch of an Arrow file besides its rows: header, entry in the footer, padding of the columns.
BATCH_BYTES = 1200
# Memory of a process that has imported what a family needs, in bytes: uni2ts imports jax and lightning, Lag-Llama needs
# no transformers. Then what the first forward pass adds. Measured on 2026-11-28 on x86-64 with torch 2.13 for CPUs.
PROCESS_BYTES = MappingProxyType({"moirai": 670e6, "moirai-2": 670e6, "lag-llama": 390e6})
OTHER_PROCESS_BYTES, PASS_BYTES = 465e6, 65e6
# Copies of the weights while a model is loaded: those that are read, and those of the network.
COPIES = 2
# Sample paths that are decoded together: ROWS of t5/sampling.py and lag_llama/sampling.py.
PATHS = 2048


@dataclass(frozen=True)
class StackSize:
    """Size of a stack.

    blocks: number of blocks. states: number of layers with states, the normed one included. The others are sums over
    the blocks. per_token: multiply-adds of a token. per_pair: multiply-adds of self-attention for a pair of tokens.
    heads: attention heads. outputs: values that the matrices return for a token. cached: values of keys and values of a
    token. per_read, per_read_pair: multiply-adds of cross-attention for a token that is read, and for a pair.
    weights: of all matrices, all experts included.
    """

    blocks: int
    states: int
    per_token: int = 0
    per_pair: int = 0
    heads: int = 0
    outputs: int = 0
    cached: int = 0
    per_read: int = 0
    per_read_pair: int = 0
    read_cached: int = 0
    weights: int = 0


@dataclass(frozen=True)
class ModelSize:
    """Size of a model.

    width: of the states. widest: outputs of its widest matrix. vocabulary: ids that a softmax head chooses from, or 0.
    steps: future steps of one forward pass; None for any number. has_paths: whether forecasts are sampled step by step.
    """

    family: str
    parameters: int
    width: int
    widest: int
    vocabulary: int
    steps: int | None
    has_paths: bool
    stacks: Mapping[str, StackSize]

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights in float32."""
        return FLOAT * self.parameters

    @property
    def process_bytes(self) -> float:
        """Memory of a process that has imported what the family needs."""
        return PROCESS_BYTES.get(self.family, OTHER_PROCESS_BYTES)


def model_size(model: Family) -> ModelSize:
    """Return the size of a model, whose weights may be without numbers (tasks/rehearsal/weightless.py)."""
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    widest = 0
    for matrix in model.weights():
        sums[matrix.stack]["weights"] += math.prod(matrix.matrix.shape)
        if _is_run(matrix, model):
            _count(matrix, sums[matrix.stack])
            widest = max(widest, matrix.matrix.shape[0])
    normed = int(type(model).final_norm)
    return ModelSize(
        family=model.name,
        parameters=sum(math.prod(tensor.shape) for tensor in model.network.parameters()),
        width=model.width,
        widest=widest,
        vocabulary=_vocabulary(model),
        steps=getattr(model, "prediction_length", None),
        has_paths=isinstance(model, Forecaster) and not model.direct_quantiles and (model.softmax_head or model.lagged),
        stacks={name: StackSize(n, n + 1 + normed, **sums[name]) for name, n in model.layers.items()},
    )


def _is_run(matrix: WeightMatrix, model: Family) -> bool:
    """Return whether a token passes a matrix; it passes as many experts as the config states."""
    _, _, expert = matrix.name.partition(".")
    return not expert.isdigit() or int(expert) < getattr(model, "config", {}).get("num_experts_per_tok", math.inf)


def _count(matrix: WeightMatrix, sums: Counter[str]) -> None:
    """Add a matrix to the sums of its stack."""
    rows, columns = matrix.matrix.shape
    is_cross, is_read = matrix.attention == "cross", matrix.name in ("k", "v")
    sums["per_read" if is_cross and is_read else "per_token"] += rows * columns
    if not (is_cross and is_read):
        sums["outputs"] += rows
    if is_read:
        sums["read_cached" if is_cross else "cached"] += rows
    # Scores take the queries' width for a pair of tokens, sums over values the width that o reads.
    if matrix.name in ("q", "o"):
        sums["per_read_pair" if is_cross else "per_pair"] += rows if matrix.name == "q" else columns
    if matrix.name == "q":
        sums["heads"] += matrix.heads or 0


def _vocabulary(model: Family) -> int:
    network: Any = model.network
    return int(network.config.vocab_size) if model.softmax_head else 0


def states_work(size: ModelSize, tokens: Mapping[str, int], windows: float, device: str = "cpu") -> Work:
    """Return the work of the states of all layers. tokens: tokens of a window by stack."""
    batch = max(1, PASS_TOKENS[device] // max(1, sum(tokens.values())))
    passes, work = math.ceil(windows / batch), Work()
    read = next(iter(tokens.values()), 0)
    for name, count in tokens.items():
        stack = size.stacks[name]
        work += _stack_work(size, stack, windows * count, count, read)
        work += Work(windows * read * stack.per_read, 0, passes * stack.blocks, passes * stack.weights)
    return work


def _stack_work(size: ModelSize, stack: StackSize, tokens: float, attended: float, read: float) -> Work:
    """Return the work of some tokens: each attends to `attended` tokens of its stack and reads `read` others."""
    pairs = stack.per_pair * attended + (stack.per_read_pair * read if stack.per_read else 0)
    values = stack.outputs + 4 * stack.states * size.width + stack.heads * attended
    return Work(tokens * (stack.per_token + pairs), tokens * values, 0)


def forecast_work(
    size: ModelSize, tokens: Mapping[str, int], windows: float, *, horizon: int, samples: int, batch: int
) -> Work:
    """Return the work of forecasts: as many passes as the horizon takes, then the steps of sample paths."""
    rounds = math.ceil(horizon / size.steps) if size.steps else 1
    passes = math.ceil(windows / batch)
    if not size.has_paths:
        once = states_work(size, tokens, windows)
        stacks = size.stacks.values()
        calls = passes * sum(stack.blocks for stack in stacks)
        weights = passes * sum(stack.weights for stack in stacks)
        return replace(once, calls=calls, reads=weights) * rounds
    first, last = _ends(tokens)
    read = tokens[first]
    context = states_work(size, {first: read}, windows)
    stack = size.stacks[last]
    attended, others = (horizon / 2, read) if last != first else (read + horizon / 2, 0)
    steps = windows * samples * horizon
    work = _stack_work(size, stack, steps, attended, others)
    # A path is drawn from the sorted logits.
    work += Work(steps * size.vocabulary * size.width, 4 * steps * size.vocabulary, 0)
    steps_run = math.ceil(min(batch, windows) * samples / PATHS) * passes * horizon
    # Keys and values of cross-attention are computed once per pass.
    weights = steps_run * (stack.weights - stack.per_read + size.vocabulary * size.width) + passes * stack.per_read
    work += Work(rounds * windows * read * stack.per_read, 0, steps_run * stack.blocks, weights)
    return context * rounds + work


def _ends(tokens: Mapping[str, int]) -> tuple[str, str]:
    """Return the names of the first and the last stack."""
    names = list(tokens)
    return names[0], names[-1]


def load_bytes(size: ModelSize) -> float:
    """Return the peak memory of loading a model."""
    return size.process_bytes + COPIES * size.weight_bytes


def states_bytes(size: ModelSize, rows: Mapping[str, int], tokens: int) -> float:
    """Return the memory of a process while it computes the states of `rows` tokens of each stack, without loading.

    tokens: tokens of all windows and stacks.
    """
    kept = sum(size.stacks[name].states * count * size.width for name, count in rows.items())
    return _running_bytes(size) + FLOAT * kept + _pass_bytes(size, min(tokens, PASS_TOKENS["cpu"]))


def forecast_bytes(
    size: ModelSize, tokens: Mapping[str, int], windows: float, *, horizon: int, samples: int, batch: int
) -> float:
    """Return the memory of a process while it forecasts, without loading: the weights, and keys and values."""
    return _running_bytes(size) + _cache_bytes(size, tokens, min(windows, batch), horizon, samples)


def _running_bytes(size: ModelSize) -> float:
    return size.process_bytes + size.weight_bytes + PASS_BYTES


def device_bytes(size: ModelSize) -> float:
    """Return the memory of a GPU that computes states: the weights and the values of one pass."""
    return size.weight_bytes + _pass_bytes(size, PASS_TOKENS["cuda"])


def _pass_bytes(size: ModelSize, tokens: int) -> float:
    """Return the bytes of the values that live at once in a forward pass: of an MLP, and six states."""
    return FLOAT * tokens * (2 * size.widest + 6 * size.width)


def _cache_bytes(size: ModelSize, tokens: Mapping[str, int], windows: float, horizon: int, samples: int) -> float:
    if not size.has_paths:
        return _pass_bytes(size, int(windows * sum(tokens.values())))
    first, last = _ends(tokens)
    group = min(windows, max(1, PATHS // samples))
    stack = size.stacks[last]
    read = stack.read_cached if last != first else stack.cached
    steps = horizon if size.steps is None else min(horizon, size.steps)
    own = group * samples * (stack.cached * steps + 4 * size.vocabulary)
    return FLOAT * (group * tokens[first] * read + own)


def activation_bytes(size: ModelSize, rows: Mapping[str, int], value_bytes: int = FLOAT) -> float:
    """Return the bytes of an activation file. rows: kept tokens by stack; value_bytes: 2 for float16, 4 for float32."""
    per_row = ROW_BYTES + value_bytes * size.width
    return sum(size.stacks[name].states * (count * per_row + BATCH_BYTES) for name, count in rows.items() if count)
