"""Command `tsfmscope plan`: a check of a params file, the size of its studies, and the work of its stages."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stages.commands.options import Json
from stages.config.params import PARAMS_FILE
from tsfmscope.cli.output import print_json, print_table

if TYPE_CHECKING:
    from stages.config.params import Params
    from stages.planning.contexts import PlannedContext
    from stages.planning.planned_work import PlannedWork


def plan(
    params: Annotated[Path, typer.Argument(help="Params file.")] = Path(PARAMS_FILE),
    as_json: Json = False,
) -> None:
    """Check a params file and print the size of its studies.

    \b
    tsfmscope plan
    tsfmscope plan params.yaml --json

    It works offline. It prints how many models, data sets and cells each study has, the observed steps of every
    context length, as far as the data are on this machine, and the jobs, rows, bytes and seconds of each model and
    stage, extrapolated from its finished jobs in data/. Exit codes: 0, 2 if the params file must be fixed.
    """
    from stages.planning.contexts import context_lines, planned_contexts
    from stages.planning.planned_work import check_params, planned_work, study_sizes

    checked = check_params(params)
    sizes = [asdict(size) for size in study_sizes(checked)]
    contexts, absent = planned_contexts(checked)
    totals = _totals(checked)
    work = planned_work(checked)
    if as_json:
        lengths = [_context_row(planned) for planned in contexts]
        document = {"file": str(params), "studies": sizes, "contexts": lengths, "absent": absent} | totals
        print_json(document | {"work": [asdict(row) for row in work]})
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
    _show_work(work)


def _show_work(work: list[PlannedWork]) -> None:
    """Print one line per stage: sums over the models of which jobs are finished, and the cells of the others."""
    lines = []
    for stage in dict.fromkeys(row.stage for row in work):
        rows = [row for row in work if row.stage == stage]
        known = [row for row in rows if row.seconds is not None]
        sums = [sum(getattr(row, name) for row in known) for name in ("jobs", "rows", "bytes", "seconds")]
        jobs, n_rows, size, seconds = sums if known else (None, None, None, None)
        unknown = sum(row.cells for row in rows if row.seconds is None)
        gigabytes = None if size is None else size / 1e9
        lines.append([stage, sum(row.cells for row in rows), unknown, jobs, n_rows, gigabytes, seconds])
    columns = ["stage", "cells", "of these without a measurement", "jobs", "rows", "GB", "seconds of one worker"]
    if lines:
        print_table("work, extrapolated from the finished jobs of each model", columns, lines)


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
