"""SQL over the results.

Without an argument, open a prompt; with a statement, a .sql file or -, print its rows.

\b
python -m tsfmscope.store "select * from correlation" --format markdown
python -m tsfmscope.store question.sql --format parquet --out answer.parquet
echo "select 1" | python -m tsfmscope.store
python -m tsfmscope.store tables geometry
python -m tsfmscope.store status
python -m tsfmscope.store failures
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from tsfmscope.store import files, reference_docs, render, stage_outputs, terminal_table
from tsfmscope.store import query as face
from tsfmscope.store import status as progress
from tsfmscope.store.errors import StoreError
from tsfmscope.store.job_rows import summarize_error
from tsfmscope.store.printable import printable
from tsfmscope.store.schema import TABLES

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


# Maximum size in bytes of a .sql file, or of standard input.
LARGEST_SQL = 2**24


class Format(StrEnum):
    """Format in which rows are printed."""

    table = "table"
    csv = "csv"
    json = "json"
    markdown = "markdown"
    parquet = "parquet"


# Exit code after Ctrl-C, as in a shell: 128 + SIGINT.
INTERRUPTED = 130

app = typer.Typer(
    add_completion=False, help=__doc__, pretty_exceptions_enable=False, rich_markup_mode=None, no_args_is_help=True
)
Database = Annotated[Path, typer.Option(help="The catalogue to ask.")]


def main(arguments: Sequence[str] | None = None, name: str | None = None) -> None:
    """Run a command. If the first argument is not a command, run `query` with all arguments.

    Without arguments, `query` opens the prompt. A StoreError, ValueError or OSError is printed in red, and
    the exit code is 2; a BrokenPipeError is raised.

    arguments: by default, the arguments of the process. name: the program's name in help texts.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    names = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    if not arguments or arguments[0] not in names | {"--help"}:
        arguments = ["query", *arguments]
    try:
        app(arguments, prog_name=name)
    except BrokenPipeError:
        raise
    except (StoreError, ValueError, OSError) as error:
        _complain(str(error))
        raise SystemExit(2) from error


@app.command()
def query(
    sql: Annotated[str | None, typer.Argument(help="SQL, a .sql file, or - for standard input; else a prompt.")] = None,
    form: Annotated[Format, typer.Option("--format", help="How rows are printed.")] = Format.table,
    out: Annotated[Path | None, typer.Option(help="A file for the rows, which may not be there yet.")] = None,
    db: Database = face.DATABASE,
) -> None:
    """Print the rows that an SQL query returns; only --out can write a file."""
    with face.connect(db) as connection:
        try:
            if sql is None and sys.stdin.isatty():
                _prompt(connection, form)
                return
            found = list(face.statements(connection, _text(sql)))
        except KeyboardInterrupt:
            _leave_interrupted()
    if out is not None or form is Format.parquet:
        _keep(found, form, out)
        return
    for rows in found:
        _show(rows, form.value)


def _leave_interrupted() -> NoReturn:
    """End the process at once with exit code 130, even if DuckDB has not stopped the statement."""
    _complain("interrupted")
    sys.stdout.flush()
    os._exit(INTERRUPTED)


def _text(sql: str | None) -> str:
    """Return the SQL text that an argument names: the text itself, a .sql file, or standard input."""
    if sql is None or sql == "-":
        return _standard_input()
    if not sql.endswith(".sql") or len(sql.split()) > 1:
        return sql
    try:
        if Path(sql).stat().st_size > LARGEST_SQL or not Path(sql).is_file():
            raise StoreError(f"{sql} cannot be read: expected a regular file of at most {LARGEST_SQL} bytes")
        return Path(sql).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{sql} cannot be read: {error}") from error


def _standard_input() -> str:
    """Read all of standard input as UTF-8, whatever the locale is."""
    data = sys.stdin.buffer.read(LARGEST_SQL + 1)
    if len(data) > LARGEST_SQL:
        raise StoreError(f"standard input: expected at most {LARGEST_SQL} bytes of SQL, got more")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise StoreError(f"standard input: expected SQL in UTF-8, got {error}; convert it") from None


