"""Types that a family exchanges with other code: tokens, hidden states, forecasts, weights and their heads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np
import pyarrow as pa
from jaxtyping import Float, Int, Int8, Int32

if TYPE_CHECKING:
    import torch

    from tsfmscope.series.types import Windows


class TokenKind(IntEnum):
    """Kind of a token; only OBSERVATION and FUTURE stand for values."""

    OBSERVATION = 0
    PADDING = 1
    EOS = 2
    REG = 3
    MASK = 4
    FUTURE = 5
    # A decoder's start token: its row forecasts the first future step.
    START = 6


@dataclass(frozen=True, eq=False)
class Tokens:
    """Tokenised windows of one data set under one condition.

    arrays: the family's own inputs, each [W, ...] numeric (ids, masks, patches, scales), enough for
    hidden_states. kinds: stack -> [W, T] TokenKind of every row of that stack's hidden states. types: stack
    -> [W, T] token id (quantised families). A family without a vocabulary leaves the stack out, and every row
    is then its own type. series, origin: as in Windows.
    """

    arrays: Mapping[str, np.ndarray]
    kinds: Mapping[str, Int8[np.ndarray, "window token"]]
    types: Mapping[str, Int32[np.ndarray, "window token"]]
    series: list[str]
    origin: np.ndarray

    def __len__(self) -> int:
        return len(self.series)

    def take(self, windows: Sequence[int] | Int[np.ndarray, " kept"]) -> Self:
        """Return the tokens of these windows alone, in the order given."""
        at = np.asarray(windows, dtype=np.int64)
        arrays, kinds, types = (
            {name: values[at] for name, values in group.items()} for group in (self.arrays, self.kinds, self.types)
        )
        return type(self)(arrays, kinds, types, [self.series[i] for i in at.tolist()], np.asarray(self.origin)[at])


@dataclass(frozen=True, eq=False)
class LayerStates:
    """Hidden states of one layer; layer 0 is the embedding's output.

    normed: whether the states are those after the final norm. states: [W, T, d], or [N, d] where rows were
    requested.
    """

    stack: str
    layer: int
    normed: bool
    states: Float[np.ndarray, "*row width"]


@dataclass(frozen=True, eq=False)
class Forecast:
    """Quantile forecasts: values [W, Q, H] in the data's units, levels [Q] ascending and including 0.5."""

    values: Float[np.ndarray, "window quantile horizon"]
    levels: tuple[float, ...]

    @property
    def median(self) -> Float[np.ndarray, "window horizon"]:
        return self.values[:, self.levels.index(0.5)]


def name_layer(layer: int, *, normed: bool) -> str:
    """Return the number of a layer as text, with ′ for the state after the final norm."""
    return f"{layer}{'′' if normed else ''}"


class ForecastModel(Protocol):
    """Parts of a model that scoring uses; a `Forecaster` has them, and so has an `OnnxForecaster`."""

    def with_condition(self, context: int, history: int) -> tuple[Self, int]:
        """Return this model under a condition, and the number of context steps that its windows need."""

    def forecast(self, windows: Windows, *, levels: Sequence[float], samples: int, seeds: Sequence[int]) -> Forecast:
        """Return quantiles of the horizon."""


@dataclass(frozen=True, eq=False)
class ForecastGraph:
    """A forecast that is one forward pass, as a module that exporters can trace.

    make: function from context and horizon, in steps, to a module. The module maps contexts [B, C], NaN where a
    step is missing or before the series begins, to quantiles [B, Q, H] in the data's units, both float32.
    context, horizon: the largest values that `make` takes. levels: of the quantiles, ascending, as trained.
    reads_frequency: the module takes frequency ids [B], int64, as a second argument.
    """

    make: Callable[[int, int], torch.nn.Module]
    context: int
    horizon: int
    levels: tuple[float, ...]
    reads_frequency: bool = False


# Levels at which forecasts of a package are compared where the package can be asked for any.
COMPARED_LEVELS = (0.1, 0.5, 0.9)


@dataclass(frozen=True)
class PackageForecast:
    """Forecast of a family's package.

    quantiles: [W, Q, H] at the levels. logits: [W, T, ids]. Both are None where the forecast is sampled.
    """

    quantiles: np.ndarray | None = None
    levels: tuple[float, ...] = COMPARED_LEVELS
    logits: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class WeightMatrix:
    """One matrix of attention, of an MLP or of a state space, [out, in].

    name: q, k, v, o, mlp_in, mlp_gate, mlp_out, ssm_in, ssm_out; the name of an expert's matrix has a suffix, as in
    mlp_in.3. A complex matrix of a state space is a real one here, with its real parts, then its imaginary parts.
    attention: self or cross; None for a matrix outside attention. Chronos-2 has time (rotary self-attention over a
    series' patches) and group (plain, over the series of a group at one patch). Code that reads W_Q^T W_K as one
    bilinear form uses the `self` matrices of families whose `plain_attention` is True.
    heads: number of query heads; None without attention.
    linear: the torch Linear that has the matrix; None where no single Linear has it.
    """

    stack: str
    layer: int
    name: str
    attention: str | None
    heads: int | None
    matrix: np.ndarray
    linear: Any = field(default=None, repr=False, compare=False)

    @classmethod
    def of(
        cls, module: Any, stack: str, layer: int, name: str, *, attention: str | None = None, heads: int | None = None
    ) -> Self:
        """Return the matrix of a torch Linear, in float32."""
        return cls(stack, layer, name, attention, heads, module.weight.detach().float().cpu().numpy(), module)


