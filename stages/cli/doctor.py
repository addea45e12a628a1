"""Command `tsfmscope doctor`: checks of this machine and folder, with what to do about each problem."""

from __future__ import annotations

import typer

from tsfmscope.stages.cli.output import Json, console, say_json, say_table


def doctor(as_json: Json = False) -> None:
    """Check packages, families, GPUs, Ray, DVC and data; print one line per check, with a fix if needed.

    \b
    tsfmscope doctor
    tsfmscope doctor --json

    Exit code 1 if something that every run needs is missing. Families and GPUs are optional.
    """
    from tsfmscope.stages.cli.doctor_checks import checks

    with console(stderr=True).status("looking around (families take seconds to import)"):
        found = [check._asdict() for check in checks()]
    if as_json:
        say_json(found)
    else:
        rows = [(one["state"], one["what"], one["found"], one["fix"]) for one in found]
        say_table("", ["", "what", "found", "what to do"], rows)
        states = [one["state"] for one in found]
        typer.echo(f"{states.count('ok')} ok, {states.count('note')} to know, {states.count('missing')} missing")
    if any(one["state"] == "missing" for one in found):
        raise typer.Exit(1)
