"""`python -m store "select ..."`, `python -m store status`, `python -m store tables`."""

from __future__ import annotations

import sys
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from store import query as face
from store import status as progress
from store.errors import StoreError
from store.schema import TABLES


class Format(StrEnum):
    """How rows are printed."""

    table = "table"
    csv = "csv"
    json = "json"
    markdown = "markdown"


app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False)
Database = Annotated[Path, typer.Option(help="The catalogue to ask.")]
WIDE = 1_000  # columns where the output is no terminal, so that nothing is cut


def main() -> None:
    """Run a command; a first word that is none is a query."""
    arguments = sys.argv[1:]
    names = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    if arguments and arguments[0] not in names | {"--help"}:
        arguments = ["query", *arguments]
    try:
        app(arguments)
    except (StoreError, ValueError) as error:
        Console(stderr=True, soft_wrap=True).print(str(error), style="red", markup=False, highlight=False)
        raise SystemExit(2) from error


@app.command()
def query(
    sql: Annotated[str, typer.Argument(help="One SQL statement; nothing can be written.")],
    form: Annotated[Format, typer.Option("--format", help="How rows are printed.")] = Format.table,
    db: Database = face.DATABASE,
) -> None:
    """Print the rows that a SQL statement answers."""
    with face.connect(db) as connection:
        rows = face.query(connection, sql)
    if form != Format.table:
        typer.echo(face.render(rows, form.value))
        return
    table = Table(*rows.column_names)
    for line in face.cells(rows):
        table.add_row(*(cell.replace("[", r"\[") for cell in line))
    _console().print(table)
    typer.echo(f"{len(rows)} row{'' if len(rows) == 1 else 's'}")


@app.command()
def status(folder: Annotated[Path, typer.Option(help="Where drivers write their status.")] = progress.FOLDER) -> None:
    """Tell what is done, running, failed and left, also while a sweep runs."""
    found = progress.read_statuses(folder)
    if not found:
        raise StoreError(f"no status in {folder}; no stage that sweeps has run here yet: `dvc repro` runs them")
    table = Table("stage", "state", "planned", "reused", "done", "running", "failed", "left", "jobs/s", "time left")
    for one, alive in found:
        counts = (one.planned, one.reused, one.done, one.running if alive else 0, one.failed, one.left)
        rate = f"{one.rate:.3g}" if one.rate else "–"
        left = one.seconds_left if alive else None
        time_left = str(timedelta(seconds=round(left))) if left is not None else "–"
        table.add_row(one.stage, progress.state(one, alive=alive), *map(str, counts), rate, time_left)
    _console().print(table)


@app.command()
def tables(name: Annotated[str | None, typer.Argument(help="One table; all where it is left out.")] = None) -> None:
    """List tables and their columns with meaning and unit."""
    if name is not None and name not in TABLES:
        raise ValueError(f"unknown table {name!r}, expected one of {', '.join(TABLES)}")
    console = _console()
    for table in [TABLES[name]] if name else TABLES.values():
        where = "" if table.in_catalogue else " (in Parquet files only)"
        shown = Table("column", "type", "unit", "meaning", "source", title=f"{table.name}: a row is {table.row}{where}")
        if table.by_study:
            shown.add_row("study", "string", "", "study that asked for the row", "")
        for column in table.columns:
            shown.add_row(column.name, str(column.type), column.unit, column.meaning, column.source)
        console.print(shown)


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDE)


if __name__ == "__main__":
    main()
