"""Command `tsfmscope tables`: meaning, unit and source of every column of the results."""

from __future__ import annotations

from typing import Annotated

import typer

from stages.commands.options import RESULTS, Json, Results
from tsfmscope.cli.output import print_json, print_table


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
