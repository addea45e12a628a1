"""Command `tsfmscope save-results`: the tables of the results as Parquet, small enough for git."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stages.commands.options import RESULTS, Json
from tsfmscope.cli.output import print_json


def save_results(
    folder: Annotated[Path, typer.Argument(help="Folder for TABLE.parquet files, made if it is missing.")],
    tables: Annotated[
        str | None,
        typer.Option(
            help="Tables to save, with commas; default: all but timings, dumps, study_jobs and embeddings_sample."
        ),
    ] = None,
    results: Annotated[Path, typer.Option(help="DuckDB file of the results.")] = RESULTS,
    as_json: Json = False,
) -> None:
    """Save the tables of the results as Parquet.

    \b
    tsfmscope save-results docs/results/mine

    Whoever has the folder can query it without running anything: `tsfmscope sql --results FOLDER`. Views are made
    from the tables when it is opened.
    """
    from store import saved_results

    names = frozenset(name.strip() for name in tables.split(",")) if tables else frozenset()
    sizes = saved_results.save(results, folder, names)
    if as_json:
        print_json({"folder": str(folder), "bytes": sizes})
        return
    largest = sorted(sizes, key=lambda name: -sizes[name])[:5]
    parts = ", ".join(f"{name} {sizes[name] / 1e6:.1f} MB" for name in largest)
    typer.echo(f"{folder}: {len(sizes)} tables, {sum(sizes.values()) / 1e6:.1f} MB ({parts})")
