"""Command `tsfmscope doctor`: checks of this machine."""

from __future__ import annotations

from collections.abc import Callable

import typer

from tsfmscope.cli.output import Json, console, print_json, print_table
from tsfmscope.functions import doctor as checks
from tsfmscope.functions.doctor import Check


def doctor(as_json: Json = False) -> None:
    """Check what is installed, and print how to fix it.

    \b
    tsfmscope doctor
    tsfmscope doctor --json

    Checked are packages, families, GPUs, memory and disk; in a checkout also Ray, DVC, params.yaml and data. Exit
    code 1 if something that every run needs is missing. Families and GPUs are optional.
    """
    print_checks(checks.doctor, as_json)


def print_checks(run: Callable[[], list[Check]], as_json: bool) -> None:
    """Run checks and print them. Raises typer.Exit with code 1 if something is missing."""
    with console(stderr=True).status("checking packages and families (families take seconds to import)"):
        results = [check._asdict() for check in run()]
    states = [check["state"] for check in results]
    if as_json:
        print_json(results)
    else:
        rows = [(check["state"], check["name"], check["value"], check["fix"]) for check in results]
        print_table("", ["", "check", "value", "how to fix it"], rows)
        typer.echo(f"{states.count('ok')} ok, {states.count('note')} notes, {states.count('missing')} missing")
    if "missing" in states:
        raise typer.Exit(1)
