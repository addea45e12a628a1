"""Commands `tsfmscope failures` and `retry`: the failed jobs of every stage, and another attempt at them."""

from __future__ import annotations

from typing import Annotated

import typer

from stages.commands.options import DATA_FOLDER, DataFolder, Json
from stages.commands.sql import Format, print_rows
from stages.config.params import ParamsError
from tsfmscope.cli.output import print_json, stdout_for_json


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


def retry(as_json: Json = False) -> None:
    """Run the failed jobs of all stages again.

    \b
    tsfmscope retry
    """
    from stages.planning.run_stage import run_stage
    from stages.planning.sweeping import RETRY_VARIABLE, stages_with_failures
    from tasks.sweep.cluster import environment

    with stdout_for_json(as_json), environment({RETRY_VARIABLE: "1"}):
        stages = stages_with_failures()
        if stages:
            print(f"retrying {', '.join(stages)}", flush=True)
        for name in stages:
            run_stage(name)
    if as_json:
        print_json({"stages": stages})
    else:
        typer.echo("now run `dvc repro`, so that what depends on them follows" if stages else "no stage has failures")
