"""Results in a folder of Parquet files, one per table, so that they may be in git."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from store import catalogue, files, query
from store.schema import TABLES
from tsfmscope.errors import QueryError
from tsfmscope.files import TEMPORARY
from tsfmscope.functions import results

# Tables that are not saved unless they are named: large vectors, and what a run keeps about its own jobs and files.
LEFT_OUT = ("embeddings_sample", "timings", "dumps", "study_jobs")
# Statistics of all rows of a folder: those of a batch say nothing about the others.
STATISTICS = ("inference", "hypotheses")
# Tables with a row per window or cell, whose numbers are saved in float32: seven digits at half the size.
IN_FLOAT32 = ("forecasts", "validation", "geometry")


def save(
    database: Path,
    folder: Path,
    tables: frozenset[str] = frozenset(),
    *,
    without: frozenset[str] = frozenset(),
    digits: int | None = None,
) -> dict[str, int]:
    """Write every table of a catalogue that has rows to `folder`/TABLE.parquet; return their bytes.

    tables: names of the only tables to write; empty means all but LEFT_OUT. without: columns that are saved empty.
    digits: numbers change by at most 10^-digits of their size; None: as below. Views are not written: SQL makes them of
    the tables. Lists of numbers, such as eigenvalues, and the numbers of IN_FLOAT32 are saved in float32. Tables of an
    earlier save are replaced or deleted once all new files are written. Raises QueryError, and changes nothing, for an
    unknown table or column, if there is no database or no row, or if the folder has other Parquet files, which are not
    ours to delete.
    """
    known = [table.name for table in TABLES.values() if table.in_catalogue and not table.is_printed]
    of_all = [column for name in known for column in TABLES[name].columns]
    columns = ["job_key", *sorted({one.name for one in of_all} - {one.name for one in of_all if not one.nullable})]
    for option, given, names in (
        ("--tables: unknown table", tables, known),
        ("--without: unknown column", without, columns),
    ):
        if unknown := sorted(given - set(names)):
            near = ", ".join(query.near(unknown[0], names)) or ", ".join(names)
            raise QueryError(f"{option} {unknown[0]!r}, near: {near}")
    if foreign := sorted(path.name for path in folder.glob("*.parquet") if path.stem not in TABLES):
        raise QueryError(f"{folder}: {foreign[0]} is no table of the results; choose a folder without other files")
    with results.connect(database) as connection:
        names = [name for name in known if name in tables or (not tables and name not in LEFT_OUT)]
        names = [name for name in names if connection.execute(f'select 1 from "{name}" limit 1').fetchall()]
        if not names:
            raise QueryError(f"{database}: expected tables with rows, found none; nothing was saved")
        with files.translate_full_disk(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=folder) as scratch:
                for name in names:
                    rows = connection.sql(f'select * from "{name}"').to_arrow_table()
                    rows = _smaller(rows.cast(_as_saved(name, rows.schema)), without, digits)
                    files.write_parquet(Path(scratch, f"{name}.parquet"), rows)
                for name in names:
                    Path(scratch, f"{name}.parquet").replace(folder / f"{name}.parquet")
        for name in set(TABLES) - set(names):
            (folder / f"{name}.parquet").unlink(missing_ok=True)
    return {name: (folder / f"{name}.parquet").stat().st_size for name in names}


def connect(path: Path | str, *, threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """Open results read-only: a DuckDB file, or a folder that `save` wrote, of which a temporary database is made.

    A folder whose subfolders `save` wrote, such as the batches of a long run, has the rows of all of them.

    Raises QueryError if there are no results at the path or another version wrote them, and DamagedFile if a file of
    the folder is not as it was written. threads: as in results.connect.
    """
    path = Path(path)
    if not path.is_dir():
        return results.connect(path, threads=threads)
    sources = find_tables(path)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        database = Path(scratch, query.DATABASE.name)
        try:
            catalogue.build(database, sources, is_checked=False)
        except duckdb.Error as error:
            raise QueryError(
                f"{path}: does not fit this version of tsfmscope ({error}); save the results again with this version"
            ) from error
        # The open file stays readable after its folder is deleted.
        return results.connect(database, threads=threads)


def find_tables(folder: Path) -> dict[str, list[Path]]:
    """Return table -> its files in a folder that `save` wrote, and in its subfolders, without the STATISTICS of these.

    Raises QueryError if there are none.
    """
    found = {name: [*folder.glob(f"{name}.parquet")] for name in TABLES}
    found |= {
        name: paths + sorted(folder.glob(f"*/{name}.parquet"))
        for name, paths in found.items()
        if name not in STATISTICS
    }
    if not any(found.values()):
        raise QueryError(
            f"{folder}: no saved results: expected TABLE.parquet files, as `tsfmscope save-results` writes"
        )
    return {name: paths for name, paths in found.items() if paths}


def _as_saved(name: str, schema: pa.Schema) -> pa.Schema:
    """Return the schema of a table with list<float> for list<double>, and with float for double in IN_FLOAT32."""
    smaller = {pa.list_(pa.float64()): pa.list_(pa.float32())}
    if name in IN_FLOAT32:
        smaller[pa.float64()] = pa.float32()
    return pa.schema([field.with_type(smaller.get(field.type, field.type)) for field in schema])


def _smaller(rows: pa.Table, without: frozenset[str], digits: int | None) -> pa.Table:
    """Return rows with nothing in the columns of `without`, and with all other numbers rounded to `digits`."""
    for index, field in enumerate(rows.schema):
        column = rows.column(index).combine_chunks()
        if field.name in without:
            column = pa.array([""] * len(rows)) if field.name == "job_key" else pa.nulls(len(rows), field.type)
        elif digits is not None and pa.types.is_floating(field.type):
            column = _rounded(column, digits)
        elif digits is not None and pa.types.is_list(field.type) and pa.types.is_floating(field.type.value_type):
            column = pa.ListArray.from_arrays(column.offsets, _rounded(column.values, digits), mask=column.is_null())
        rows = rows.set_column(index, field, column)
    return rows


def _rounded(numbers: pa.Array, digits: int) -> pa.Array:
    """Return numbers that change by at most 10^-digits of their size: bits below that are 0, which compress well."""
    values = numbers.to_numpy(zero_copy_only=False)
    bits = math.ceil(digits * math.log2(10))
    mantissa, exponent = np.frexp(values)
    with np.errstate(over="ignore"):
        rounded = np.ldexp(np.rint(np.ldexp(mantissa, bits)), exponent - bits)
    # The largest numbers have no larger one.
    rounded = np.where(np.isfinite(rounded), rounded, values)
    return pa.array(rounded.astype(values.dtype), numbers.type, mask=np.asarray(numbers.is_null()))
