"""Statements on the catalogue, each in a thread that Ctrl-C stops, and what an error's message lacks."""

from __future__ import annotations

import difflib
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import duckdb
import pyarrow as pa

from tsfmscope.errors import QueryError, StillRunning

DATABASE = Path("data/results.duckdb")
# Seconds in which a statement must end after Ctrl-C; otherwise StillRunning is raised.
INTERRUPT_S = 1.0
RELATIONS = """
    select table_name as name, 'table' as kind, comment from duckdb_tables() where not internal
    union all
    select view_name, 'view', comment from duckdb_views() where not internal
    order by kind, name
"""
COLUMNS = """
    select column_name as "column", lower(data_type) as type, comment as meaning
    from duckdb_columns() where not internal and table_name = $1 order by column_index
"""
NO_TABLE = re.compile(r"Table with name (\S+) does not exist")
NO_COLUMN = re.compile(r'Referenced column "([^"]+)" not found|does not have a column named "([^"]+)"')
# Types that Arrow, Parquet or JSON lack: DuckDB gives Arrow other values for some, such as -1 for a large UHUGEINT.
AS_TEXT = re.compile(r"\b(UHUGEINT|TIME(?! ZONE)|INTERVAL|BLOB|BIT|UUID|MAP|UNION|VARIANT|GEOMETRY)\b")
# Names inside the text of a type: labels of an enum and fields of a struct.
QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")
# Maximum size in bytes of a .sql file, or of standard input.
LARGEST_SQL = 2**24
# Maximum number of tables that a message names.
MANY = 8


def query(connection: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    """Return the rows of one statement. QueryError with DuckDB's own message and near names.

    Ctrl-C raises KeyboardInterrupt, or StillRunning if the statement continues for more than INTERRUPT_S.
    DuckDB checks for interrupts only between the blocks of a plan, and one block may take minutes
    (`list_sum(range(100_000_000))`).
    """
    try:
        return _run_in_thread(connection, sql)
    except (RuntimeError, duckdb.InterruptException) as error:
        if "interrupted" in str(error).lower():
            raise KeyboardInterrupt from error
        raise
    except duckdb.Error as error:
        raise QueryError("\n".join([str(error).rstrip(), *_advice(connection, str(error))])) from error


def _run_in_thread(connection: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    """Run a statement in another thread, because Python handles no Ctrl-C while this one waits for C code."""
    answer: pa.Table | BaseException = pa.table({})
    ended = threading.Event()

    def work() -> None:
        nonlocal answer
        try:
            relation = connection.sql(sql)
            answer = pa.table({}) if relation is None else _with_texts(relation).to_arrow_table()
        except BaseException as error:
            answer = error
        finally:
            ended.set()

    threading.Thread(target=work, name="sql", daemon=True).start()
    try:
        # An Event instead of Thread.join: after Ctrl-C during a join, Python 3.11 treats the thread
        # as ended.
        while not ended.wait(0.1):
            pass
    except KeyboardInterrupt:
        connection.interrupt()
        if not ended.wait(INTERRUPT_S):
            raise StillRunning from None
        raise
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _with_texts(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Cast the columns of the types AS_TEXT to DuckDB's own text."""
    kinds = [QUOTED.sub("", str(kind)) for kind in relation.types]
    if not any(map(AS_TEXT.search, kinds)):
        return relation
    names = ['"' + name.replace('"', '""') + '"' for name in relation.columns]
    columns = (
        f"#{place}{'::varchar' if AS_TEXT.search(kind) else ''} as {name}"
        for place, (kind, name) in enumerate(zip(kinds, names, strict=True), 1)
    )
    return relation.project(", ".join(columns))


def read_sql(text: str | None) -> str:
    """Return the SQL that an argument names: the text itself, a .sql file, or standard input (None or -).

    Raises QueryError for what is no regular file, too large or not UTF-8.
    """
    if text is None or text == "-":
        data = sys.stdin.buffer.read(LARGEST_SQL + 1)
        if len(data) > LARGEST_SQL:
            raise QueryError(f"standard input: expected at most {LARGEST_SQL} bytes of SQL, got more")
        try:
            # UTF-8 whatever the locale is.
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise QueryError(f"standard input: expected SQL in UTF-8, got {error}; convert it") from None
    if not text.endswith(".sql") or len(text.split()) > 1:
        return text
    try:
        if Path(text).stat().st_size > LARGEST_SQL or not Path(text).is_file():
            raise QueryError(f"{text} cannot be read: expected a regular file of at most {LARGEST_SQL} bytes")
        return Path(text).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise QueryError(f"{text} cannot be read: {error}") from error


def near(name: str, names: Iterable[str], n: int = 3) -> list[str]:
    """Return names that are similar to `name`, the most similar first, then names that contain it.

    At most 2 n names are returned.
    """
    known = list(names)
    similar = difflib.get_close_matches(name.lower(), known, n=n, cutoff=0.6)
    stem = name.lower().removesuffix("s")
    return list(dict.fromkeys([*similar, *sorted(known_name for known_name in known if stem in known_name)]))[: 2 * n]


def _advice(connection: duckdb.DuckDBPyConnection, message: str) -> Iterator[str]:
    """Yield hints that DuckDB's message lacks: similar table names, or tables with the missing column."""
    # A separate cursor, because the failed statement may have been part of a transaction.
    cursor = connection.cursor()
    if match := NO_TABLE.search(message):
        names = [row[0] for row in cursor.execute(f"select name from ({RELATIONS})").fetchall()]
        if similar := near(match[1], names):
            yield f"Near: {', '.join(similar)}"
        yield "All names: `show tables`"
    elif match := NO_COLUMN.search(message):
        sql = "select distinct table_name from duckdb_columns() where not internal and column_name = lower($1)"
        if tables := sorted(row[0] for row in cursor.execute(sql, [match[1] or match[2]]).fetchall()):
            more = f" and {len(tables) - MANY} more" if len(tables) > MANY else ""
            yield f"There is a column of that name in: {', '.join(tables[:MANY])}{more}"


def statements(connection: duckdb.DuckDBPyConnection, text: str) -> Iterator[pa.Table]:
    """Run the statements of a text one after the other and yield the rows of each.

    Raises QueryError at the first statement that fails, or if the text contains none.
    """
    try:
        parsed = connection.extract_statements(text)
    except duckdb.Error as error:
        raise QueryError(str(error)) from error
    if not parsed:
        raise QueryError("no statement: expected SQL, such as: select * from correlation")
    for statement in parsed:
        yield query(connection, statement.query)
