"""Command `tsfmscope doctor`: checks of this machine and folder, with what to do about each problem."""

from __future__ import annotations

import typer

from tsfmscope.cli.options import Json
from tsfmscope.cli.output import console, print_json, print_table


def doctor(as_json: Json = False) -> None:
    """Check what is installed, and print how to fix it.

    \b
    tsfmscope doctor
    tsfmscope doctor --json

    Checked are packages, families, GPUs, Ray, DVC, params.yaml, data, memory and disk. Exit code 1 if
    something that every run needs is missing. Families and GPUs are optional.
    """
    from tsfmscope.cli.doctor_checks import checks

    with console(stderr=True).status("checking packages and families (families take seconds to import)"):
        results = [check._asdict() for check in checks()]
    states = [check["state"] for check in results]
    if as_json:
        print_json(results)
    else:
        rows = [(check["state"], check["name"], check["value"], check["fix"]) for check in results]
        print_table("", ["", "check", "value", "how to fix it"], rows)
        typer.echo(f"{states.count('ok')} ok, {states.count('note')} notes, {states.count('missing')} missing")
    if "missing" in states:
        raise typer.Exit(1)
