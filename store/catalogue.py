"""Build of results.duckdb from the Parquet files of all stages: tables with comments, views, checks.

One process writes the database under a temporary name; the report reads it.
"""

from __future__ import annotations

import errno
import glob
import logging
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from graphlib import CycleError, TopologicalSorter
from importlib.resources import files as resources
from importlib.resources.abc import Traversable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from store import dumps, files, generated_checks
from store.errors import CheckFailed, StoreError
from store.schema import TABLES, Table, arrow_schema, isotropy_measures, view_meaning
from tsfmscope.files import TEMPORARY

logger = logging.getLogger(__name__)
# Pinned because DuckDB 1.4 cannot open a file in DuckDB 2.0's own format.
STORAGE_VERSION = "v1.4.0"
SQL_TYPES = {
    "string": "varchar",
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "integer",
    "int64": "bigint",
    "float": "float",
    "double": "double",
    "timestamp[ms]": "timestamp_ms",
    "timestamp[us, tz=UTC]": "timestamptz",
}
# Texts in DuckDB's errors when a disk is full: the kernel's messages, and the name of DuckDB's own
# limit for spilled data.
FULL = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT), "max_temp_directory_size")
# Above this limit DuckDB spills to a folder next to the database, so the results may be larger than
# memory.
MEMORY = "2GB"
# Matches the names of the tables and views that a query reads.
SOURCE = re.compile(r"\b(?:from|join)\s+(\w+)")
# Maximum number of rows that the message of a failed check shows.
SHOWN = 5
# Rows of the sample of hidden states.
TOKENS_PER_MODEL = 1_000
# Maximum number of record batches (layers) read for a model, whatever the number of its dumps.
GROUPS_PER_MODEL = 64
ORDER = ("study", "model", "dataset", "condition", "stack", "layer", "normed", "head", "instance", "series", "origin")


