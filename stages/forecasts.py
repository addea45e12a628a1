"""Forecasts of the last window of every series, or of the one before, by models and local baselines, scored alike."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stages import planning
from stages.params import Params
from stages.sweeping import Planned, opened, sweep
from store.dumps import read_table
from store.files import fingerprint
from tasks.sweep.jobs import Job, Task

ENTRY = "tasks.forecasting.evaluate:evaluate"
LOCAL = "tasks.forecasting.local"
TASK = Task("evaluate", 2, ENTRY, "tasks.models.registry:load_for_job", table="forecasts")
EARLIER = Task("validate", 1, ENTRY, "tasks.models.registry:load_for_job", table="validation")
BASELINE = Task("baseline", 1, f"{LOCAL}:evaluate_locally", f"{LOCAL}:load_for_job", table="forecasts")


def main(params: Params) -> None:
    """Write data/forecasts."""
    with opened("forecasts", ["forecasts", "validation"], params) as out:
        sweep(out, plan(params), params, functools.partial(read_table, Path.cwd()))


def plan(params: Params) -> Iterator[Planned]:
    """One job a cell and kind of window, a row a series."""
    known = planning.checkpoints().items()
    models = {name: row for name, row in known if row["modality"] == "series"}  # text and images are not forecast
    for task, measures in ((TASK, ["isotropy", "forecasts"]), (EARLIER, ["validation"])):
        for cell, studies in planning.cells(params, measures, models).items():
            of_model = spec(params, cell) | planning.model_spec(models[cell.model])
            if task is EARLIER:
                of_model |= {"earlier": of_model["horizon"], "max_series": params.forecasts.validation_series}
            inputs = planning.inputs(models[cell.model], planning.series_file(params, cell.dataset))
            yield Planned(Job(task, of_model, inputs, group=cell.model), studies)
    for cell, studies in planning.cells(params, ["baselines"], instead=params.forecasts.baselines).items():
        series = planning.series_file(params, cell.dataset)
        job = Job(BASELINE, spec(params, cell), {series.as_posix(): fingerprint(series)}, group=cell.model)
        yield Planned(job, studies)


def spec(params: Params, cell: planning.Cell) -> dict[str, Any]:
    """What is forecast and how it is scored, whoever forecasts."""
    block = params.forecasts
    return {
        **planning.identity(params, cell),
        **planning.windows_spec(params, cell, block.min_context),
        "levels": block.levels,
        "samples": block.samples,
        "batch": block.batch,
        "keep_quantiles": block.keep_quantiles,
    }
