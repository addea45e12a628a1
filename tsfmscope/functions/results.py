"""`results`: the results of the pipeline, opened read-only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from store.saved_results import connect

if TYPE_CHECKING:
    import duckdb


def results(path: str | Path = "data/results.duckdb") -> duckdb.DuckDBPyConnection:
    """Open the results of the pipeline, read-only.

    Args:
        path: DuckDB file, or a folder that `tsfmscope save-results` wrote.

    Returns:
        A DuckDB connection: `results().sql("select …").df()` is a DataFrame. No statement can write a file or
        read another one. docs/tables.md lists the tables and views.

    Raises:
        QueryError: there are no results at the path, or another version wrote them.
        DamagedFile: a file of the folder is not as it was written.
    """
    return connect(path)
