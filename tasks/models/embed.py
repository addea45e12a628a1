"""The sweep's entry of stage embeddings: a token dump in, hidden states of every layer out."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tasks.feeding import Feed
from tasks.models.tokenize import IDENTITY
from tasks.models.types import LayerStates, TokenKind, Tokens, tokens_from_table
from tasks.sweep.jobs import Job, Result, place

if TYPE_CHECKING:
    from tasks.models.base import Family

KINDS = ("observation", "future")  # tokens that stand for values
VALUED = [TokenKind[name.upper()] for name in KINDS]
LARGEST_FLOAT16 = 6e4  # float16 ends at 65,504, and T5's residual stream can pass it
PASS_TOKENS = {  # of one forward pass where `batch` is None: never timed at work, so that reruns give the same bytes
    "cpu": 4096,  # found by bench/embedding.py: results/embedding.md has the rates from one window to all
    "cuda": 32_768,  # not found yet, no GPU was at hand: `python -m bench.embedding --device cuda` prints the rates
}


def schema(width: int, dtype: str) -> pa.Schema:
    """Columns of an embedding dump, states of `width` in float16 or float32, which are never null."""
    value = pa.float16() if dtype == "float16" else pa.float32()
    return pa.schema(
        [
            ("stack", pa.dictionary(pa.int8(), pa.string())),
            ("layer", pa.int16()),
            ("normed", pa.bool_()),
            ("token", pa.int64()),
            ("series", pa.dictionary(pa.int32(), pa.string())),
            ("origin", pa.int64()),
            ("position", pa.int32()),
            ("kind", pa.int8()),
            ("type", pa.int32()),
            pa.field("state", pa.list_(pa.field("element", value, nullable=False), width), nullable=False),
        ]
    )


def embed(job: Job, data: pa.Table, model: Family) -> Result:
    """An embedding dump of a token dump, a table a (stack, layer, normed), and its row of `dumps`.

    data: a token dump. job.spec: identity, `rows` (kept a stack at most, a seeded sample without replacement, the same
    tokens in every layer), `batch` (windows of a forward pass, or None: `pass_windows`), `store_dtype`, and optionally
    `kinds` (names of TokenKind; by default KINDS) and `sampled_as` (of another model, whose sample is taken). Windows
    that hold no kept token are not run. States are stored as float16 only where that is asked for and every one of the
    dump is below LARGEST_FLOAT16. Otherwise the forward pass is run by whoever takes the tables (`feeding.used`).
    """
    tokens = tokens_from_table(data)
    batch = place().batch(job.spec["batch"] or pass_windows(tokens, place().device))
    rows = kept_rows(tokens, job.spec.get("kinds", KINDS), job.spec["rows"], sample_seed(job))
    layers: Iterable[LayerStates] = _kept_states(model, tokens, rows, batch)
    dtype = "float32"
    if job.spec["store_dtype"] == "float16":
        layers = list(layers)  # the largest may be the last
        dtype = "float16" if _fit_float16(layers) else "float32"
    row = {name: job.spec[name] for name in IDENTITY}
    row |= {"kind": "embeddings", "width": model.width, "dtype": dtype, "n_windows": len(tokens), "batch": batch}
    worked = len(run_windows(tokens, rows)) * window_tokens(tokens)
    tables = functools.partial(_tables, tokens=tokens, rows=rows, columns=schema(model.width, dtype))
    return Result([row], dump=layers.then(tables) if isinstance(layers, Feed) else tables(layers), tokens=worked)


def sample_seed(job: Job) -> int:
    """Seed of the kept tokens: the same whatever they are stored as, and however many windows are run at once.

    Of a model made from another, with `sampled_as` in its spec, that of the other.
    """
    same = job.spec.get("sampled_as", {})
    without = {"batch", "store_dtype", "format", "sampled_as"} | ({"options"} if same else set())
    chosen = {name: value for name, value in job.spec.items() if name not in without}
    return Job(job.task, chosen | same).spec_seed


def pass_windows(tokens: Tokens, device: str) -> int:
    """Windows of one forward pass on a device ("cpu", "cuda:0"): PASS_TOKENS over a window's tokens, at least one."""
    return max(1, PASS_TOKENS[device.partition(":")[0]] // window_tokens(tokens))


def window_tokens(tokens: Tokens) -> int:
    """Tokens of one window in all stacks."""
    return sum(kinds.shape[1] for kinds in tokens.kinds.values())


def run_windows(tokens: Tokens, rows: Mapping[str, np.ndarray]) -> np.ndarray:
    """The windows that hold a kept token, ascending: those that are run."""
    return np.unique(np.concatenate([ids // tokens.kinds[stack].shape[1] for stack, ids in rows.items()]))


def kept_rows(tokens: Tokens, kinds: tuple[str, ...] | list[str], rows: int, seed: int) -> Mapping[str, np.ndarray]:
    """Stack -> ascending ids (window * T + position) of the tokens that are kept, at most `rows`.

    ValueError for a kind that is not known or where no stack has a token of these kinds.
    """
    names = [kind.name.lower() for kind in TokenKind]
    if unknown := sorted(set(kinds) - set(names)):
        raise ValueError(f"kinds: got {unknown}, expected some of {names}")
    wanted = [TokenKind[kind.upper()] for kind in kinds]
    found = {}
    for index, (stack, values) in enumerate(tokens.kinds.items()):
        ids = np.flatnonzero(np.isin(values, wanted))
        if len(ids) > rows:
            ids = np.sort(np.random.default_rng([seed, index]).choice(ids, rows, replace=False))
        found[stack] = ids
    if not any(map(len, found.values())):
        raise ValueError(f"kinds: no stack has a token of {list(kinds)}; ask for others")
    return found


def _kept_states(
    model: Family, tokens: Tokens, rows: Mapping[str, np.ndarray], batch: int
) -> Feed[LayerStates, LayerStates]:
    """The kept rows [N, d] of every layer that has any."""
    with in_batches(model, batch):
        return model.fed_states(tokens, rows)


@contextmanager
def in_batches(model: Family, batch: int) -> Iterator[None]:
    """So many windows a forward pass while the context is open."""
    usual, model.batch = model.batch, batch
    try:
        yield
    finally:
        model.batch = usual


def _fit_float16(layers: list[LayerStates]) -> bool:
    largest = max(max(-layer.states.min(), layer.states.max()) for layer in layers)
    return bool(largest < LARGEST_FLOAT16)


def _tables(
    layers: Iterable[LayerStates], tokens: Tokens, rows: Mapping[str, np.ndarray], columns: pa.Schema
) -> Iterator[pa.Table]:
    """A table a layer; dictionaries are the same in all, as an Arrow file asks, and states are not copied."""
    shared = _token_columns(tokens, rows)
    state_type = columns.field("state").type
    for layer in layers:
        count = len(layer.states)
        flat = np.ascontiguousarray(layer.states, dtype=state_type.value_type.to_pandas_dtype()).reshape(-1)
        arrays: dict[str, Any] = {
            **shared[layer.stack],
            "layer": pa.array(np.full(count, layer.layer, np.int16)),
            "normed": pa.array(np.full(count, layer.normed)),
            "state": pa.FixedSizeListArray.from_arrays(pa.array(flat, state_type.value_type), type=state_type),
        }
        yield pa.table([arrays[name] for name in columns.names], schema=columns)


def _token_columns(tokens: Tokens, rows: Mapping[str, np.ndarray]) -> dict[str, dict[str, pa.Array]]:
    """Stack -> the columns that all of its layers have."""
    places = {name: place for place, name in enumerate(dict.fromkeys(tokens.series))}
    series, stacks = np.array([places[name] for name in tokens.series], np.int32), pa.array(list(rows))
    names, origin, found = pa.array(list(places)), np.asarray(tokens.origin), {}
    for index, (stack, ids) in enumerate(rows.items()):
        window, position = np.divmod(ids, tokens.kinds[stack].shape[1])
        types = tokens.types.get(stack)
        found[stack] = {
            "stack": pa.DictionaryArray.from_arrays(pa.array(np.full(len(ids), index, np.int8)), stacks),
            "token": pa.array(ids, pa.int64()),
            "series": pa.DictionaryArray.from_arrays(pa.array(series[window]), names),
            "origin": pa.array(origin[window], pa.int64()),
            "position": pa.array(position, pa.int32()),
            "kind": pa.array(tokens.kinds[stack][window, position], pa.int8()),
            "type": pa.nulls(len(ids), pa.int32()) if types is None else pa.array(types[window, position], pa.int32()),
        }
    return found


def drawn(tokens: Tokens, rows: int, seed: int) -> Tokens:
    """Seeded windows, as few as give `rows` tokens that stand for values to every stack that attends to several."""
    order, needed = np.random.default_rng([seed, 4]).permutation(len(tokens)), 1
    for kinds in tokens.kinds.values():
        if kinds.shape[1] > 1:
            reached = np.cumsum(np.isin(kinds, VALUED).sum(axis=1)[order])
            needed = max(needed, int(np.searchsorted(reached, rows)) + 1)
    return tokens.take(np.sort(order[:needed]))