def _prompt(connection: duckdb.DuckDBPyConnection, form: Format) -> None:
    # Imported here because its packages take as long to import as a query takes to run.
    from tsfmscope.store import prompt

    session = prompt.Session(connection, functools.partial(_show, paged=True), typer.echo)
    session.form = form.value if form.value in render.FORMATS else "table"
    typer.echo(f"{len(TABLES)} tables; .tables lists them and the questions with answers, .help says the rest")
    prompt.ask(session, connection, _complain)


def _keep(found: Sequence[pa.Table], form: Format, out: Path | None) -> None:
    """Write the rows of one statement to a file, or as Parquet to a pipe.

    Raises StoreError if there is not exactly one statement, if Parquet would go to a terminal, or if the
    file exists.
    """
    if len(found) != 1:
        raise StoreError(f"{len(found)} statements: expected one, whose rows go into a file")
    if out is None:
        if sys.stdout.isatty():
            raise StoreError("--format parquet: expected --out FILE, or a pipe; a terminal cannot show it")
        sys.stdout.buffer.write(render.parquet(found[0]))
        return
    if out.exists():
        raise StoreError(f"--out {out}: there is such a file; delete it or name another")
    with files.atomic(out) as temporary:
        if form is Format.parquet:
            temporary.write_bytes(render.parquet(found[0]))
        else:
            shown = Format.csv if form is Format.table else form
            temporary.write_text(render.render(found[0], shown.value) + "\n", encoding="utf-8")


def _show(rows: pa.Table, form: str, *, paged: bool = False) -> None:
    if form == Format.table:
        terminal_table.show(rows, paged=paged)
    else:
        typer.echo(render.render(rows, form, terminal=sys.stdout.isatty()))


def _complain(message: str) -> None:
    Console(stderr=True, soft_wrap=True).print(
        printable(message, keep="\n\t"), style="red", markup=False, highlight=False
    )


@app.command()
def status(folder: Annotated[Path, typer.Option(help="Where drivers write their status.")] = progress.FOLDER) -> None:
    """Show how many jobs of each stage are done, running, failed and left, also while a sweep runs."""
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
    terminal_table.console().print(table)


@app.command()
def failures(
    full: Annotated[bool, typer.Option("--full", help="Whole messages and tracebacks; else a line each.")] = False,
    form: Annotated[Format, typer.Option("--format", help="How rows are printed.")] = Format.table,
    data: Annotated[Path, typer.Option(help="Where the outs lie.")] = Path("data"),
) -> None:
    """List the failed jobs of every stage.

    They are read from the out of each stage, so also after failures have ended the pipeline.
    """
    if not any(path.is_dir() for path in data.glob("[!.]*")):
        raise StoreError(f"no results in {data}; `make repro` (or `dvc repro`) makes them, `dvc pull` brings them")
    rows = stage_outputs.read_failures(data)
    if full:
        rows = rows.select(["stage", "task", "error", "message", "spec", "attempts", "transient", "traceback"])
    else:
        said = zip(*(rows[name].to_pylist() for name in ("message", "traceback")), strict=True)
        lines = [summarize_error(*one) for one in said]
        rows = rows.select(["stage", "task", "error", "spec"]).add_column(3, "message", [lines])
    if form is Format.parquet:
        _keep([rows], form, None)
    else:
        _show(rows, form.value)


def _tell_of_view(name: str, db: Path) -> None:
    """Print a view's question and columns from the catalogue.

    Raise ValueError with near names if it is unknown.
    """
    comments: dict[str, str] = {}
    if db.is_file():
        with face.connect(db) as connection:
            found = connection.execute(face.RELATIONS).fetchall()
            comments = {relation: comment for relation, kind, comment in found if kind == "view"}
            if name in comments:
                typer.echo(f"{name}: {comments[name]}")
                terminal_table.show(connection.sql(face.COLUMNS, params=[name]).to_arrow_table())
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
    """List tables and their columns with meaning, unit and source; for a view, its question and columns."""
    if name is not None and name not in TABLES:
        _tell_of_view(name, db)
        return
    if markdown:
        typer.echo(reference_docs.tables([TABLES[name]] if name else list(TABLES.values())), nl=False)
        return
    console = terminal_table.console()
    for table in [TABLES[name]] if name else TABLES.values():
        shown = Table(*reference_docs.HEADINGS, title=f"{table.name}: {reference_docs.about(table)}")
        for cells in reference_docs.columns(table):
            shown.add_row(*cells)
        console.print(shown)


if __name__ == "__main__":
    main()
