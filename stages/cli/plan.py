"""Command `tsfmscope plan`: a check of a params file, the size of its studies, and their predicted cost."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tsfmscope.stages.cli.options import Json
from tsfmscope.stages.cli.output import print_json, print_table
from tsfmscope.stages.cli.progress import show_progress
from tsfmscope.stages.config.params import PARAMS_FILE, ParamsError
from tsfmscope.stages.pipeline.exit_codes import FAILED
from tsfmscope.tasks.speed import GPUS

if TYPE_CHECKING:
    from tsfmscope.stages.cli.planned_costs import PredictedCosts
    from tsfmscope.stages.config.params import Params
    from tsfmscope.stages.pipeline.contexts import PlannedContext


def plan(
    params: Annotated[Path, typer.Argument(help="Params file.")] = Path(PARAMS_FILE),
    costs: Annotated[
        bool, typer.Option("--costs", help="Predict rows, time, memory and files by model; the next options imply it.")
    ] = False,
    gpu: Annotated[
        str | None, typer.Option(help=f"Predict the time on one GPU instead of this machine: {', '.join(GPUS)}.")
    ] = None,
    budget_gb: Annotated[
        float | None, typer.Option(min=1e-6, help="Largest size of all activation files, in GB (10^9 bytes).")
    ] = None,
    budget_hours: Annotated[float | None, typer.Option(min=1e-6, help="Longest time, in hours.")] = None,
    as_json: Json = False,
) -> None:
    """Check a params file and print the size of its studies.

    \b
    tsfmscope plan
    tsfmscope plan --costs
    tsfmscope plan params.yaml --gpu h100 --budget-gb 500 --json

    It works offline. It prints how many models, data sets and cells each study has, and the observed steps of
    every context length, as far as the data are on this machine. With a budget, it prints what to change in the
    params file. Exit codes: 0, 1 if the predicted cost exceeds the budget, 2 if the params file must be fixed.
    """
    from tsfmscope.stages.cli.planned_costs import cost_document, cost_lines, predict, show_costs
    from tsfmscope.stages.pipeline.budgets import Budget
    from tsfmscope.stages.pipeline.contexts import context_lines, planned_contexts
    from tsfmscope.stages.pipeline.study_sizes import check_params, study_sizes

    if gpu is not None and gpu not in GPUS:
        raise ParamsError(f"--gpu: got {gpu!r}, expected one of {', '.join(GPUS)}")
    checked = check_params(params)
    sizes = [asdict(size) for size in study_sizes(checked)]
    contexts, absent = planned_contexts(checked)
    totals = _totals(checked)
    budget = Budget(_scaled(budget_gb, 1e9), _scaled(budget_hours, 3600))
    predicted = None
    if costs or gpu or budget != Budget():
        with show_progress() as watch:
            watch("shapes of the models, windows of the data", 0, 0)
            predicted = predict(checked, gpu, budget)
    if as_json:
        lengths = [_context_row(planned) for planned in contexts]
        document = {"file": str(params), "studies": sizes, "contexts": lengths, "absent": absent} | totals
        print_json(document | {"costs": predicted and cost_document(predicted)})
        _exit(predicted)
        return
    print_table(
        str(params), ["study", "models", "data sets", "conditions", "cells"], [list(row.values()) for row in sizes]
    )
    _show_contexts(contexts)
    for line in context_lines(contexts, absent):
        typer.echo(line)
    typer.echo(
        f"{totals['models']} models, {totals['datasets']} data sets, {totals['conditions']} conditions; "
        f"{totals['rows']} tokens of every layer are kept of each cell"
    )
    if predicted is not None:
        show_costs(predicted)
        for line in cost_lines(predicted):
            typer.echo(line)
    _exit(predicted)


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value * unit


def _exit(predicted: PredictedCosts | None) -> None:
    """Exit with FAILED if the predicted cost exceeds the budget."""
    if predicted is not None and not predicted.is_within:
        raise typer.Exit(FAILED)


def _totals(params: Params) -> dict[str, int]:
    return {
        "models": len(params.models),
        "datasets": len(params.datasets.sets),
        "conditions": len(params.conditions),
        "rows": params.embeddings.rows,
    }


def _context_row(planned: PlannedContext) -> dict[str, Any]:
    observed = planned.observed
    steps: dict[str, Any] = {"minimum": None, "median": None, "is_filled": False}
    if observed is not None:
        steps = {"minimum": observed.minimum, "median": observed.median, "is_filled": observed.is_filled}
    return {"dataset": planned.dataset, "context": planned.context} | steps


def _show_contexts(contexts: list[PlannedContext]) -> None:
    """Print the observed steps of every context by data set."""
    lengths = sorted({planned.context for planned in contexts})
    cells = {
        (planned.dataset, planned.context): "no window"
        if planned.observed is None
        else f"{planned.observed.minimum} / {planned.observed.median:g}"
        for planned in contexts
    }
    names = dict.fromkeys(planned.dataset for planned in contexts)
    lines = [[name, *(cells.get((name, length), "") for length in lengths)] for name in names]
    if lengths:
        title = "observed steps: minimum / median"
        print_table(title, ["data set", *(f"context {length}" for length in lengths)], lines)
