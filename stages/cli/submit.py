"""Command `tsfmscope submit`: a command as a job on a Ray cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from tsfmscope.stages.cli.options import Json
from tsfmscope.stages.cli.output import print_json, stdout_for_json
from tsfmscope.stages.config.params import ParamsError

# Environment variables whose names begin with these go with a submitted job: paths and retries, no
# credentials.
PASSED = ("TSFMSCOPE_", "HF_HOME")


def submit(
    address: Annotated[str, typer.Option(help="Address of the cluster's job server: http://HEAD:8265.")],
    command: Annotated[list[str] | None, typer.Argument(help="Command to run there; default: dvc repro.")] = None,
    folder: Annotated[
        str, typer.Option(help="Folder of this checkout as the nodes see it; default: as it is here.")
    ] = "",
    python: Annotated[str, typer.Option(help="Python of driver and workers; default: FOLDER/.venv/bin/python.")] = "",
    name: Annotated[str, typer.Option(help="Name of the job; default: a name that Ray makes.")] = "",
    follow: Annotated[bool, typer.Option(help="Print the job's log and end with its exit status.")] = True,
    as_json: Json = False,
) -> None:
    """Run the pipeline as a job on a Ray cluster.

    The nodes of the cluster share the folder; see docs/cluster.md. The exit code is that of the command. With
    --json the job's log is printed on stderr.
    """
    from tsfmscope.tasks.errors import SweepError
    from tsfmscope.tasks.sweep.submit import Submission
    from tsfmscope.tasks.sweep.submit import submit as submit_job

    folder = folder or str(Path.cwd())
    variables = {variable: value for variable, value in os.environ.items() if variable.startswith(PASSED)}
    python = python or f"{folder}/.venv/bin/python"
    try:
        submission = Submission(address, folder, python, command or ["dvc", "repro"], name or None, variables, follow)
    except SweepError as error:
        raise ParamsError(f"--{error}") from None
    with stdout_for_json(as_json):
        status = submit_job(submission)
    if as_json:
        print_json({"address": submission.url, "command": submission.command, "exit_status": status})
    raise typer.Exit(status)
