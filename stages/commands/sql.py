"""Command `tsfmscope sql`: rows that SQL returns from the results."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stages.commands.options import RESULTS, Json, Results
from tsfmscope.cli.output import print_many_rows

if TYPE_CHECKING:
    import pyarrow as pa


class Format(StrEnum):
    """Format in which rows are printed or written."""

    table = "table"
    csv = "csv"
    json = "json"
    markdown = "markdown"
    parquet = "parquet"


def sql(
    context: typer.Context,
    statement: Annotated[
        str | None, typer.Argument(help="SQL, a .sql file, or - for standard input, which is read by default.")
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="Format of the rows.")] = Format.table,
    out: Annotated[Path | None, typer.Option(help="New file for the rows of one statement.")] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Show every row and column of a table on a terminal too.")
    ] = False,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Run SQL on the results.

    \b
    tsfmscope sql "select 6 * 7 as answer" --format markdown
    tsfmscope sql "select model, layer, zeta from geometry limit 3" --json

    A terminal shows the first and last rows and columns of a large table, a pipe all of them. Nothing but
    --out can write a file. --json is short for --format json; JSON, Parquet and --out take one
    statement. For a prompt with history and completion, use DuckDB's own: duckdb -readonly
    data/results.duckdb
    """
    from store import query, render, saved_results
    from tsfmscope.errors import QueryError

    if statement is None and stdin_is_terminal():
        typer.echo(context.get_help())
        return
    output_format = Format.json if as_json else form
    text = query.read_sql(statement)
    connection = saved_results.connect(results)
    tables = list(query.statements(connection, text))
    # Not closed after Ctrl-C, since closing waits for a statement that still runs.
    connection.close()
    if len(tables) != 1 and (out is not None or output_format in (Format.json, Format.parquet)):
        raise QueryError(
            f"got {len(tables)} statements, expected one: --json, --format parquet and --out take the rows of one"
        )
    for rows in tables:
        if out is not None:
            render.write(rows, output_format.value, out)
        elif output_format is Format.parquet:
            if sys.stdout.isatty():
                raise QueryError("--format parquet: expected --out FILE, or a pipe; a terminal cannot show it")
            sys.stdout.buffer.write(render.parquet(rows))
        else:
            print_rows(rows, output_format, show_all)


def stdin_is_terminal() -> bool:
    """Return whether standard input is a terminal, so that nothing was piped into the command."""
    return sys.stdin.isatty()


def print_rows(rows: pa.Table, form: Format, show_all: bool = False) -> None:
    """Print rows as a table, CSV, JSON or Markdown."""
    from store import render

    if form is Format.table:
        print_many_rows(rows.column_names, render.python_rows(rows), render.short_text, is_complete=show_all)
    else:
        typer.echo(render.render(rows, form.value, terminal=sys.stdout.isatty()))
