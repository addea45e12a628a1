"""SQL over the results: `python -m store` is a prompt, with a statement, a .sql file or - it prints what that answers.

\b
python -m store "select * from correlation" --format markdown
python -m store question.sql --format parquet --out answer.parquet
echo "select 1" | python -m store
python -m store tables geometry
python -m store status
python -m store failures
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from store import files, pages, published, screen
from store import query as face
from store import status as progress
from store.errors import StoreError
from store.outcomes import in_a_line
from store.schema import TABLES

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


class Format(StrEnum):
    """How rows are printed."""

    table = "table"
    csv = "csv"
    json = "json"
    markdown = "markdown"
    parquet = "parquet"


app = typer.Typer(
    add_completion=False, help=__doc__, pretty_exceptions_enable=False, rich_markup_mode=None, no_args_is_help=True
)
Database = Annotated[Path, typer.Option(help="The catalogue to ask.")]


def main(arguments: Sequence[str] | None = None, name: str | None = None) -> None:
    """Run a command; a first word that is none is a query, and nothing at all the prompt.

    arguments: by default those of the process; name: of the program, as help is to call it.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    names = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    if not arguments or arguments[0] not in names | {"--help"}:
        arguments = ["query", *arguments]
    try:
        app(arguments, prog_name=name)
    except (StoreError, ValueError) as error:
        _complain(str(error))
        raise SystemExit(2) from error


@app.command()
def query(
    sql: Annotated[str | None, typer.Argument(help="SQL, a .sql file, or - for standard input; else a prompt.")] = None,
    form: Annotated[Format, typer.Option("--format", help="How rows are printed.")] = Format.table,
    out: Annotated[Path | None, typer.Option(help="A file for the rows, which may not be there yet.")] = None,
    db: Database = face.DATABASE,
) -> None:
    """Print the rows that SQL answers; nothing can be written but --out."""
    with face.connect(db) as connection:
        if sql is None and sys.stdin.isatty():
            _prompt(connection, form)
            return
        found = list(face.statements(connection, _text(sql)))
    if out is not None or form is Format.parquet:
        _keep(found, form, out)
        return
    for rows in found:
        _show(rows, form.value)


def _text(sql: str | None) -> str:
    """The SQL that an argument stands for."""
    if sql is None or sql == "-":
        return sys.stdin.read()
    if not sql.endswith(".sql") or len(sql.split()) > 1:
        return sql
    try:
        return Path(sql).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{sql} cannot be read: {error}") from error


def _prompt(connection: duckdb.DuckDBPyConnection, form: Format) -> None:
    from store import prompt  # its packages take as long to import as a query

    session = prompt.Session(connection, functools.partial(_show, paged=True), typer.echo)
    session.form = form.value if form.value in face.FORMATS else "table"
    typer.echo(f"{len(TABLES)} tables; .tables lists them and the questions with answers, .help says the rest")
    prompt.ask(session, connection, _complain)


def _keep(found: Sequence[pa.Table], form: Format, out: Path | None) -> None:
    """Rows into a file, or Parquet into a pipe."""
    if len(found) != 1:
        raise StoreError(f"{len(found)} statements: expected one, whose rows go into a file")
    if out is None:
        if sys.stdout.isatty():
            raise StoreError("--format parquet: expected --out FILE, or a pipe; a terminal cannot show it")
        sys.stdout.buffer.write(face.parquet(found[0]))
        return
    if out.exists():
        raise StoreError(f"--out {out}: there is such a file; delete it or name another")
    with files.atomic(out) as temporary:
        if form is Format.parquet:
            temporary.write_bytes(face.parquet(found[0]))
        else:
            shown = Format.csv if form is Format.table else form
            temporary.write_text(face.render(found[0], shown.value) + "\n", encoding="utf-8")


def _show(rows: pa.Table, form: str, *, paged: bool = False) -> None:
    if form == Format.table:
        screen.show(rows, paged=paged)
    else:
        typer.echo(face.render(rows, form))


