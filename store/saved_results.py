"""Results in a folder of Parquet files, one per table, so that they may be in git."""

from __future__ import annotations

import tempfile
from pathlib import Path

import duckdb
import pyarrow as pa

from tsfmscope.store import catalogue, files, query
from tsfmscope.store.errors import QueryError
from tsfmscope.store.schema import TABLES

# Tables that are not saved unless they are named: large vectors, and what a run keeps about its own jobs and files.
LEFT_OUT = ("embeddings_sample", "timings", "dumps", "study_jobs")


def save(database: Path, folder: Path, tables: frozenset[str] = frozenset()) -> dict[str, int]:
    """Write every table of a catalogue that has rows to `folder`/TABLE.parquet; return their bytes.

    tables: names of the only tables to write; empty means all but LEFT_OUT. Views are not written: SQL makes them of
    the tables. Lists of numbers, such as eigenvalues, are saved in float32, all else as it is. Files of tables that are
    not written are deleted from the folder. Raises QueryError for an unknown table, if there is no database or no row,
    or if the folder has other Parquet files, which are not ours to delete.
    """
    known = [table.name for table in TABLES.values() if table.in_catalogue and not table.is_printed]
    if unknown := sorted(tables - set(known)):
        near = ", ".join(query.near(unknown[0], known)) or ", ".join(known)
        raise QueryError(f"--tables: unknown table {unknown[0]!r}, near: {near}")
    if foreign := sorted(path.name for path in folder.glob("*.parquet") if path.stem not in TABLES):
        raise QueryError(f"{folder}: {foreign[0]} is no table of the results; choose a folder without other files")
    written = {}
    with query.connect(database) as connection:
        for name in known:
            file = folder / f"{name}.parquet"
            rows = None
            if name in tables or (not tables and name not in LEFT_OUT):
                rows = connection.sql(f'select * from "{name}"').to_arrow_table()
            if rows is None or rows.num_rows == 0:
                file.unlink(missing_ok=True)
                continue
            with files.translate_full_disk(file):
                folder.mkdir(parents=True, exist_ok=True)
                files.write_parquet(file, rows.cast(_with_float_lists(rows.schema)))
            written[name] = file.stat().st_size
    if not written:
        raise QueryError(f"{database}: expected tables with rows, found none; nothing was saved")
    return written


def connect(path: Path | str, *, threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """Open results read-only: a DuckDB file, or a folder that `save` wrote, of which a temporary database is made.

    Raises QueryError if there are no results at the path or another version wrote them, and DamagedFile if a file of
    the folder is not as it was written. threads: as in query.connect.
    """
    path = Path(path)
    if not path.is_dir():
        return query.connect(path, threads=threads)
    sources = {name: [file] for name in TABLES if (file := path / f"{name}.parquet").is_file()}
    if not sources:
        raise QueryError(f"{path}: no saved results: expected TABLE.parquet files, as `tsfmscope save-results` writes")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        database = Path(scratch, query.DATABASE.name)
        try:
            catalogue.build(database, sources, is_checked=False)
        except duckdb.Error as error:
            raise QueryError(f"{path}: these tables are of another version of tsfmscope: {error}") from error
        return query.connect(database, threads=threads)  # the open file stays readable after its folder is deleted


def _with_float_lists(schema: pa.Schema) -> pa.Schema:
    """Return the schema with list<double> columns as list<float>."""
    double = pa.list_(pa.float64())
    return pa.schema([field.with_type(pa.list_(pa.float32())) if field.type == double else field for field in schema])