def build(
    path: Path,
    sources: Mapping[str, Sequence[Path]],
    *,
    sql: Traversable | None = None,
    seed: int = 0,
    is_checked: bool = True,
) -> None:
    """Write the catalogue.

    sources: table name -> its Parquet files, from any number of outs; a table without files is empty. Files that
    have the column study already (store/saved_results.py) are taken as they are. The
    files of `embeddings` are dump files, of which a seeded sample is stored. sql: a folder with the
    subfolders `views`, `answers` and `checks`; None means store/sql, and the checks that are generated from the
    schema. An optional subfolder `materialized` contains queries that are stored as tables, because many views
    read them and they take more than a second at ten million rows of geometry. seed: seed of the sample.
    is_checked: whether the checks run.

    Raises CheckFailed with the check's name and rows, DamagedFile if a file of rows is not as it was written,
    and StoreFull if the disk is full. On an error the former catalogue stays, and no other file is left next
    to it.
    """
    checks = list(generated_checks.generate(TABLES.values())) if sql is None and is_checked else []
    sql = sql or resources("store") / "sql"
    checks += queries(sql / "checks") if is_checked else []
    # DuckDB does not compare the checksums of the files.
    rows = [file for table, paths in sources.items() if table != "embeddings" for file in paths]
    with ThreadPoolExecutor() as pool:
        list(pool.map(files.verify, rows))
    with files.translate_full_disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in path.parent.glob(f"{TEMPORARY}*-{glob.escape(path.name)}*"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    with files.atomic(path) as temporary:
        try:
            _write(temporary, sources, sql, checks, seed)
        except duckdb.Error as error:
            if any(text in str(error) for text in FULL):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
            raise
        finally:
            Path(f"{temporary}.wal").unlink(missing_ok=True)
            shutil.rmtree(f"{temporary}.spilled", ignore_errors=True)


def _write(
    path: Path, sources: Mapping[str, Sequence[Path]], sql: Traversable, checks: Iterable[tuple[str, str]], seed: int
) -> None:
    """Fill a new database with tables and views, and run the checks."""
    with duckdb.connect() as connection:
        # DuckDB draws the progress bar even if there is no terminal.
        connection.execute("set enable_progress_bar = false")
        connection.execute(f"set memory_limit = '{MEMORY}'; set temp_directory = {_text(f'{path}.spilled')}")
        connection.execute(f"attach {_text(path)} as results (storage_version '{STORAGE_VERSION}')")
        connection.execute("use results")
        # One transaction, because otherwise each of 200 statements would wait for the disk.
        connection.execute("begin")
        _fill(connection, sources, seed)
        _create_views(connection, sql)
        connection.execute("commit")
        _run_checks(connection, checks)
        connection.execute("use memory")
        connection.execute("detach results")


def create_empty() -> duckdb.DuckDBPyConnection:
    """Return a catalogue in memory with every table and view, but without measured rows."""
    connection = duckdb.connect()
    _fill(connection, {}, 0)
    _create_views(connection, resources("store") / "sql")
    return connection


def _fill(connection: duckdb.DuckDBPyConnection, sources: Mapping[str, Sequence[Path]], seed: int) -> None:
    """Create and fill every table of the catalogue; tables that are joined with `study_jobs` come last."""
    for table in sorted((t for t in TABLES.values() if t.in_catalogue), key=lambda t: t.by_study):
        _create(connection, table)
        if table.name == "embeddings_sample":
            if paths := sources.get("embeddings"):
                connection.register("sampled", sample_embeddings(paths, seed=seed))
                connection.execute("insert into embeddings_sample by name select * from sampled")
                connection.unregister("sampled")
        elif table.is_printed:
            path = resources("store") / "published" / f"{table.name}.csv"
            rows = f"read_csv({_text(path)}, all_varchar = true, header = true)"
            connection.execute(f"insert into {table.name} by name select * from {rows}")
        elif paths := sources.get(table.name):
            _insert(connection, table, paths)


def _create(connection: duckdb.DuckDBPyConnection, table: Table) -> None:
    columns = ["study varchar not null"] if table.by_study else []
    columns += [f'"{c.name}" {_sql_type(c.type)}{"" if c.nullable else " not null"}' for c in table.columns]
    connection.execute(f"create table {table.name} ({', '.join(columns)})")
    meaning = f"A row is {table.row}." + (f" Key: {', '.join(table.full_key)}." if table.key else "")
    connection.execute(f"comment on table {table.name} is {_text(meaning)}")
    for column in table.columns:
        connection.execute(f'comment on column {table.name}."{column.name}" is {_text(column.comment)}')
    if table.by_study:
        connection.execute(
            f"comment on column {table.name}.study is 'study that requested the row, by its name in params'"
        )


def _insert(connection: duckdb.DuckDBPyConnection, table: Table, paths: Sequence[Path]) -> None:
    """Insert all rows of the files.

    In a table with a study column, insert one row per study that requested it.
    """
    # Escaped, because DuckDB reads every file that a pattern such as `runs[1]/*.parquet` matches.
    names = ", ".join(_text(glob.escape(str(path))) for path in paths)
    rows = f"read_parquet([{names}], union_by_name = true, hive_partitioning = false)"
    # Batches of saved results repeat rows of data sets and studies.
    query = f"select {'' if table.keyed or len(paths) == 1 else 'distinct'} * from {rows}"
    if table.by_study and "study" not in pq.read_schema(paths[0]).names:
        query = f"""
            select study_jobs.study, job_rows.*
            from {rows} as job_rows
            inner join study_jobs
                on study_jobs.job_key = job_rows.job_key and study_jobs.stage = '{table.stages[0]}'
        """
    columns = {column.name for column in table.columns} | ({"study"} if table.by_study else set())
    order = ", ".join(name for name in ORDER if name in columns)
    connection.execute(f"insert into {table.name} by name {query}" + (f" order by {order}" if order else ""))


def _create_views(connection: duckdb.DuckDBPyConnection, sql: Traversable) -> None:
    """Create views (from views/ and answers/) and tables (from materialized/) in dependency order."""
    materialized = dict(queries(sql / "materialized")) if (sql / "materialized").is_dir() else {}
    texts = materialized | {name: text for folder in ("views", "answers") for name, text in queries(sql / folder)}
    measures = isotropy_measures()
    larger = ", ".join(_text(column.name) for column in measures if column.more_isotropic == "larger")
    filled = {"$measures": ", ".join(column.name for column in measures), "$larger_is_isotropic": larger}
    for parameter, columns in filled.items():
        texts = {name: text.replace(parameter, columns) for name, text in texts.items()}
    reads = {name: texts.keys() & set(SOURCE.findall(text)) for name, text in texts.items()}
    try:
        order = list(TopologicalSorter(reads).static_order())
    except CycleError as error:
        raise StoreError(f"views read each other in a circle: {' reads '.join(error.args[1])}") from error
    # With one thread, sums in materialized tables have the same last digits each time.
    connection.execute("set threads = 1")
    for name in order:
        kind = "table" if name in materialized else "view"
        try:
            connection.execute(f"create {kind} {name} as {texts[name]}")
        except duckdb.Error as error:
            raise StoreError(f"{kind} {name}.sql cannot be made: {error}") from error
        connection.execute(f"comment on {kind} {name} is {_text(question(texts[name]))}")
    connection.execute("reset threads")
    sources = {name: set(SOURCE.findall(text)) & set(TABLES) for name, text in texts.items()}
    _describe(connection, reads, sources, {name: question(text) for name, text in materialized.items()})


def _describe(
    connection: duckdb.DuckDBPyConnection,
    views: Mapping[str, Collection[str]],
    tables: Mapping[str, Collection[str]],
    questions: Mapping[str, str],
) -> None:
    """Set the comments of view columns, from store/view_columns.yaml or the source tables' columns.

    questions: first line of each materialized table, the comment of its columns that have no other.
    """

    def made_of(view: str) -> set[str]:
        return set(tables[view]).union(*map(made_of, views[view]))

    query = "select table_name, column_name from duckdb_columns() where not internal order by table_name, column_index"
    tables_of = {view: made_of(view) for view in views}
    statements = []
    for view, column in connection.execute(query).fetchall():
        if view not in views:
            continue
        meaning = view_meaning(view, column, tables_of[view])
        if not meaning and view in questions:
            meaning = f"answers: {questions[view]}"
        if meaning:
            statements.append(f'comment on column {view}."{column}" is {_text(meaning)}')
    connection.execute(";\n".join(statements))


def _run_checks(connection: duckdb.DuckDBPyConnection, checks: Iterable[tuple[str, str]]) -> None:
    for name, text in checks:
        # Not a relation, which would plan each check three times.
        answer = connection.execute(f"select * from ({text}\n) limit {SHOWN}")
        if rows := answer.fetchall():
            names = [name for name, *_ in answer.description or ()]
            lines = "\n".join(f"  {dict(zip(names, row, strict=True))}" for row in rows)
            raise CheckFailed(f"check {name} must find nothing ({question(text)}), but found, at least:\n{lines}")
        logger.debug("check %s: nothing found", name)


def question(text: str) -> str:
    """Return the question in the first line of a query."""
    return text.partition("\n")[0].removeprefix("-- ").strip()


def queries(folder: Traversable) -> Iterable[tuple[str, str]]:
    """Yield name and text of each .sql file of a folder. StoreError if a file begins with no question."""
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".sql"):
            text = file.read_text(encoding="utf-8").rstrip().removesuffix(";")
            first = text.partition("\n")[0]
            if not first.startswith("-- "):
                raise StoreError(f"{file}: expected the question as first line, such as `-- Ranks`, found {first!r}")
            yield file.name.removesuffix(".sql"), text


