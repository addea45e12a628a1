"""Storage of results: table schemas with units, atomic Parquet parts, and the DuckDB catalogue."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

__all__ = ["open"]


def open(path: str | Path = "data/results.duckdb", *, threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """Open a read-only, locked connection to a catalogue: `store.open().sql("select ...").df()`.

    path: DuckDB file, or a folder that `tsfmscope save-results` wrote. threads: number of DuckDB threads; None uses
    all cores. With one thread, results are the same to the last digit each time.
    """
    from store.saved_results import connect

    return connect(path, threads=threads)
