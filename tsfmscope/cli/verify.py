"""Command `tsfmscope verify`: checks of a released checkpoint, its costs, and the line for the table of models."""

from __future__ import annotations

import typer

from tsfmscope.cli.from_function import Command
from tsfmscope.cli.output import print_findings
from tsfmscope.errors import FAILED, printable
from tsfmscope.functions.verify import Verification, verify

EXAMPLES = """
tsfmscope verify chronos-bolt-mini
tsfmscope verify lag-llama:FOLDER --context 64 --horizon 12 --json

Exit codes: 0 if no check fails, 1 if one fails, 2 for a wrong reference.
"""
GB = 1e9
RESULTS = "docs/verified.csv"


def _show(result: Verification) -> None:
    family = f", family {result.family}" if result.family else ""
    print_findings(f"{result.reference}{family}", result.checks)
    if result.cost is None:
        typer.echo("the model does not load: the other checks were not run, and nothing was measured")
    else:
        cost = result.cost
        threads = "1 thread" if cost.threads == 1 else f"{cost.threads} threads"
        typer.echo(
            f"loading: {cost.load_seconds:.2f} s, peak memory {_gigabytes(cost.load_peak_bytes)} "
            f"({_gigabytes(cost.bytes_before)} before it, with every package imported)"
        )
        typer.echo(
            f"one forecast: {cost.forecast_seconds:.3f} s, peak memory {_gigabytes(cost.forecast_peak_bytes)} "
            f"(one window, context {cost.context}, horizon {cost.horizon}, CPU, {threads})"
        )
    if result.license is not None:
        typer.echo(printable(str(result.license)))
    typer.echo(f"line for {RESULTS}:")
    typer.echo(printable(result.line()))


def _gigabytes(n_bytes: int | None) -> str:
    return "not reported by this system" if n_bytes is None else f"{n_bytes / GB:.2f} GB"


COMMAND = Command(
    verify, _show, Verification.json, EXAMPLES, exit_code=lambda result: 0 if result.has_passed else FAILED
)
