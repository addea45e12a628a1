"""Stage checkpoints: every model's weights, pretrained here or elsewhere, and the skill of forecasters."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stages import DATA
from stages.config.params import Params
from stages.planning import dataset_skill, planning, training
from stages.planning.checkpoints import (
    LOG,
    checkpoint_row,
    former_rows,
    install,
    is_available,
    population_jobs,
    print_changed,
    skill_line,
)
from stages.planning.model_folders import prune, publish, work_folder
from stages.planning.sweeping import PlannedJob, account, open_store, resources, run, run_and_finish
from stages.planning.training import MODELS, recipes, training_jobs
from store.stage_outputs import read_rows
from tasks.checkpoints import SkillSpec
from tasks.job import Job, Task
from tsfmscope.training.options import SkillOptions

SKILL = Task("skill", 5, "tasks.checkpoints:measure_skill", "tasks.parts:load_model", table="skill")
CURVES = Path(DATA, "checkpoints", "curves")


def main(params: Params) -> None:
    """Write data/checkpoints: models/NAME and curves/NAME per recipe, the table checkpoints, and tables of skill."""
    recipes_by_name = recipes(params)
    jobs = training_jobs(recipes_by_name)
    with open_store("checkpoints") as out:
        for name, job in jobs.items():
            install(out, name, job, params.checkpoints.committed)
        trained: dict[str, Job] = {}
        # Recipes that take over an embedding are trained after the others.
        for needs in (False, True):
            wave = {name: job for name, job in jobs.items() if bool(recipes_by_name[name].embedding_from) is needs}
            if wave:
                with training.follow_trainings(CURVES, wave):
                    run(out, [PlannedJob(job) for job in wave.values()], resources(params), work_folder)
            trained |= {name: job for name, job in wave.items() if publish(MODELS / name, job)}
        rows = [
            checkpoint_row(params, name, jobs, recipes_by_name)
            for name in params.models
            if is_available(params, name, trained)
        ]
        print_changed(former_rows(out.root), rows)
        out.write("checkpoints", rows)
        for name in trained:
            training.write_curve(CURVES / name, json.loads((MODELS / name / LOG).read_text()))
        for folder in (MODELS, CURVES):
            prune(folder, jobs)
        planned = [*map(PlannedJob, jobs.values()), *_skill_jobs(params, rows)]
        planned += population_jobs(params, rows)
        planned += dataset_skill.dataset_skill_jobs(params, list(_forecasters(params, rows)))
        read = functools.partial(dataset_skill.read_series, Path.cwd())
        summary = run_and_finish(out, planned, resources(params), read, seed=params.seed)
        means = dataset_skill.mean_rows(params, read_rows(out.root, "dataset_skill").to_pylist())
        out.write("mean_skill", means)
        account(out, summary, params.resources.max_failed_share)
    for row in read_rows(out.root, "skill").to_pylist():
        print(f"checkpoints: {row['model']}: {skill_line(row)}")
    for row in means:
        if row["kind"] == "real":
            print(f"checkpoints: {row['model']}: {dataset_skill.mean_line(row)}")


def _forecasters(params: Params, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the row of each time series model with weights of its own whose forecasts a study uses.

    Snapshots of trainings are left out.
    """
    studies = [name for name, study in params.studies.items() if {"isotropy", "forecasts"} & set(study.measures)]
    forecasting = {model for study in studies for model in params.expand(study, "models")}
    for row in rows:
        model = params.models[row["model"]]
        # A model with other options has the weights of its base model.
        is_own = model.base_model is None or params.models[model.base_model].ref != model.ref
        if row["modality"] == "series" and row["model"] in forecasting and is_own and not model.is_snapshot:
            yield row


def _skill_jobs(params: Params, rows: list[dict[str, Any]]) -> Iterator[PlannedJob]:
    """Yield a job for each of `_forecasters`; models that are not pretrained here forecast clean sines only."""
    options = SkillOptions(**params.checkpoints.skill.part(SkillOptions))
    for row in _forecasters(params, rows):
        spec = SkillSpec(
            model=row["model"],
            **dict(planning.model_source(row)),
            recipe=row["recipe"],
            seed=params.seed,
            skill=options,
        )
        yield PlannedJob(Job(SKILL, spec.to_dict(), planning.inputs(row), group=row["model"]))
