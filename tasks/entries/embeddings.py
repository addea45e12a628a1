"""Job entry of the stage `embeddings`: compute the hidden states of every layer from a token dump."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tsfmscope.tasks import lens
from tsfmscope.tasks.job import IDENTITY, Job, Result, current_context
from tsfmscope.tasks.models.common.batches import KINDS, pass_windows, run_windows, window_tokens
from tsfmscope.tasks.models.types import LayerStates, Tokens, tokens_from_table
from tsfmscope.tasks.producer_consumer import ProducerConsumer

if TYPE_CHECKING:
    from tsfmscope.tasks.models.base import Family

# float16 ends at 65,504, and T5's residual stream can exceed that.
LARGEST_FLOAT16 = 6e4


def schema(width: int, dtype: str) -> pa.Schema:
    """Return the columns of an embedding dump.

    dtype: "float16" or "float32", the type of the states. Every state has `width` values and is never null.
    """
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
    """Compute an embedding dump from a token dump, and its row of `dumps`.

    The embedding dump has one table per (stack, layer, normed). data: a token dump. job.spec contains:

    - the identity;
    - `rows`: the largest number of tokens kept per stack, a seeded sample without replacement, with the same
      tokens in every layer;
    - `batch`: windows of a forward pass, or None for `pass_windows`;
    - `store_dtype`: "float16" or "float32";
    - optionally `kinds`: names of TokenKind, by default KINDS;
    - optionally `sampled_as`: spec entries of another model, whose sample of tokens is taken.

    Windows without a kept token are not run. States are stored as float16 only if `store_dtype` asks for it
    and every state of the dump is below LARGEST_FLOAT16 in absolute value. If `store_dtype` is float32, the
    forward pass has not run when this function returns: it runs when the tables are consumed
    (`ProducerConsumer.then`).
    Raises ValueError for an unknown kind, or if no stack has a token of these kinds.
    """
    tokens = tokens_from_table(data)
    batch = current_context().batch(job.spec["batch"] or pass_windows(tokens, current_context().device))
    rows, _, producer = lens.hidden_states(
        model, tokens, rows=job.spec["rows"], seed=sample_seed(job), kinds=job.spec.get("kinds", KINDS), batch=batch
    )
    layers: Iterable[LayerStates] = producer
    dtype = "float32"
    if job.spec["store_dtype"] == "float16":
        # All layers are needed before the dtype is known: the largest state may be in the last one.
        layers = list(layers)
        dtype = "float16" if _fit_float16(layers) else "float32"
    row = {name: job.spec[name] for name in IDENTITY}
    row |= {"kind": "embeddings", "width": model.width, "dtype": dtype, "n_windows": len(tokens), "batch": batch}
    worked = len(run_windows(tokens, rows)) * window_tokens(tokens)
    tables = functools.partial(_tables, tokens=tokens, rows=rows, columns=schema(model.width, dtype))
    return Result(
        [row], dump=layers.then(tables) if isinstance(layers, ProducerConsumer) else tables(layers), tokens=worked
    )


def sample_seed(job: Job) -> int:
    """Return the seed for sampling the kept tokens.

    It does not depend on `store_dtype`, `format` and `batch`. If the spec has `sampled_as`, because the model
    was made from another one, the seed is that of the other model.
    """
    same = job.spec.get("sampled_as", {})
    without = {"batch", "store_dtype", "format", "sampled_as"} | ({"options"} if same else set())
    chosen = {name: value for name, value in job.spec.items() if name not in without}
    return Job(job.task, chosen | same).spec_seed


def _fit_float16(layers: list[LayerStates]) -> bool:
    largest = max(max(-layer.states.min(), layer.states.max()) for layer in layers)
    return bool(largest < LARGEST_FLOAT16)


def _tables(
    layers: Iterable[LayerStates], tokens: Tokens, rows: Mapping[str, np.ndarray], columns: pa.Schema
) -> Iterator[pa.Table]:
    """Yield one table per layer.

    The dictionaries are the same in all tables, as an Arrow file requires. States that already have the
    stored dtype are not copied.
    """
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
    """Return, for each stack, the columns that are the same in all of its layers."""
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
