"""Job entry of the stage `embeddings`: compute the hidden states of every layer from a token dump."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from tasks.job import Job, Result, current_context
from tasks.parts import CellIdentity, ModelSource
from tsfmscope import layer_states
from tsfmscope.defaults import ROWS
from tsfmscope.models.common.capture import KINDS, pass_windows, run_windows, window_tokens
from tsfmscope.models.types import LayerStates, Tokens, tokens_from_table
from tsfmscope.strict import Strict

if TYPE_CHECKING:
    from tsfmscope.models.base import Family

# float16 ends at 65,504, and T5's residual stream can exceed that.
LARGEST_FLOAT16 = 6e4


class SampledModel(ModelSource):
    """Model whose sample of tokens another model's job takes."""

    model: str
    base_model: str | None


class EmbedOptions(Strict):
    """Stage embeddings: hidden states of every layer."""

    rows: int = Field(
        ROWS, ge=1, description="largest number of tokens per stack, a seeded sample; the same tokens in every layer"
    )
    batch: int | None = Field(None, ge=1, description="windows per forward pass; null: chosen by the device")
    store_dtype: Literal["float16", "float32"] = "float32"


class EmbedSpec(CellIdentity, ModelSource, EmbedOptions):
    """Spec of `embed`.

    seed: the pipeline's seed, on which the sample depends. format: file format of the dump. sampled_as: the original
    model, where this one was made from it, so that both keep the same tokens. kinds: names of TokenKind that are kept.
    """

    seed: int
    format: str
    sampled_as: SampledModel | None = None
    kinds: tuple[str, ...] = KINDS


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

    The embedding dump has one table per (stack, layer, normed). data: a token dump. Windows without a kept
    token are not run. States are stored as float16 only if `store_dtype` asks for it and every state of the
    dump is below LARGEST_FLOAT16 in absolute value. If `store_dtype` is float32, the forward pass has not run
    when this function returns: it runs when the tables are consumed, and each layer is freed once it is written.
    Raises ValueError for an unknown kind, or if no stack has a token of these kinds.
    """
    spec = EmbedSpec.from_job(job)
    tokens = tokens_from_table(data)
    batch = current_context().batch(spec.batch or pass_windows(tokens, current_context().device))
    rows, _, states = layer_states.hidden_states(
        model, tokens, rows=spec.rows, seed=sample_seed(job), kinds=spec.kinds, batch=batch
    )
    layers: Iterable[LayerStates] = states
    dtype = "float32"
    if spec.store_dtype == "float16":
        # All layers are needed before the dtype is known: the largest state may be in the last one.
        layers = list(layers)
        largest = max(max(-layer.states.min(), layer.states.max()) for layer in layers)
        dtype = "float16" if largest < LARGEST_FLOAT16 else "float32"
    row = spec.part(CellIdentity)
    row |= {"kind": "embeddings", "width": model.width, "dtype": dtype, "n_windows": len(tokens), "batch": batch}
    worked = len(run_windows(tokens, rows)) * window_tokens(tokens)
    return Result([row], dump=_tables(layers, tokens, rows, schema(model.width, dtype)), tokens=worked)


def sample_seed(job: Job) -> int:
    """Return the seed for sampling the kept tokens.

    It does not depend on `store_dtype`, `format`, `batch` and the requested size. If the spec has `sampled_as`,
    because the model was made from another one, the seed is that of the other model.
    """
    spec = EmbedSpec.from_job(job)
    without = {"batch", "store_dtype", "format", "sampled_as", "size_parameter", "size_rule"}
    without |= {"options"} if spec.sampled_as else set()
    entries = {name: value for name, value in spec.to_dict().items() if name not in without}
    return Job(job.task, entries | (spec.sampled_as.to_dict() if spec.sampled_as else {})).spec_seed


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
    series_index = {name: index for index, name in enumerate(dict.fromkeys(tokens.series))}
    series, stacks = np.array([series_index[name] for name in tokens.series], np.int32), pa.array(list(rows))
    names, origin, columns = pa.array(list(series_index)), np.asarray(tokens.origin), {}
    for index, (stack, ids) in enumerate(rows.items()):
        window, position = np.divmod(ids, tokens.kinds[stack].shape[1])
        types = tokens.types.get(stack)
        columns[stack] = {
            "stack": pa.DictionaryArray.from_arrays(pa.array(np.full(len(ids), index, np.int8)), stacks),
            "token": pa.array(ids, pa.int64()),
            "series": pa.DictionaryArray.from_arrays(pa.array(series[window]), names),
            "origin": pa.array(origin[window], pa.int64()),
            "position": pa.array(position, pa.int32()),
            "kind": pa.array(tokens.kinds[stack][window, position], pa.int8()),
            "type": pa.nulls(len(ids), pa.int32()) if types is None else pa.array(types[window, position], pa.int32()),
        }
    return columns
