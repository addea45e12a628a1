"""The SQL face of the catalogue, read-only for real: nothing is written, no other file is read."""

from __future__ import annotations

import csv
import difflib
import io
import json
import math
import re
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from store.errors import QueryError

DATABASE = Path("data/results.duckdb")
FORMATS = ("table", "csv", "json", "markdown")
# read_only alone still lets COPY ... TO write and any file be read
LOCKED = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",  # it may be written to, as may the database and its log, whatever external access says
}
SHUT = ("set disabled_filesystems = 'LocalFileSystem'", "set lock_configuration = true")  # once the file is open

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
MANY = 8  # tables that a message names


def connect(path: Path | str = DATABASE, *, threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """A read-only, locked connection to a catalogue. QueryError where there is none or it does not open.

    threads: of DuckDB, None for all cores. One alone sums in one order, so that answers have the same last digits.
    """
    path = Path(path)
    if not path.is_file():
        raise QueryError(f"no database at {path}; `make repro` (or `dvc repro`) makes it, `dvc pull` brings it")
    config = LOCKED if threads is None else LOCKED | {"threads": str(threads)}
    try:
        connection = duckdb.connect(str(path), read_only=True, config=config)
    except duckdb.Error as error:
        raise QueryError(f"{path} does not open as a DuckDB file: {error}") from error
    if connection.execute("select not current_setting('lock_configuration')").fetchall()[0][0]:
        for statement in SHUT:  # not where another connection of this process has
            connection.execute(statement)
    return connection


def query(connection: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    """The rows that a statement answers. QueryError with DuckDB's own words, and near names."""
    try:
        relation = connection.sql(sql)
        return relation.to_arrow_table() if relation is not None else pa.table({})
    except (RuntimeError, duckdb.InterruptException) as error:
        if "interrupted" in str(error).lower():  # what DuckDB makes of Ctrl-C
            raise KeyboardInterrupt from error
        raise
    except duckdb.Error as error:
        raise QueryError("\n".join([str(error).rstrip(), *_advice(connection, str(error))])) from error


def near(name: str, names: Iterable[str], n: int = 3) -> list[str]:
    """Those names that are like a name, the likest first, then those that it is a part of."""
    known = list(names)
    alike = difflib.get_close_matches(name.lower(), known, n=n, cutoff=0.6)
    stem = name.lower().removesuffix("s")
    return list(dict.fromkeys([*alike, *sorted(one for one in known if stem in one)]))[: 2 * n]


def _advice(connection: duckdb.DuckDBPyConnection, message: str) -> Iterator[str]:
    """What DuckDB's message lacks: it names one table, and no column of another table."""
    aside = connection.cursor()  # the statement may have been part of a transaction
    if found := NO_TABLE.search(message):
        names = [row[0] for row in aside.execute(f"select name from ({RELATIONS})").fetchall()]
        if alike := near(found[1], names):
            yield f"Near: {', '.join(alike)}"
        yield "All there are: .tables at the prompt, or `show tables`"
    elif found := NO_COLUMN.search(message):
        holding = "select distinct table_name from duckdb_columns() where not internal and column_name = lower($1)"
        if tables := sorted(row[0] for row in aside.execute(holding, [found[1] or found[2]]).fetchall()):
            more = f" and {len(tables) - MANY} more" if len(tables) > MANY else ""
            yield f"There is a column of that name in: {', '.join(tables[:MANY])}{more}"


def statements(connection: duckdb.DuckDBPyConnection, text: str) -> Iterator[pa.Table]:
    """The rows of each statement of a text in turn, as Arrow tables. QueryError at the first that does not work."""
    try:
        found = connection.extract_statements(text)
    except duckdb.Error as error:
        raise QueryError(str(error)) from error
    if not found:
        raise QueryError("no statement: expected SQL, such as: select * from correlation")
    for one in found:
        yield query(connection, one.query)


def render(table: pa.Table, form: str) -> str:
    """Rows as csv, json or markdown text."""
    rows = [[_plain(value) for value in row.values()] for row in table.to_pylist()]
    if form == "json":
        objects = [dict(zip(table.column_names, row, strict=True)) for row in rows]
        return json.dumps(objects, indent=1, ensure_ascii=False)
    if form == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(table.column_names)
        writer.writerows([[_cell(value, "") for value in row] for row in rows])
        return text.getvalue().rstrip("\n")
    if form == "markdown":
        lines = [
            table.column_names,
            ["---"] * table.num_columns,
            *([_cell(value, "") for value in row] for row in rows),
        ]
        return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
    raise ValueError(f"format {form!r}: expected one of {', '.join(FORMATS[1:])}")


def parquet(table: pa.Table) -> bytes:
    """Rows as the bytes of a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue())


def cells(table: pa.Table, *, digits: int = 6) -> list[list[str]]:
    """Rows as short texts for a terminal: floats to `digits` significant digits, lists to their first items.

    Of a text of several lines, as a traceback is, the last: it says what went wrong. The other formats have all.
    """
    return [[_short(value, digits) for value in row.values()] for row in table.to_pylist()]


def _short(value: Any, digits: int) -> str:
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    if isinstance(value, list):
        head = ", ".join(_short(item, 4) for item in value[:3])
        return f"[{head}{f', … {len(value)} items' if len(value) > 3 else ''}]"
    if isinstance(value, str) and len(lines := value.strip().splitlines()) > 1:
        return f"{lines[-1].strip()} (last of {len(lines)} lines)"
    return _cell(_plain(value), "")


def _plain(value: Any) -> Any:
    """A value that JSON can hold; NaN and infinity have no place there and become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value if isinstance(value, str | int | bool) or value is None else str(value)


def _cell(value: Any, null: str) -> str:
    if value is None:
        return null
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else str(value)
