"""Command `tsfmscope check-family`: checks of what every family of models guarantees."""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from stages.config.params import ParamsError
from tsfmscope.cli.options import Json
from tsfmscope.cli.output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tsfmscope.conformance.verdict import Finding

VERDICTS = ("pass", "fail", "not applicable")


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
    from tsfmscope.errors import ModelError

    try:
        block = json.loads(config) if config else None
        findings = check(family, checkpoint=checkpoint, config=block, context=context, horizon=horizon)
    except (ModelError, ValueError) as error:
        raise ParamsError(str(error)) from None
    if as_json:
        print_json({"family": family, "checks": [finding.json() for finding in findings]})
    else:
        _show(family, findings)
    if any(finding.verdict == "fail" for finding in findings):
        raise typer.Exit(1)


def _show(family: str, findings: Sequence[Finding]) -> None:
    rows = []
    for finding in findings:
        demand = f" Required: {finding.demand}" if finding.verdict == "fail" else ""
        rows.append([finding.check.replace("-", " "), finding.verdict, f"{finding.detail}{demand}"])
    print_table(f"{family}: guarantees of every family", ["check", "verdict", "detail"], rows)
    counts = Counter[str](finding.verdict for finding in findings)
    typer.echo(", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS))
