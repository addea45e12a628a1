"""Conversion of series to rows of the `series` table, and back."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from tsfmscope.errors import DataError
from tsfmscope.series.types import Series

SCHEMA = pa.schema({
    "dataset": pa.string(), "series": pa.string(), "domain": pa.string(), "freq": pa.string(),
    "start": pa.timestamp("ms"), "values": pa.list_(pa.float32()), "kernel": pa.string(), "seed": pa.int64(),
    "provenance": pa.string(), "season": pa.int32(),
})  # fmt: skip
# Types of lists in any of Arrow's layouts, types of numbers, and those of which float32 contains all.
LISTS = (
    pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_list_view,
    pa.types.is_large_list_view,
)  # fmt: skip
NUMBERS = (pa.types.is_floating, pa.types.is_integer, pa.types.is_decimal)
DOUBLE_VALUES = pa.field("values", pa.list_(pa.float64()))
EXACT = {pa.float16(), pa.float32(), pa.int8(), pa.int16(), pa.uint8(), pa.uint16()}


def series_table(series: Iterable[Series]) -> pa.Table:
    """Build a table with one row per series, in the given order, with the columns of `SCHEMA`.

    Values are float64 if those of any series are.

    Raises:
        DataError: the series have more than 2^31 - 1 values together.
    """
    rows = list(series)
    is_double = any(item.values.dtype == np.float64 for item in rows)
    dtype = np.float64 if is_double else np.float32
    ends = np.cumsum([0, *(len(item.values) for item in rows)])
    if ends[-1] > np.iinfo(np.int32).max:
        raise DataError(f"series table: expected at most 2^31 - 1 values in one table, got {ends[-1]}; write several")
    flat = np.concatenate([np.empty(0, dtype), *(item.values for item in rows)]).astype(dtype, copy=False)
    values = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(flat))
    columns = [
        values if field.name == "values" else pa.array([getattr(item, field.name) for item in rows], field.type)
        for field in SCHEMA
    ]
    schema = SCHEMA.set(SCHEMA.get_field_index("values"), DOUBLE_VALUES) if is_double else SCHEMA
    return pa.Table.from_arrays(columns, schema=schema)


def table_series(table: pa.Table) -> list[Series]:
    """Read the series of a table; the inverse of `series_table`.

    Raises:
        DataError: the table lacks a column, or one has another type.
    """
    for field in SCHEMA:
        kind = table.schema.field(field.name).type if field.name in table.schema.names else None
        if kind != field.type and not (field.name == "values" and kind == DOUBLE_VALUES.type):
            raise DataError(f"series table, column {field.name!r}: expected {field.type}, got {kind or 'none'}")
    rows = table.select([name for name in SCHEMA.names if name != "values"]).to_pylist()
    return [Series(values=values, **row) for row, values in zip(rows, list_values(table["values"]), strict=True)]


def is_number_list(kind: pa.DataType) -> bool:
    """Return whether a type is that of lists of real numbers, in any of Arrow's layouts."""
    return any(test(kind) for test in LISTS) and any(test(kind.value_type) for test in NUMBERS)


def list_values(column: pa.ChunkedArray) -> list[np.ndarray]:
    """Return arrays of a column of lists of numbers: float32 where that is exact for the column's type, else float64.

    Null elements become NaN, null lists become empty arrays.
    """
    lists: list[np.ndarray] = []
    kind = pa.float32() if column.type.value_type in EXACT else pa.float64()
    if pa.types.is_list_view(column.type) or pa.types.is_large_list_view(column.type):
        # pyarrow 26 casts only the first list of a view.
        column = pa.chunked_array([pa.array(column.to_pylist(), pa.large_list(column.type.value_type))])
    for chunk in column.cast(pa.large_list(kind), safe=False).chunks:
        flat = chunk.values.to_numpy(zero_copy_only=False).astype(kind.to_pandas_dtype(), copy=False)
        ends = chunk.offsets.to_numpy()
        missing = chunk.is_null().to_numpy(zero_copy_only=False)
        for row, is_null in enumerate(missing):
            lists.append(flat[0:0] if is_null else flat[ends[row] : ends[row + 1]])
    return lists
