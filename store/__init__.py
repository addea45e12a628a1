"""The results: table schemas with units, atomic Parquet parts, the DuckDB catalogue."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

__all__ = ["open"]


def open(path: str | Path = "data/results.duckdb", *, threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """A read-only, locked connection to a catalogue: `store.open().sql("select ...").df()`.

    threads: None for all cores; with one alone, answers are the same to the last digit each time.
    """
    from store.query import connect

    return connect(path, threads=threads)