def _sql_type(kind: pa.DataType) -> str:
    """Return DuckDB's name of an Arrow type."""
    if pa.types.is_list(kind):
        return f"{_sql_type(kind.value_type)}[]"
    return SQL_TYPES[str(kind)]


def _text(value: object) -> str:
    return "'" + str(value).replace("'", "''") + "'"


def sample_embeddings(files: Sequence[Path], *, seed: int, tokens: int = TOKENS_PER_MODEL) -> pa.Table:
    """Sample rows of `embeddings_sample` from dump files named .../model/dataset/condition.arrow.

    tokens: number of tokens per model. They come in equal shares from the last states of the model's dumps,
    from at most GROUPS_PER_MODEL record batches; if these have fewer tokens, all of them are taken.
    """
    models: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(files, key=str):
        models[path.parts[-3]].append(path)
    tables = [_sample_model(paths, seed, tokens) for _, paths in sorted(models.items())]
    return pa.concat_tables([arrow_schema("embeddings_sample").empty_table(), *tables])


def _sample_model(paths: list[Path], seed: int, tokens: int) -> pa.Table:
    generator, schema = np.random.default_rng(seed), arrow_schema("embeddings_sample")
    groups: list[tuple[Path, dumps.LayerKey, int]] = []
    for path in paths:
        layers = dumps.layer_rows(path)
        last = dumps.last_layers(layers)
        groups += [(path, layer, rows) for layer, rows in layers.items() if layer in last]
    if len(groups) > GROUPS_PER_MODEL:
        chosen = np.sort(generator.choice(len(groups), GROUPS_PER_MODEL, replace=False))
        groups = [groups[n] for n in chosen]
    shares = _shares([rows for _, _, rows in groups], tokens)
    tables = []
    for (path, layer, rows), share in zip(groups, shares, strict=True):
        indices = np.sort(generator.choice(rows, share, replace=False))
        sampled = dumps.layer_batch(path, layer).take(pa.array(indices))
        names = {"model": path.parts[-3], "dataset": path.parts[-2], "condition": path.stem}
        columns = [
            pa.array([names[f.name]] * share, f.type) if f.name in names else sampled[f.name].cast(f.type)
            for f in schema
        ]
        tables.append(pa.Table.from_arrays(columns, schema=schema))
    return pa.concat_tables([schema.empty_table(), *tables])


def _shares(rows: list[int], tokens: int) -> list[int]:
    """Return the number of tokens to take from each group: equal shares; larger groups make up for small ones."""
    shares = [0] * len(rows)
    left = tokens
    for index, n in enumerate(sorted(range(len(rows)), key=lambda n: rows[n])):
        shares[n] = min(rows[n], left // (len(rows) - index))
        left -= shares[n]
    return shares
