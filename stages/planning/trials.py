"""Trials of the search over rank schedules: jobs, stored rows, curves and folders."""

from __future__ import annotations

import itertools
import json
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from stages import DATA
from stages.config.blocks import Pretraining
from stages.config.params import Params
from stages.planning import training
from stages.planning.model_folders import WORK, publish, quarantine_damaged, work_folder
from stages.planning.training import training_job
from store import files
from store.stage_store import StageStore
from tasks.job import Job
from tasks.pretraining import PretrainSpec
from tasks.sweep.actor_pool import NOWHERE
from tasks.sweep.policy import Failure
from tasks.sweep.records import outcome_without_answer, record
from tasks.sweep.tune import FinishedTrial
from tsfmscope.compression.options import FlowRanks, HeadRanks
from tsfmscope.errors import ModelError


def trials(params: Params) -> dict[str, Job]:
    """Return the job of every trial by name: the recipe with each schedule and seed, one group per seed."""
    block = params.pretraining
    if block.recipe is None:
        return {}
    recipe = params.checkpoints.recipes[block.recipe]
    jobs = {}
    for schedule, heads in _schedules(block):
        for seed in block.seeds:
            name = f"{block.recipe}+{schedule}+{seed}"
            job = training_job(name, recipe.model_copy(update={"heads": heads, "seed": seed}))
            # Trials are compared within a seed: losses of two seeds differ for other reasons than
            # the schedule.
            jobs[name] = replace(job, group=f"seed {seed}")
    return jobs


def _schedules(block: Pretraining) -> Iterator[tuple[str, HeadRanks]]:
    common: Any = {"factors": block.factors, "attention": block.attention}
    for first, growth in itertools.product(block.first, block.growth):
        flow = FlowRanks(
            first=first, growth=growth, rounding=block.rounding, origin=block.origin, cross_offset=block.cross_offset
        )
        yield f"flow-{first:g}-{growth:g}", HeadRanks(flow=flow, **common)
    for guideline in block.guideline:
        name = f"guideline-{guideline.smallest:g}-{guideline.largest or 0:g}-{guideline.bend:g}"
        yield name, HeadRanks(guideline=guideline, **common)
    for rank in block.flat:
        yield f"flat-{rank}", HeadRanks(flat=rank, **common)


# Models of the trials that finished.
MODELS = Path(DATA, "pretraining", "models")
CURVES = Path(DATA, "pretraining", "curves")
# Trials and settings of the last search: which trials were stopped depends on them.
SEARCH = Path(DATA, "pretraining", "search.json")
# Folders of Ray Tune, until all results of a search are stored.
SEARCHES = WORK / "searches"


def forget_lost(jobs: dict[str, Job], out: StageStore) -> None:
    """Delete the rows of finished trials whose models are lost or damaged, so that they are trained again."""
    for name, job in jobs.items():
        for folder in (MODELS / name, WORK / job.key):
            quarantine_damaged(folder, "pretraining")
    curves = stored_curves(out)
    finished = ((name, job) for name, job in jobs.items() if job.key in curves and _is_finished(job, curves))
    out.forget([job.key for name, job in finished if not publish(MODELS / name, job)])


def _is_finished(job: Job, curves: Mapping[str, list[dict[str, Any]]]) -> bool:
    return bool(curves[job.key][-1]["step"] == PretrainSpec.from_job(job).recipe.steps)


def forget_stopped(jobs: dict[str, Job], params: Params, out: StageStore) -> bool:
    """Delete the rows of stopped trials if the last search had other trials or another halving.

    Among other trials, a stopped one may have continued. Returns whether the search has changed.
    """
    block = params.pretraining
    settings: dict[str, Any] = {
        "trials": sorted(job.key for job in jobs.values()),
        "grace": block.grace,
        "reduction": block.reduction,
    }
    if not jobs:
        SEARCH.unlink(missing_ok=True)
    text = json.dumps(settings, indent=2) + "\n"
    if not jobs or (SEARCH.exists() and SEARCH.read_bytes() == text.encode()):
        return False
    curves = stored_curves(out)
    out.forget([job.key for job in jobs.values() if job.key in curves and not _is_finished(job, curves)])
    with files.atomic(SEARCH) as temporary:
        temporary.write_text(text)
    return True


def stored_curves(out: StageStore) -> dict[str, list[dict[str, Any]]]:
    """Return the stored rows of each trial by its key, sorted by step."""
    curves = defaultdict(list)
    for row in out.tables["training"].read().sort_by("step").to_pylist():
        curves[row["job_key"]].append(row)
    return dict(curves)


def reported_rows(rows: list[dict[str, Any]], interval: int) -> list[dict[str, Any]]:
    """Return the reports that a trial with these rows has sent to Ray Tune: one every `interval` steps."""
    return [{name: row[name] for name in ("step", "loss")} for row in rows if row["step"] % interval == 0]


def store_ended(out: StageStore, trial: FinishedTrial) -> None:
    """Store the rows of a finished trial, a trial's failure, or the logged rows of a stopped trial.

    A trial that was stopped before it logged a step is stored as failed.
    """
    if trial.outcome is not None:
        if trial.outcome.failure is None:
            # Rows from a search that stopped this trial would otherwise remain: stored rows are not
            # overwritten.
            out.forget([trial.job.key])
        out.append([record(trial.job, trial.outcome, 1)])
    elif rows := stopped_rows(work_folder(trial.job), PretrainSpec.from_job(trial.job).model):
        out.adopt("training", trial.job.key, rows)
    else:
        failure = Failure.of(ModelError("the trial was stopped before it logged a step; raise pretraining.grace"))
        out.append([record(trial.job, outcome_without_answer(failure, NOWHERE, seconds=0.0), 1)])


def stopped_rows(folder: Path, model: str) -> list[dict[str, Any]]:
    """Return the rows of `training` that a stopped training logged; a repeated step gives one row."""
    return [
        {"model": model, **{name: row[name] for name in ("step", "loss", "learning_rate")}}
        for row in training.read_log(folder)
    ]


def trial_row(name: str, job: Job, finished: set[str], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the row of `trials`, and write the curve; rows: the rows of the trial, sorted by step."""
    training.write_curve(CURVES / name, rows)
    recipe = PretrainSpec.from_job(job).recipe
    return {
        "model": name,
        "family": recipe.family,
        "heads": json.dumps(recipe.to_dict()["heads"], sort_keys=True),
        "seed": recipe.seed,
        "steps": recipe.steps,
        "steps_done": rows[-1]["step"],
        "loss": rows[-1]["loss"],
        "ended": "finished" if name in finished else "stopped",
        "ref": (MODELS / name).as_posix() if name in finished else None,
        "recipe": job.key,
    }


def delete_work(stopped: Iterable[Job]) -> None:
    """Delete the folders of Ray Tune and of stopped trials.

    A search that is kept would return its failures again instead of running.
    """
    for folder in (SEARCHES, *map(work_folder, stopped)):
        shutil.rmtree(folder, ignore_errors=True)
