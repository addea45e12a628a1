"""Schema of every table of the project: meaning of a row; type, unit, meaning and source of each column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from store.tables import compression, forecasts, inputs, population, printed, ranks, results, runs, skill, theory
from store.tables.columns import Table

PARTS = (inputs, skill, population, results, forecasts, ranks, compression, theory, printed, runs)
TABLES: Mapping[str, Table] = {table.name: table for part in PARTS for table in part.TABLES}


def job_tables(stage: str) -> list[str]:
    """Return the names of the tables that the jobs of a stage write."""
    return [name for name, table in TABLES.items() if stage in table.stages and table.keyed]


def arrow_schema(name: str) -> pa.Schema:
    """Return the Arrow schema of a table, with nullability and without metadata."""
    return pa.schema([pa.field(c.name, c.type, nullable=c.null) for c in TABLES[name].columns])


def to_arrow(name: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Convert rows to a table of the schema. A nullable column may be absent; a NaN in one becomes null.

    Raises ValueError for unknown columns, missing columns, and values of the wrong type.
    """
    schema = arrow_schema(name)
    known, required = set(schema.names), [field.name for field in schema if not field.nullable]
    optional = {field.name for field in schema if field.nullable}
    clean = []
    for n, row in enumerate(rows):
        if unknown := sorted(set(row) - known):
            raise ValueError(f"table {name}, row {n}: unknown columns {unknown}, expected {schema.names}")
        if missing := [c for c in required if row.get(c) is None]:
            raise ValueError(f"table {name}, row {n}: missing columns {missing}")
        # NaN is the only value that differs from itself.
        clean.append({c: None if c in optional and isinstance(v, float) and v != v else v for c, v in row.items()})
    columns = []
    for field in schema:
        try:
            columns.append(pa.array([row.get(field.name) for row in clean], field.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise ValueError(f"table {name}, column {field.name}: expected {field.type}: {error}") from error
    return pa.Table.from_arrays(columns, schema=schema)