def tokens_to_table(tokens: Tokens) -> pa.Table:
    """Return a table with one row per window.

    Its columns are `series` and `origin`, then arrays, kinds and types as fixed-size lists, named
    `array:ids`, `kind:stack`, `type:stack` and so on. The metadata contain the shapes of the arrays.
    """
    columns: dict[str, pa.Array] = {"series": pa.array(tokens.series), "origin": pa.array(tokens.origin)}
    for prefix, group in (("array", tokens.arrays), ("kind", tokens.kinds), ("type", tokens.types)):
        for name, values in group.items():
            flat = np.ascontiguousarray(values).reshape(len(values), -1)
            columns[f"{prefix}:{name}"] = pa.FixedSizeListArray.from_arrays(pa.array(flat.reshape(-1)), flat.shape[1])
    shapes = {f"array:{n}": ",".join(map(str, a.shape[1:])) for n, a in tokens.arrays.items()}
    return pa.table(columns).replace_schema_metadata(shapes)


def tokens_from_table(table: pa.Table) -> Tokens:
    """Return the tokens of a table that `tokens_to_table` made."""
    shapes = {k.decode(): v.decode() for k, v in (table.schema.metadata or {}).items()}
    groups: dict[str, dict[str, np.ndarray]] = {"array": {}, "kind": {}, "type": {}}
    for column in table.column_names:
        prefix, _, name = column.partition(":")
        if prefix not in groups:
            continue
        values = table[column].combine_chunks()
        width = values.type.list_size
        flat = values.flatten().to_numpy(zero_copy_only=False).reshape(len(table), width)
        shape = tuple(int(n) for n in shapes.get(column, str(width)).split(",") if n)
        groups[prefix][name] = flat.reshape(len(table), *shape)
    series, origin = table["series"].to_pylist(), table["origin"].to_numpy()
    return Tokens(groups["array"], groups["kind"], groups["type"], series, origin)


# Stack, layer, attention and name of a matrix, as in WeightMatrix.
MatrixKey = tuple[str, int, str | None, str]


class Projections(NamedTuple):
    """W_Q and W_K of one self-attention, [h d_h, d], head after head, without biases."""

    query: np.ndarray
    key: np.ndarray
    heads: int


class Weighted(Protocol):
    """Model that names its weight matrices, as every family does."""

    def weights(self) -> Iterator[WeightMatrix]:
        """Yield the matrices of every block."""


def projections(model: Weighted) -> dict[tuple[str, int], Projections]:
    """Return, for each (stack, layer), W_Q and W_K of its self-attention in float64."""
    by_key: dict[tuple[str, int], dict[str, Any]] = {}
    for weight in model.weights():
        if weight.attention == "self" and weight.name in ("q", "k"):
            by_key.setdefault((weight.stack, weight.layer), {})[weight.name] = weight
    return {
        key: Projections(pair["q"].matrix.astype(np.float64), pair["k"].matrix.astype(np.float64), pair["q"].heads)
        for key, pair in by_key.items()
    }


def head_counts(model: Weighted) -> dict[MatrixKey, int]:
    """Return the number of heads of q, k, v and o of each attention.

    With grouped attention, k and v have fewer heads than `heads`: the rows of k over the rows of one query
    head. ValueError where that is not a whole number.
    """
    counts: dict[MatrixKey, int] = {}
    widths = {
        (weight.stack, weight.layer, weight.attention): len(split_heads(weight, weight.heads or 1)[0])
        for weight in model.weights()
        if weight.name == "q"
    }
    for weight in model.weights():
        key, rows = (weight.stack, weight.layer, weight.attention), len(weight.matrix)
        if weight.heads and weight.name in ("q", "o"):
            counts[*key, weight.name] = weight.heads
        elif weight.heads and weight.name == "k":
            width = widths[key]
            if rows % width or not rows:
                raise ValueError(f"{_name(weight)}: got {rows} rows, expected heads of {width} rows")
            counts[*key, "k"] = counts[*key, "v"] = rows // width
    return counts


def split_heads(weight: WeightMatrix, count: int) -> list[np.ndarray]:
    """Return the heads of a matrix: parts [d_h, in] of q, k or v, and [out, d_h] of o.

    ValueError where `count` does not divide the rows (or the columns of o).
    """
    axis, side = (1, "columns") if weight.name == "o" else (0, "rows")
    if weight.matrix.shape[axis] % count:
        raise ValueError(f"{_name(weight)}: got {weight.matrix.shape[axis]} {side}, expected a multiple of {count}")
    return np.split(weight.matrix, count, axis=axis)


def _name(weight: WeightMatrix) -> str:
    return f"{weight.stack} block {weight.layer} {weight.name}"
