"""Stage forecasts: scored forecasts of the last window of every series, or of the window before it.

Models and local baselines are scored in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stages.config.params import Params
from stages.planning import planning
from stages.planning.sweeping import PlannedJob, sweep_stage
from store.dumps import read_table
from tasks.forecasts import ForecastSpec, ScoreSpec
from tasks.job import Job, Task
from tsfmscope.forecasting.options import ScoreOptions

ENTRY = "tasks.forecasts:evaluate"
LOCAL = "tasks.forecasts"
LOADER = "tasks.parts:load_model"
TASK = Task("evaluate", 4, ENTRY, LOADER, table="forecasts")
EARLIER = Task("validate", 3, ENTRY, LOADER, table="validation")
BASELINE = Task("baseline", 4, f"{LOCAL}:evaluate_locally", f"{LOCAL}:load_baseline", table="forecasts")


def main(params: Params) -> None:
    """Write data/forecasts."""
    sweep_stage("forecasts", plan(params), params, read_table)


def plan(params: Params) -> Iterator[PlannedJob]:
    """Yield one job per cell and kind of window; a job gives one row per series."""
    known = planning.checkpoints().items()
    # Other modalities, such as text and images, are not forecast.
    models = {name: row for name, row in known if row["modality"] == "series"}
    for task, measures in ((TASK, ["isotropy", "forecasts"]), (EARLIER, ["validation"])):
        for cell, studies in planning.cells(params, measures, models).items():
            yield PlannedJob(_job(params, task, cell, models), studies)
    for cell, studies in planning.cells(params, ["baselines"], instead=params.forecasts.baselines).items():
        series = planning.series_file(params, cell.dataset)
        of_cell = spec(params, cell).to_dict()
        yield PlannedJob(Job(BASELINE, of_cell, planning.file_inputs(series), group=cell.model), studies)


def _job(params: Params, task: Task, cell: planning.Cell, models: Mapping[str, Mapping[str, Any]]) -> Job:
    """Return the job of a cell.

    A model that differs from its base in precision alone draws its samples with the base's seeds.
    """
    model, base = models[cell.model], models.get(params.models[cell.model].base_model or "")
    of_model = ForecastSpec(**dict(spec(params, cell)), **dict(planning.model_source(model)))
    if task is EARLIER:
        earlier = {"earlier": of_model.horizon, "max_series": params.forecasts.validation_series}
        of_model = of_model.model_copy(update=earlier)
    if base is not None and planning.differ_only_in_precision(model, base):
        of_base = _job(params, task, cell._replace(model=base["model"]), models)
        of_model = of_model.model_copy(update={"seeded_as": of_base.key})
    inputs = planning.inputs(model, planning.series_file(params, cell.dataset))
    return Job(task, of_model.to_dict(), inputs, group=cell.model)


def spec(params: Params, cell: planning.Cell) -> ScoreSpec:
    """Return the part of a job's spec on windows and scores, which models and baselines share."""
    block = params.forecasts
    return ScoreSpec(
        **dict(planning.identity(params, cell)),
        **dict(planning.window_options(params, cell, block.min_context)),
        **block.part(ScoreOptions),
    )
