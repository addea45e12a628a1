"""Stage pretraining: a search over rank schedules.

One recipe is pretrained with each schedule, and Ray Tune stops the trials that fall behind.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tsfmscope.stages import DATA
from tsfmscope.stages.checkpoints import training_job
from tsfmscope.stages.config import FlowRanks, HeadRanks, Pretraining, Recipe
from tsfmscope.stages.config.params import Params
from tsfmscope.stages.pipeline import training_curves
from tsfmscope.stages.pipeline.model_folders import WORK, prune, publish, set_damaged_aside, work_folder
from tsfmscope.stages.pipeline.sweeping import RETRY_VARIABLE, judge, open_store, resources
from tsfmscope.store import files
from tsfmscope.store.stage_store import StageStore
from tsfmscope.store.status import Status, write_status
from tsfmscope.tasks.entries.pretraining import PretrainSpec
from tsfmscope.tasks.errors import ModelError
from tsfmscope.tasks.job import Job, StoreCallbacks
from tsfmscope.tasks.sweep.actor_pool import NOWHERE
from tsfmscope.tasks.sweep.halving import Halving
from tsfmscope.tasks.sweep.policy import Failure
from tsfmscope.tasks.sweep.records import record, unanswered
from tsfmscope.tasks.sweep.tune import Ended, Tell, search

# Models of the trials that finished.
MODELS = Path(DATA, "pretraining", "models")
CURVES = Path(DATA, "pretraining", "curves")
# Trials and settings of the last search: which trials were stopped depends on them.
SEARCH = Path(DATA, "pretraining", "search.json")
# Folders of Ray Tune, until all results of a search are stored.
SEARCHES = WORK / "searches"


def main(params: Params) -> None:
    """Write data/pretraining: models/NAME of finished trials, curves/NAME, tables training and trials."""
    jobs = trials(params)
    with open_store("pretraining") as out:
        keys = [job.key for job in jobs.values()]
        _forget_lost(jobs, out)
        changed = _forget_stopped(jobs, params, out)
        status = Status(out.stage, len(jobs), 0, 0, 0, reused=len(jobs))
        if out.missing(keys, retry_failed=changed or RETRY_VARIABLE in os.environ):
            held = _curves(out)
            status = replace(status, reused=sum(key in held for key in keys))
            with training_curves.followed(CURVES, jobs):
                for one in _search(list(jobs.values()), params, out, partial(_tell, status, out.status)):
                    _store(out, one)
        whole = {name for name, job in jobs.items() if publish(MODELS / name, job)}
        failed = set(out.failed()["key"].to_pylist()) & set(keys)
        held = _curves(out)
        rows = [_row(name, job, whole, held[job.key]) for name, job in jobs.items() if job.key not in failed]
        out.write("trials", rows)
        prune(CURVES, jobs)
        prune(MODELS, whole)
        out.finish(keys, run={"seed": params.seed, "cpus": os.cpu_count() or 1})
        left = len(jobs) - status.reused
        _tell(replace(status, finished=True), out.status, max(0, left - len(failed)), min(left, len(failed)), 0)
        _tidy(job for name, job in jobs.items() if name not in whole and job.key not in failed)
    stopped = sum(row["ended"] == "stopped" for row in rows)
    print(f"pretraining: {len(jobs)} trials, {len(whole)} finished, {stopped} stopped early, {len(failed)} failed")
    judge(out, out.failed(), len(jobs), params.resources.max_failed_share)


def trials(params: Params) -> dict[str, Job]:
    """Return the job of every trial by name: the recipe with each schedule and seed, one group per seed."""
    block = params.pretraining
    if block.recipe is None:
        return {}
    recipe = params.checkpoints.recipes[block.recipe]
    found = {}
    for schedule, heads in _schedules(block):
        for seed in block.seeds:
            name = f"{block.recipe}+{schedule}+{seed}"
            changed = recipe.model_dump() | {"heads": heads.model_dump(), "seed": seed}
            job = training_job(name, Recipe.model_validate(changed))
            # Trials are compared within a seed: losses of two seeds differ for other reasons than
            # the schedule.
            found[name] = replace(job, group=f"seed {seed}")
    return found


def _forget_lost(jobs: dict[str, Job], out: StageStore) -> None:
    """Delete the rows of finished trials whose models are lost or damaged, so that they are trained again."""
    for name, job in jobs.items():
        for folder in (MODELS / name, WORK / job.key):
            set_damaged_aside(folder, "pretraining")
    held = _curves(out)
    ended = ((name, job) for name, job in jobs.items() if job.key in held and _ended(job, held))
    out.forget([job.key for name, job in ended if not publish(MODELS / name, job)])


def _ended(job: Job, held: Mapping[str, list[dict[str, Any]]]) -> bool:
    return bool(held[job.key][-1]["step"] == PretrainSpec.from_job(job).recipe["steps"])


def _forget_stopped(jobs: dict[str, Job], params: Params, out: StageStore) -> bool:
    """Delete the rows of stopped trials if the last search had other trials or another halving.

    Among other trials, a stopped one may have continued. Returns whether the search has changed.
    """
    block = params.pretraining
    asked: dict[str, Any] = {
        "trials": sorted(job.key for job in jobs.values()),
        "grace": block.grace,
        "reduction": block.reduction,
    }
    if len(block.seeds) > 1:
        # Earlier versions compared trials across seeds; with this entry, trials that they stopped
        # are tried again.
        asked["within"] = "seed"
    if not jobs:
        SEARCH.unlink(missing_ok=True)
    text = json.dumps(asked, indent=2) + "\n"
    if not jobs or (SEARCH.exists() and SEARCH.read_bytes() == text.encode()):
        return False
    held = _curves(out)
    out.forget([job.key for job in jobs.values() if job.key in held and not _ended(job, held)])
    with files.atomic(SEARCH) as temporary:
        temporary.write_text(text)
    return True


def _schedules(block: Pretraining) -> Iterator[tuple[str, HeadRanks]]:
    common: Any = {"factors": block.factors, "attention": block.attention}
    for first, growth in itertools.product(block.first, block.growth):
        flow = FlowRanks(
            first=first,
            growth=growth,
            rounding=block.rounding,
            origin=block.origin,
            cross_offset=block.cross_offset,
        )
        yield f"flow-{first:g}-{growth:g}", HeadRanks(flow=flow, **common)
    for guideline in block.guideline:
        name = f"guideline-{guideline.smallest:g}-{guideline.largest or 0:g}-{guideline.bend:g}"
        yield name, HeadRanks(guideline=guideline, **common)
    for rank in block.flat:
        yield f"flat-{rank}", HeadRanks(flat=rank, **common)


def _tell(status: Status, folder: Path, done: int, failed: int, running: int) -> None:
    now = replace(status, done=done, failed=failed, running=running, updated=time.time())
    write_status(now, folder=folder, every=0.0 if now.finished else 1.0)


def _search(jobs: list[Job], params: Params, out: StageStore, tell: Tell) -> list[Ended]:
    block = params.pretraining
    recipe = PretrainSpec.from_job(jobs[0]).recipe
    halving = Halving(most=recipe["steps"], grace=block.grace, reduction=block.reduction)
    what = json.dumps([sorted(job.key for job in jobs), block.grace, block.reduction])
    folder = SEARCHES / hashlib.sha256(what.encode()).hexdigest()
    port = StoreCallbacks(out.missing, out.append, out.check, work_folder, out.write_dump)
    held = _curves(out)
    stored = {job.key: _reported(held[job.key], recipe["save_every"]) for job in jobs if job.key in held}
    return search(jobs, port, resources(params), halving, folder, stored, tell)


def _tidy(stopped: Iterable[Job]) -> None:
    """Delete the folders of Ray Tune and of stopped trials.

    A search that is kept would return its failures again instead of running.
    """
    for folder in (SEARCHES, *map(work_folder, stopped)):
        shutil.rmtree(folder, ignore_errors=True)


def _curves(out: StageStore) -> dict[str, list[dict[str, Any]]]:
    """Return the stored rows of each trial by its key, sorted by step."""
    found = defaultdict(list)
    for row in out.tables["training"].read().sort_by("step").to_pylist():
        found[row["job_key"]].append(row)
    return dict(found)


def _reported(rows: list[dict[str, Any]], every: int) -> list[dict[str, Any]]:
    """Return the reports that a trial with these rows has sent to Ray Tune: one every `every` steps."""
    return [{name: row[name] for name in ("step", "loss")} for row in rows if row["step"] % every == 0]


def _store(out: StageStore, ended: Ended) -> None:
    """Store the rows of a finished trial, a trial's failure, or the logged rows of a stopped trial.

    A trial that was stopped before it logged a step is stored as failed.
    """
    if ended.outcome is not None:
        if ended.outcome.failure is None:
            # Rows from a search that stopped this trial would otherwise remain: stored rows are not
            # overwritten.
            out.forget([ended.job.key])
        out.append([record(ended.job, ended.outcome, 1)])
    elif rows := stopped_rows(work_folder(ended.job), PretrainSpec.from_job(ended.job).model):
        out.adopt("training", ended.job.key, rows)
    else:
        failure = Failure.of(ModelError("the trial was stopped before it logged a step; raise pretraining.grace"))
        out.append([record(ended.job, unanswered(failure, NOWHERE, seconds=0.0), 1)])


def stopped_rows(folder: Path, model: str) -> list[dict[str, Any]]:
    """Return the rows of `training` that a stopped training logged; a repeated step gives one row."""
    return [
        {"model": model, **{name: row[name] for name in ("step", "loss", "learning_rate")}}
        for row in training_curves.logged(folder)
    ]


def _row(name: str, job: Job, whole: set[str], mine: list[dict[str, Any]]) -> dict[str, Any]:
    training_curves.write(CURVES / name, mine)
    recipe = PretrainSpec.from_job(job).recipe
    return {
        "model": name,
        "family": recipe["family"],
        "heads": json.dumps(recipe["heads"], sort_keys=True),
        "seed": recipe["seed"],
        "steps": recipe["steps"],
        "steps_done": mine[-1]["step"],
        "loss": mine[-1]["loss"],
        "ended": "finished" if name in whole else "stopped",
        "ref": (MODELS / name).as_posix() if name in whole else None,
        "recipe": job.key,
    }
