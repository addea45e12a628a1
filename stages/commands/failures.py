"""Command `tsfmscope failures`: the failed jobs of every stage."""

from __future__ import annotations

from typing import Annotated

import typer

from stages.commands.options import DATA_FOLDER, DataFolder, Json
from stages.commands.sql import Format, print_rows
from stages.config.params import ParamsError


def failures(
    full: Annotated[bool, typer.Option("--full", help="Print whole messages and tracebacks.")] = False,
    data: DataFolder = DATA_FOLDER,
    as_json: Json = False,
) -> None:
    """Print the failed jobs of every stage.

    \b
    tsfmscope failures
    tsfmscope failures --full --json
    """
    from store.stage_outputs import list_failures

    if not any(path.is_dir() for path in data.glob("[!.]*")):
        raise ParamsError(f"no results in {data}; `make repro` (or `dvc repro`) makes them, `dvc pull` brings them")
    print_rows(list_failures(data, full=full), Format.json if as_json else Format.table)
