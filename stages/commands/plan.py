"""Commands `tsfmscope plan` and `profile`: a check of a params file, its size, and another in place of params.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stages.commands.options import Json
from stages.config.params import PARAMS_FILE
from tsfmscope.cli.output import print_json, print_table

if TYPE_CHECKING:
    from stages.planning.contexts import PlannedContext


def plan(
    params: Annotated[Path, typer.Argument(help="Params file.")] = Path(PARAMS_FILE), as_json: Json = False
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
    sizes = study_sizes(checked)
    contexts, absent = planned_contexts(checked)
    totals = {"models": len(checked.models), "datasets": len(checked.datasets.sets)}
    totals |= {"conditions": len(checked.conditions), "rows": checked.embeddings.rows}
    work = planned_work(checked)
    if as_json:
        lengths = []
        for dataset, context, observed in contexts:
            steps = {name: getattr(observed, name, None) for name in ("minimum", "median")}
            is_filled = observed is not None and observed.is_filled
            lengths.append({"dataset": dataset, "context": context, **steps, "is_filled": is_filled})
        document = {"file": str(params), "studies": sizes, "contexts": lengths, "absent": absent} | totals
        print_json(document | {"work": work})
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


def profile(
    name: Annotated[str, typer.Argument(help="Name of a file in params/, without .yaml.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite edits of params.yaml.")] = False,
) -> None:
    """Copy a file of params/ over params.yaml.

    \b
    tsfmscope profile smoke

    The file is checked first, and its plan is printed. A params.yaml with edits stays, unless --force is
    given.
    """
    from stages.config.profiles import profile_file, use_profile

    plan(profile_file(name))
    use_profile(name, force=force)


def _show_work(work: list[dict[str, Any]]) -> None:
    """Print one line per stage: sums over the models of which jobs are finished, and the cells of the others."""
    lines = []
    for stage in dict.fromkeys(row["stage"] for row in work):
        rows = [row for row in work if row["stage"] == stage]
        known = [row for row in rows if row["seconds"] is not None]
        jobs, n_rows, size, seconds = (sum(row[name] for row in known) for name in ("jobs", "rows", "bytes", "seconds"))
        unknown = sum(row["cells"] for row in rows if row["seconds"] is None)
        sums = [jobs, n_rows, size / 1e9, seconds] if known else [None] * 4
        lines.append([stage, sum(row["cells"] for row in rows), unknown, *sums])
    columns = ["stage", "cells", "of these without a measurement", "jobs", "rows", "GB", "seconds of one worker"]
    if lines:
        print_table("work, extrapolated from the finished jobs of each model", columns, lines)


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
