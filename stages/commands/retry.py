"""Command `tsfmscope retry`: another attempt at the failed jobs."""

from __future__ import annotations

import typer

from stages.commands.options import Json
from tsfmscope.cli.output import print_json, stdout_for_json


def retry(as_json: Json = False) -> None:
    """Run the failed jobs of all stages again.

    \b
    tsfmscope retry
    """
    from stages.planning.retrying import retry_failures

    with stdout_for_json(as_json):
        stages = retry_failures()
    if as_json:
        print_json({"stages": stages})
    else:
        typer.echo("now run `dvc repro`, so that what depends on them follows" if stages else "no stage has failures")
