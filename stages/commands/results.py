"""Commands `tsfmscope sql`, `tables`, `save-results`, `test-results` and `report`: results as rows, Parquet, page."""

from __future__ import annotations

import shutil
import sys
import webbrowser
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stages.commands import RESULTS, Results
from tsfmscope.cli.output import Json, print_json, print_many_rows, print_table, stdout_for_json

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


def tables(
    name: Annotated[str | None, typer.Argument(help="Name of a table or view; default: all tables.")] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown; without NAME, the whole page docs/tables.md.")
    ] = False,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Print the columns of the results with unit and source.

    \b
    tsfmscope tables geometry
    tsfmscope tables correlation
    tsfmscope tables --json

    A view is printed with its question; no results are needed.
    """
    from store import reference_docs
    from store.schema import TABLES

    if name is not None and name not in TABLES:
        descriptions = [reference_docs.describe_view(name, results)]
    else:
        schemas = [TABLES[name]] if name else list(TABLES.values())
        if markdown:
            typer.echo(reference_docs.tables(schemas), nl=False)
            return
        descriptions = [reference_docs.describe(table) for table in schemas]
    if as_json:
        print_json(descriptions)
        return
    for description in descriptions:
        columns = description["columns"]
        print_table(
            f"{description['name']}: {description['meaning']}",
            list(columns[0]),
            [list(column.values()) for column in columns],
        )


def save_results(
    folder: Annotated[Path, typer.Argument(help="Folder for TABLE.parquet files, made if it is missing.")],
    tables: Annotated[
        str | None,
        typer.Option(
            help="Tables to save, with commas; default: all but timings, dumps, study_jobs and embeddings_sample."
        ),
    ] = None,
    without: Annotated[
        str | None, typer.Option(help="Columns to save empty, with commas, such as job_key,eigenvalues.")
    ] = None,
    digits: Annotated[
        int | None, typer.Option(min=1, max=15, help="Round numbers by at most 10^-DIGITS of their size; default: not.")
    ] = None,
    results: Annotated[Path, typer.Option(help="DuckDB file of the results.")] = RESULTS,
    as_json: Json = False,
) -> None:
    """Save the tables of the results as Parquet.

    \b
    tsfmscope save-results docs/results/mine
    tsfmscope save-results docs/results/small --without job_key,eigenvalues --digits 4

    Whoever has the folder can query it without running anything: `tsfmscope sql --results FOLDER`. Views are made
    from the tables when it is opened.
    """
    from store import saved_results

    names, empty = (frozenset(name.strip() for name in (given or "").split(",")) - {""} for given in (tables, without))
    sizes = saved_results.save(results, folder, names, without=empty, digits=digits)
    if as_json:
        print_json({"folder": str(folder), "bytes": sizes})
        return
    largest = sorted(sizes, key=lambda name: -sizes[name])[:5]
    parts = ", ".join(f"{name} {sizes[name] / 1e6:.1f} MB" for name in largest)
    typer.echo(f"{folder}: {len(sizes)} tables, {sum(sizes.values()) / 1e6:.1f} MB ({parts})")


def infer_results(
    folder: Annotated[Path, typer.Argument(help="Folder that `tsfmscope save-results` wrote, or of several such.")],
    hypotheses: Annotated[
        Path | None, typer.Option(help="File of hypotheses, committed to git, to test on the confirming data sets.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compute the statistics of saved results anew.

    \b
    tsfmscope test-results docs/results/mine

    The tables inference and hypotheses of the folder are replaced. Data sets that are kept for confirming hypotheses
    are read for those of the file only.
    """
    from stages.statistics import infer_saved
    from tsfmscope.statistics.options import SeededOptions

    rows = infer_saved(folder, hypotheses, SeededOptions())
    tests = sum(row.get("p") is not None for row in rows)
    if as_json:
        print_json({"folder": str(folder), "statistics": len(rows), "tests": tests})
        return
    typer.echo(f"{folder}: {len(rows)} statistics, {tests} tests")


def report(
    build: Annotated[bool, typer.Option("--build", help="Build the page anew.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="File for a copy of the page; run.html is copied next to it.")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    as_json: Json = False,
) -> None:
    """Print where the results and their page are.

    \b
    tsfmscope report
    tsfmscope report --out results.html
    tsfmscope report --json

    The page is built if it is missing.
    """
    from stages.config.params import ParamsError
    from stages.planning.report_parts import FIGURES
    from stages.planning.run_stage import run_stage
    from stages.report import PAGE, RUN_PAGE

    if not RESULTS.exists():
        raise ParamsError(
            f"no results at {RESULTS}; `make repro` (or `dvc repro`) makes them, `dvc pull` brings them; or run this "
            "in the folder that contains them"
        )
    built = build or not PAGE.exists()
    if built:
        with stdout_for_json(as_json):
            run_stage("report")
    page = PAGE
    if out is not None:
        try:
            shutil.copyfile(PAGE, out)
            if RUN_PAGE.exists():
                shutil.copyfile(RUN_PAGE, out.with_name(RUN_PAGE.name))
        except OSError as error:
            raise ParamsError(f"--out {out}: cannot be written ({error.strerror}); name another file") from None
        page = out
    # A run of DVC writes the page last, so a page older than the results belongs to an earlier run.
    stale = not built and PAGE.stat().st_mtime < RESULTS.stat().st_mtime
    figures = len(list(FIGURES.glob("*.png")))
    size = page.stat().st_size
    if as_json:
        facts = {"page": str(page), "bytes": size, "figures": figures, "built": built, "stale": stale}
        print_json({"results": str(RESULTS)} | facts)
    else:
        typer.echo(f'results: {RESULTS}  (tsfmscope sql "select * from correlation")')
        typer.echo(f"report:  {page}  ({size / 1e6:.1f} MB; {figures} figures in {FIGURES})")
        if stale:
            typer.echo(f"{RESULTS} is newer than the page; --build makes the page anew")
    if show and not webbrowser.open(page.resolve().as_uri()):
        raise ParamsError(f"--open: no browser is available; open {page.resolve()} yourself")
