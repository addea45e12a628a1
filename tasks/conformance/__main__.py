"""Check what every family guarantees: `python -m tsfmscope.tasks.conformance FAMILY`; see docs/plugins.md.

\b
python -m tsfmscope.tasks.conformance my-family
python -m tsfmscope.tasks.conformance my-family --config '{"width": 64}'
python -m tsfmscope.tasks.conformance my-family --checkpoint folder --context 512 --horizon 64
python -m tsfmscope.tasks.conformance my-family --json

Exit codes: 0 if every check passes or does not apply, 1 if one fails, 2 if there is no such family or no
model of it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tsfmscope.tasks.conformance import findings
from tsfmscope.tasks.conformance.subject import Subject
from tsfmscope.tasks.conformance.verdict import Finding
from tsfmscope.tasks.errors import ModelError

STYLES = {"pass": "green", "fail": "bold red", "not applicable": "dim"}

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(help=__doc__)
def main(
    family: Annotated[str, typer.Argument(help="a family of this project, or of an installed package")],
    checkpoint: Annotated[str | None, typer.Option(help="a folder; default: a small model with random weights")] = None,
    config: Annotated[str | None, typer.Option(help="of that model: JSON, default: the family's `example`")] = None,
    context: Annotated[int, typer.Option(min=16, help="steps of the longest windows")] = 48,
    horizon: Annotated[int, typer.Option(min=1, help="steps to forecast")] = 12,
    as_json: Annotated[bool, typer.Option("--json", help="for machines")] = False,
) -> None:
    """Check a family."""
    # transformers, with which a family may load, obeys this variable too.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    with tempfile.TemporaryDirectory() as scratch:
        try:
            options: dict[str, Any] = {"checkpoint": checkpoint, "config": json.loads(config) if config else None}
            subject = Subject.of(family, Path(scratch), **options, context=context, horizon=horizon)
        except (ModelError, ValueError) as error:
            print(error, file=sys.stderr)
            raise typer.Exit(2) from None
        results = list(findings(subject))
    if as_json:
        print(json.dumps({"family": family, "checks": [finding.json() for finding in results]}, indent=1))
    else:
        _print(family, results)
    raise typer.Exit(any(finding.verdict == "fail" for finding in results))


def _print(family: str, results: list[Finding]) -> None:
    console = Console()
    table = Table("check", "", "what was seen", title=f"{family}: what every family keeps", title_justify="left")
    for finding in results:
        seen = finding.detail if finding.verdict != "fail" else f"{finding.detail}\nDemanded: {finding.demand}"
        table.add_row(finding.check.replace("-", " "), Text(finding.verdict, STYLES[finding.verdict]), Text(seen))
    console.print(table)
    counts = Counter[str](finding.verdict for finding in results)
    console.print(", ".join(f"{counts[verdict]} {verdict}" for verdict in STYLES), highlight=False)


if __name__ == "__main__":
    app()
