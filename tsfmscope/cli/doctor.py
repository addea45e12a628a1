"""Commands `tsfmscope doctor`, checks of this machine, and `check-family`, checks of what every family guarantees."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Annotated

import typer

from tsfmscope.cli.output import Json, console, print_findings, print_json, print_table
from tsfmscope.errors import ArgumentError, ModelError
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


def check_family(
    family: Annotated[str, typer.Argument(help="Model family of this project, or of an installed package.")],
    checkpoint: Annotated[
        str | None, typer.Option(help="Folder of a checkpoint; default: a small model with random weights.")
    ] = None,
    config: Annotated[
        str | None, typer.Option(help="Config of the small model as JSON; default: the family's `example`.")
    ] = None,
    context: Annotated[int, typer.Option(min=16, help="Number of steps of the longest windows.")] = 48,
    horizon: Annotated[int, typer.Option(min=1, help="Number of steps to forecast.")] = 12,
    as_json: Json = False,
) -> None:
    """Check what every family of models guarantees.

    \b
    tsfmscope check-family chronos-bolt
    tsfmscope check-family chronos-bolt --checkpoint tsfmscope/checkpoints/chronos-bolt-mini --json

    docs/plugins.md lists the checks. Exit codes: 0 if every check passes or does not apply, 1 if one fails, 2
    if there is no such family or no model of it.
    """
    # transformers, with which a family may load, obeys this variable too.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    from tsfmscope.conformance import check

    try:
        block = json.loads(config) if config else None
        findings = check(family, checkpoint=checkpoint, config=block, context=context, horizon=horizon)
    except (ModelError, ValueError) as error:
        raise ArgumentError(str(error)) from None
    if as_json:
        print_json({"family": family, "checks": [finding.json() for finding in findings]})
    else:
        print_findings(f"{family}: guarantees of every family", findings)
    if any(finding.verdict == "fail" for finding in findings):
        raise typer.Exit(1)
