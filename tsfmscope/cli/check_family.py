"""Command `tsfmscope check-family`: checks of what every family guarantees."""

from __future__ import annotations

import json
import os
from typing import Annotated

import typer

from tsfmscope.cli.output import Json, print_findings, print_json
from tsfmscope.errors import ArgumentError, ModelError


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
