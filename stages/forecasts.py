"""Forecasts of the last window of every series, or of the one before, by models and local baselines, scored alike."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
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
            yield Planned(_job(params, task, cell, models), studies)
    for cell, studies in planning.cells(params, ["baselines"], instead=params.forecasts.baselines).items():
        series = planning.series_file(params, cell.dataset)
        job = Job(BASELINE, spec(params, cell), {series.as_posix(): fingerprint(series)}, group=cell.model)
        yield Planned(job, studies)


def _job(params: Params, task: Task, cell: planning.Cell, models: Mapping[str, Mapping[str, Any]]) -> Job:
    """Of a cell. A model that runs in another precision than its base draws its samples by the base's seeds."""
    model, base = models[cell.model], models.get(params.models[cell.model].base_model or "")
    of_model = spec(params, cell) | planning.model_spec(model)
    if task is EARLIER:
        of_model |= {"earlier": of_model["horizon"], "max_series": params.forecasts.validation_series}
    if base is not None and planning.same_but_precision(model, base):
        of_model["seeded_as"] = _job(params, task, cell._replace(model=base["model"]), models).key
    inputs = planning.inputs(model, planning.series_file(params, cell.dataset))
    return Job(task, of_model, inputs, group=cell.model)


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
