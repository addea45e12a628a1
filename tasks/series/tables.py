"""Conversion of series to rows of the `series` table, and back."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from tsfmscope.tasks.errors import DataError
from tsfmscope.tasks.series.types import Series

SCHEMA = pa.schema(
    [
        ("dataset", pa.string()),
        ("series", pa.string()),
        ("domain", pa.string()),
        ("freq", pa.string()),
        ("start", pa.timestamp("ms")),
        ("values", pa.list_(pa.float32())),
        ("kernel", pa.string()),
        ("seed", pa.int64()),
        ("provenance", pa.string()),
        ("season", pa.int32()),
    ]
)


def series_table(series: Iterable[Series]) -> pa.Table:
    """Build a table with one row per series, in the given order, with the columns of `SCHEMA`.

    Raises:
        DataError: the series have more than 2^31 - 1 values together.
    """
    rows = list(series)
    columns: list[pa.Array] = []
    for field in SCHEMA:
        if field.name == "values":
            columns.append(_lists([item.values for item in rows]))
        else:
            columns.append(pa.array([getattr(item, field.name) for item in rows], field.type))
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def table_series(table: pa.Table) -> list[Series]:
    """Read the series of a table; the inverse of `series_table`.

    Raises:
        DataError: the table lacks a column, or one has another type.
    """
    for field in SCHEMA:
        kind = table.schema.field(field.name).type if field.name in table.schema.names else None
        if kind != field.type:
            raise DataError(f"series table, column {field.name!r}: expected {field.type}, got {kind or 'none'}")
    rows = table.select([name for name in SCHEMA.names if name != "values"]).to_pylist()
    return [Series(values=values, **row) for row, values in zip(rows, list_values(table["values"]), strict=True)]


def list_values(column: pa.ChunkedArray) -> list[np.ndarray]:
    """Return float32 arrays of a column of lists of numbers.

    Null elements become NaN, null lists become empty arrays.
    """
    lists: list[np.ndarray] = []
    for chunk in column.cast(pa.large_list(pa.float32())).chunks:
        flat = chunk.values.to_numpy(zero_copy_only=False).astype(np.float32, copy=False)
        ends = chunk.offsets.to_numpy()
        missing = chunk.is_null().to_numpy(zero_copy_only=False)
        for row, is_null in enumerate(missing):
            lists.append(flat[0:0] if is_null else flat[ends[row] : ends[row + 1]])
    return lists


def _lists(values: list[np.ndarray]) -> pa.Array:
    ends = np.cumsum([0, *(len(item) for item in values)])
    flat = np.concatenate([np.empty(0, np.float32), *values]).astype(np.float32, copy=False)
    if ends[-1] > np.iinfo(np.int32).max:
        raise DataError(f"series table: expected at most 2^31 - 1 values in one table, got {ends[-1]}; write several")
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(flat))
