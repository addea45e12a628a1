"""`tsfm-lens doctor`: what is here, what is not, and what to do about it."""

from __future__ import annotations

import typer

from stages.cli.output import Json, console, say_json, say_table


def doctor(as_json: Json = False) -> None:
    """What is installed, which families load, GPUs, Ray, DVC, data; a line each, with what to do where it is not well.

    \b
    tsfm-lens doctor
    tsfm-lens doctor --json

    Exit code 1 where something that every run needs is missing; a family or a GPU is not.
    """
    from stages.health import checks

    with console(stderr=True).status("looking around (families take seconds to import)"):
        found = [check._asdict() for check in checks()]
    if as_json:
        say_json(found)
    else:
        rows = [(one["state"], one["what"], one["found"], one["mend"]) for one in found]
        say_table("", ["", "what", "found", "what to do"], rows)
        states = [one["state"] for one in found]
        typer.echo(f"{states.count('ok')} ok, {states.count('note')} to know, {states.count('missing')} missing")
    if any(one["state"] == "missing" for one in found):
        raise typer.Exit(1)
