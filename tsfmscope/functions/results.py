"""`results`: the results of the pipeline, opened so that no query can write a file or read another one."""

from __future__ import annotations

from pathlib import Path

import duckdb

from tsfmscope.errors import QueryError

# The option read_only alone does not stop COPY ... TO from writing, nor queries from reading any file.
LOCKED = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    # Without external access, DuckDB may still write to this folder, to the database and to its log.
    "temp_directory": "",
}
# Statements that are executed after the file has been opened.
SHUT = ("set disabled_filesystems = 'LocalFileSystem'", "set lock_configuration = true")
NO_DATABASE = "no database at {path}; `make repro` (or `dvc repro`) creates it, `dvc pull` fetches it"


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


def connect(path: Path | str, *, threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """Open a read-only, locked connection. QueryError if there is no file or it does not open.

    threads: number of DuckDB threads; None uses all cores. One thread sums in a fixed order, so that results
    have the same last digits each time.
    """
    path = Path(path)
    if not path.is_file():
        raise QueryError(NO_DATABASE.format(path=path))
    config = LOCKED if threads is None else LOCKED | {"threads": str(threads)}
    try:
        connection = duckdb.connect(str(path), read_only=True, config=config)
    except duckdb.Error as error:
        raise QueryError(f"{path} does not open as a DuckDB file: {error}") from error
    if connection.execute("select not current_setting('lock_configuration')").fetchall()[0][0]:
        # Skipped if another connection of this process has executed them already.
        for statement in SHUT:
            connection.execute(statement)
    return connection
