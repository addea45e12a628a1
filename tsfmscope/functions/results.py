"""`results`: the results of the pipeline, opened read-only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tsfmscope.errors import QueryError
from tsfmscope.read_only_database import connect

if TYPE_CHECKING:
    import duckdb


def results(path: str | Path = "data/results.duckdb") -> duckdb.DuckDBPyConnection:
    """Open the results of the pipeline, read-only.

    Args:
        path: DuckDB file that a run of the pipeline built. For a folder that `tsfmscope save-results` wrote, use
            `tsfmscope sql --results FOLDER` of a checkout.

    Returns:
        A DuckDB connection: `results().sql("select …").df()` is a DataFrame. No statement can write a file or
        read another one. docs/tables.md lists the tables and views.

    Raises:
        QueryError: there are no results at the path, or another version wrote them.
    """
    if Path(path).is_dir():
        raise QueryError(f"{path}: expected a DuckDB file, got a folder; `tsfmscope sql --results {path}` reads it")
    return connect(path)
