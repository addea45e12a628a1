"""Reference page of tables and views, generated from the schema and from the first lines of the queries."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

import pyarrow as pa

from store import query, saved_results
from store.catalogue import create_empty, queries, question
from store.generated_checks import generate
from store.render import markdown
from store.schema import TABLES, Table
from tsfmscope.errors import QueryError

HEADINGS = ("column", "type", "unit", "range", "meaning", "source")
STUDY = ("study", "string", "", "", "study that requested the row, by its name in params", "")
FOLDERS = {
    "answers": "Views",
    "views": "Views that other views read",
    "materialized": "Queries that take long, stored as tables",
    "checks": "Checks",
}
HEAD = """\
# Tables and views

Made by `python -m docs.building.tables` from the schema in
[store/tables](../store/tables) and the queries in [store/sql](../store/sql); a test compares this page with them.
"""


def about(table: Table) -> str:
    """Return what a row is, whether the table is in Parquet files only, and its key, as one phrase."""
    key = f"; key: {', '.join(table.full_key)}" if table.key else ""
    return f"a row is {table.row}{'' if table.in_catalogue else ' (in Parquet files only)'}{key}"


def columns(table: Table) -> list[tuple[str, ...]]:
    """Return one tuple per column of the table, in the order of HEADINGS."""
    rows: list[tuple[str, ...]] = [
        (c.name, _type(c.type), c.unit, c.limits, c.meaning, c.source) for c in table.columns
    ]
    return [STUDY, *rows] if table.by_study else rows


def describe(table: Table) -> dict[str, Any]:
    """Return name, meaning and columns of a table as plain data."""
    described = [dict(zip(HEADINGS, cells, strict=True)) for cells in columns(table)]
    return {"name": table.name, "kind": "table", "meaning": about(table), "columns": described}


def describe_view(name: str, results: Path) -> dict[str, Any]:
    """Return name, question and columns of a view as plain data.

    A view that is stored as a table has that kind. results: DuckDB file or saved folder. If it does not exist, the
    columns are those of a catalogue without rows. Raises QueryError, with near names, if there is no such view.
    """
    with saved_results.connect(results) if results.exists() else create_empty() as connection:
        relations = connection.execute(query.RELATIONS).fetchall()
        for relation, kind, comment in relations:
            if relation == name:
                rows = connection.sql(query.COLUMNS, params=[name]).to_arrow_table().to_pylist()
                return {"name": name, "kind": kind, "meaning": comment, "columns": rows}
    alike = ", ".join(query.near(name, [*TABLES, *(relation for relation, _, _ in relations)]))
    hint = f"near: {alike}" if alike else f"expected one of {', '.join(TABLES)}, or a view"
    raise QueryError(f"unknown table or view {name!r}, {hint}")


def _type(kind: pa.DataType) -> str:
    """Return a type in words, because Arrow's `list<item: float>` is read as an HTML tag in Markdown."""
    listed = isinstance(kind, pa.ListType | pa.FixedSizeListType)
    return f"list of {_type(kind.value_type)}" if listed else str(kind)


def tables(requested: Sequence[Table]) -> str:
    """Return tables in Markdown.

    If all tables are requested, return the whole page, with views and checks.
    """
    parts = []
    for table in requested:
        rows = about(table)
        parts.append(f"## {table.name}\n\n{rows[0].upper()}{rows[1:]}.\n\n{markdown([HEADINGS, *columns(table)])}\n")
    if len(requested) < len(TABLES):
        return "\n".join(parts)
    sql = resources("store") / "sql"
    for folder, title in FOLDERS.items():
        checks = list(generate(TABLES.values())) if folder == "checks" else []
        lines = [(f"`{name}`", question(text)) for name, text in sorted([*checks, *queries(sql / folder)])]
        parts.append(f"## {title}\n\n{markdown([('query', 'question or rule'), *lines])}\n")
    return "\n".join([HEAD, *parts])
