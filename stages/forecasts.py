"""Forecasts of the last window of every series by every model under every condition, scored."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

from stages import planning
from stages.params import Params
from stages.sweeping import Planned, opened, sweep
from store.dumps import read_table
from tasks.sweep.jobs import Job, Task

ENTRY = "tasks.forecasting.evaluate:evaluate"
TASK = Task("evaluate", 2, ENTRY, "tasks.models.registry:load_for_job", table="forecasts")


def main(params: Params) -> None:
    """Write data/forecasts."""
    with opened("forecasts", ["forecasts"]) as out:
        sweep(out, plan(params), params, functools.partial(read_table, Path.cwd()))


def plan(params: Params) -> Iterator[Planned]:
    """One job a cell, a row a series."""
    known = planning.checkpoints().items()
    models = {name: row for name, row in known if row["modality"] == "series"}  # text and images are not forecast
    block = params.forecasts
    for cell, studies in planning.cells(params, ["isotropy", "forecasts"], models).items():
        series = planning.series_file(params, cell.dataset)
        spec = {
            **planning.identity(params, cell),
            **planning.windows_spec(params, cell, block.min_context),
            **planning.model_spec(models[cell.model]),
            "levels": block.levels,
            "samples": block.samples,
            "batch": block.batch,
            "keep_quantiles": block.keep_quantiles,
        }
        yield Planned(Job(TASK, spec, planning.inputs(models[cell.model], series), group=cell.model), studies)
