"""Command `tsfmscope verify`: checks of a released checkpoint, its costs, and the line for the table of models."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from stages.config.defaults import params_here
from stages.planning.exit_codes import FAILED
from store.printable import printable
from tsfmscope.cli.check_family import VERDICTS
from tsfmscope.cli.options import Family, Json, Model
from tsfmscope.cli.output import print_json, print_table
from tsfmscope.cli.progress import show_progress

if TYPE_CHECKING:
    from tsfmscope.cli.verifying import Verification
    from tsfmscope.conformance.cost import Cost

GB = 1e9
RESULTS = "docs/verified.csv"


def verify(
    model: Model,
    family: Family = None,
    context: Annotated[int, typer.Option(min=32, help="Number of steps of the longest windows.")] = 128,
    horizon: Annotated[int, typer.Option(min=1, max=1024, help="Number of steps to forecast.")] = 24,
    as_json: Json = False,
) -> None:
    """Check a released checkpoint on this machine.

    \b
    tsfmscope verify chronos-bolt-mini
    tsfmscope verify tsfmscope/checkpoints/lag-llama-mini --family lag-llama --context 64 --horizon 12 --json

    Checked are the files, types and tensors, the guarantees of every family, and states and forecasts against
    the family's own package where it is installed. Printed are seconds and peak memory of loading and of one
    forecast, the licence of the weights, and a line for docs/verified.csv. A model of the hub is
    hub:ORG/NAME. Exit codes: 0 if no check fails, 1 if one fails, 2 for a wrong reference.
    """
    # transformers, with which a family may load, obeys this variable too.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    from tsfmscope.cli.verifying import verify_checkpoint

    with show_progress() as watch:
        result = verify_checkpoint(params_here(), model, family, context=context, horizon=horizon, watch=watch)
    if as_json:
        print_json(result.json())
    else:
        _show(result)
    if not result.has_passed:
        raise typer.Exit(FAILED)


def _show(result: Verification) -> None:
    rows = []
    for finding in result.checks:
        demand = f" Required: {finding.demand}" if finding.verdict == "fail" else ""
        rows.append([finding.check.replace("-", " "), finding.verdict, f"{finding.detail}{demand}"])
    family = f", family {result.family}" if result.family else ""
    print_table(f"{result.reference}{family}", ["check", "verdict", "detail"], rows)
    typer.echo(", ".join(f"{result.counts.get(verdict, 0)} {verdict}" for verdict in VERDICTS))
    if result.cost is None:
        typer.echo("the model does not load: the other checks were not run, and nothing was measured")
    else:
        _show_cost(result.cost)
    if result.license is not None:
        typer.echo(printable(str(result.license)))
    typer.echo(f"line for {RESULTS}:")
    typer.echo(printable(result.line()))


def _show_cost(cost: Cost) -> None:
    typer.echo(
        f"loading: {cost.load_seconds:.2f} s, peak memory {_gigabytes(cost.load_peak_bytes)} "
        f"({_gigabytes(cost.bytes_before)} before it, with every package imported)"
    )
    threads = "1 thread" if cost.threads == 1 else f"{cost.threads} threads"
    typer.echo(
        f"one forecast: {cost.forecast_seconds:.3f} s, peak memory {_gigabytes(cost.forecast_peak_bytes)} "
        f"(one window, context {cost.context}, horizon {cost.horizon}, CPU, {threads})"
    )


def _gigabytes(n_bytes: int | None) -> str:
    return "not reported by this system" if n_bytes is None else f"{n_bytes / GB:.2f} GB"