def _complain(message: str) -> None:
    Console(stderr=True, soft_wrap=True).print(message, style="red", markup=False, highlight=False)


@app.command()
def status(folder: Annotated[Path, typer.Option(help="Where drivers write their status.")] = progress.FOLDER) -> None:
    """Tell what is done, running, failed and left, also while a sweep runs."""
    found = progress.read_statuses(folder)
    if not found:
        raise StoreError(f"no status in {folder}; no stage that sweeps has run here yet: `dvc repro` runs them")
    table = Table("stage", "state", "planned", "reused", "done", "running", "failed", "left", "jobs/s", "time left")
    for one, alive in found:
        reused, failed = one.reused - one.passed_over, one.failed + one.passed_over
        counts = (one.planned, reused, one.done, one.running if alive else 0, failed, one.left)
        rate = f"{one.rate:.3g}" if one.rate else "–"
        left = one.seconds_left if alive else None
        time_left = str(timedelta(seconds=round(left))) if left is not None else "–"
        table.add_row(one.stage, progress.state(one, alive=alive), *map(str, counts), rate, time_left)
    screen.console().print(table)


@app.command()
def failures(
    full: Annotated[bool, typer.Option("--full", help="Whole messages and tracebacks; else a line each.")] = False,
    form: Annotated[Format, typer.Option("--format", help="How rows are printed.")] = Format.table,
    data: Annotated[Path, typer.Option(help="Where the outs lie.")] = Path("data"),
) -> None:
    """List the failed jobs of every stage; they are read from its out, so also where the pipeline ended with them."""
    if not any(path.is_dir() for path in data.glob("[!.]*")):
        raise StoreError(f"no results in {data}; `make repro` (or `dvc repro`) makes them, `dvc pull` brings them")
    rows = published.read_failures(data)
    if full:
        rows = rows.select(["stage", "task", "error", "message", "spec", "attempts", "transient", "traceback"])
    else:
        said = zip(*(rows[name].to_pylist() for name in ("message", "traceback")), strict=True)
        lines = [in_a_line(*one) for one in said]
        rows = rows.select(["stage", "task", "error", "spec"]).add_column(3, "message", [lines])
    if form is Format.parquet:
        _keep([rows], form, None)
    else:
        _show(rows, form.value)


def _tell_of_view(name: str, db: Path) -> None:
    """A view's question and columns, which the catalogue knows, where there is one; else near names."""
    comments: dict[str, str] = {}
    if db.is_file():
        with face.connect(db) as connection:
            found = connection.execute(face.RELATIONS).fetchall()
            comments = {relation: comment for relation, kind, comment in found if kind == "view"}
            if name in comments:
                typer.echo(f"{name}: {comments[name]}")
                screen.show(connection.sql(face.COLUMNS, params=[name]).to_arrow_table())
                return
    alike = ", ".join(face.near(name, [*TABLES, *comments]))
    told = f"near: {alike}" if alike else f"expected one of {', '.join(TABLES)}, or a view"
    raise ValueError(f"unknown table {name!r}, {told}")


@app.command()
def tables(
    name: Annotated[str | None, typer.Argument(help="One table or view; all tables where it is left out.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="As docs/tables.md has it, views included.")] = False,
    db: Database = face.DATABASE,
) -> None:
    """List tables and their columns with meaning, unit and source; of a view its question and columns."""
    if name is not None and name not in TABLES:
        _tell_of_view(name, db)
        return
    if markdown:
        typer.echo(pages.tables([TABLES[name]] if name else list(TABLES.values())), nl=False)
        return
    console = screen.console()
    for table in [TABLES[name]] if name else TABLES.values():
        shown = Table(*pages.HEADINGS, title=f"{table.name}: {pages.about(table)}")
        for cells in pages.columns(table):
            shown.add_row(*cells)
        console.print(shown)


if __name__ == "__main__":
    main()
