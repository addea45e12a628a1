"""A search over rank schedules: one recipe, pretrained with each; Ray Tune stops what falls behind."""

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

from stages import DATA, curves
from stages.blocks import FlowRanks, HeadRanks, Pretraining, Recipe
from stages.checkpoints import training_job
from stages.folders import WORK, drop_others, settle, work_folder
from stages.params import Params
from stages.sweeping import RETRY_VARIABLE, judge, opened, resources
from store import files
from store.out import Out
from store.status import Status, write_status
from tasks.errors import ModelError
from tasks.sweep.fleet import NOWHERE
from tasks.sweep.halving import Halving
from tasks.sweep.jobs import Job, Port
from tasks.sweep.policy import Failure
from tasks.sweep.records import record, unanswered
from tasks.sweep.tune import Ended, Tell, search

MODELS = Path(DATA, "pretraining", "models")  # of trials that came to their end
CURVES = Path(DATA, "pretraining", "curves")
SEARCH = Path(DATA, "pretraining", "search.json")  # what the last search was over: what was stopped depends on it
SEARCHES = WORK / "searches"  # of Ray Tune, until all of a search is stored


def main(params: Params) -> None:
    """Write data/pretraining: models/NAME of each trial that came to its end, curves/NAME; tables training, trials."""
    jobs = trials(params)
    with opened("pretraining", ["training"]) as out:
        keys = [job.key for job in jobs.values()]
        _forget_lost(jobs, out)
        changed = _forget_stopped(jobs, params, out)
        status = Status(out.stage, len(jobs), 0, 0, 0, reused=len(jobs))
        if out.missing(keys, retry_failed=changed or RETRY_VARIABLE in os.environ):
            held = _curves(out)
            status = replace(status, reused=sum(key in held for key in keys))
            with curves.followed(CURVES, jobs):
                for one in _search(list(jobs.values()), params, out, partial(_tell, status, out.status)):
                    _store(out, one)
        whole = {name for name, job in jobs.items() if settle(MODELS / name, job)}
        failed = set(out.failed()["key"].to_pylist()) & set(keys)
        held = _curves(out)
        rows = [_row(name, job, whole, held[job.key]) for name, job in jobs.items() if job.key not in failed]
        out.write("trials", rows)
        drop_others(CURVES, jobs)
        drop_others(MODELS, whole)
        out.finish(keys, run={"seed": params.seed, "cpus": os.cpu_count() or 1})
        left = len(jobs) - status.reused
        _tell(replace(status, finished=True), out.status, max(0, left - len(failed)), min(left, len(failed)), 0)
        _tidy(job for name, job in jobs.items() if name not in whole and job.key not in failed)
    stopped = sum(row["ended"] == "stopped" for row in rows)
    print(f"pretraining: {len(jobs)} trials, {len(whole)} finished, {stopped} stopped early, {len(failed)} failed")
    judge(out, out.failed(), len(jobs), params.resources.max_failed_share)


def trials(params: Params) -> dict[str, Job]:
    """The job of every trial by its name: the recipe with each schedule and each seed, in a group a seed."""
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
            found[name] = replace(job, group=f"seed {seed}")  # losses of two seeds differ for more than their schedules
    return found


def _forget_lost(jobs: dict[str, Job], out: Out) -> None:
    """Forget the rows of trials that came to their end and whose models are gone, so that they are trained again."""
    held = _curves(out)
    ended = ((name, job) for name, job in jobs.items() if job.key in held and _ended(job, held))
    out.forget([job.key for name, job in ended if not settle(MODELS / name, job)])


def _ended(job: Job, held: Mapping[str, list[dict[str, Any]]]) -> bool:
    return bool(held[job.key][-1]["step"] == job.spec["recipe"]["steps"])


def _forget_stopped(jobs: dict[str, Job], params: Params, out: Out) -> bool:
    """Whether the last search was over other trials or another halving; then what it stopped may fare otherwise."""
    block = params.pretraining
    asked: dict[str, Any] = {
        "trials": sorted(job.key for job in jobs.values()),
        "grace": block.grace,
        "reduction": block.reduction,
    }
    if len(block.seeds) > 1:
        asked["within"] = "seed"  # what was stopped once for another seed's losses is tried again
    if not jobs:
        SEARCH.unlink(missing_ok=True)
    if not jobs or (SEARCH.exists() and json.loads(SEARCH.read_text()) == asked):
        return False
    held = _curves(out)
    out.forget([job.key for job in jobs.values() if job.key in held and not _ended(job, held)])
    with files.atomic(SEARCH) as temporary:
        temporary.write_text(json.dumps(asked, indent=2) + "\n")
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


def _search(jobs: list[Job], params: Params, out: Out, tell: Tell) -> list[Ended]:
    block = params.pretraining
    steps = jobs[0].spec["recipe"]["steps"]
    halving = Halving(most=steps, grace=block.grace, reduction=block.reduction)
    what = json.dumps([sorted(job.key for job in jobs), block.grace, block.reduction])
    folder = SEARCHES / hashlib.sha256(what.encode()).hexdigest()
    port = Port(out.missing, out.append, out.check, work_folder, out.write_dump)
    held = _curves(out)
    every = jobs[0].spec["recipe"]["save_every"]
    stored = {job.key: _reported(held[job.key], every) for job in jobs if job.key in held}
    return search(jobs, port, resources(params), halving, folder, stored, tell)


def _tidy(stopped: Iterable[Job]) -> None:
    """Delete what Tune and stopped trials left: a kept search answers with its failures, whoever asks again."""
    for folder in (SEARCHES, *map(work_folder, stopped)):
        shutil.rmtree(folder, ignore_errors=True)


def _curves(out: Out) -> dict[str, list[dict[str, Any]]]:
    """The stored rows of each trial by its key, by step."""
    found = defaultdict(list)
    for row in out.tables["training"].read().sort_by("step").to_pylist():
        found[row["job_key"]].append(row)
    return dict(found)


def _reported(rows: list[dict[str, Any]], every: int) -> list[dict[str, Any]]:
    """What a trial with these rows had said to Tune on its way."""
    return [{name: row[name] for name in ("step", "loss")} for row in rows if row["step"] % every == 0]


def _store(out: Out, ended: Ended) -> None:
    """The rows of a trial, or its failure; of one that was stopped, what it had logged."""
    if ended.outcome is not None:
        if ended.outcome.failure is None:
            out.forget([ended.job.key])  # what an earlier search stopped it at: held rows are not stored over
        out.append([record(ended.job, ended.outcome, 1)])
    elif rows := stopped_rows(work_folder(ended.job), ended.job.spec["model"]):
        out.adopt("training", ended.job.key, rows)
    else:
        failure = Failure.of(ModelError("the trial was stopped before it logged a step; raise pretraining.grace"))
        out.append([record(ended.job, unanswered(failure, NOWHERE, seconds=0.0), 1)])


def stopped_rows(folder: Path, model: str) -> list[dict[str, Any]]:
    """Rows of `training` that a stopped training logged; steps that it did twice, after a kill, stand once."""
    return [
        {"model": model, **{name: row[name] for name in ("step", "loss", "learning_rate")}}
        for row in curves.logged(folder)
    ]


def _row(name: str, job: Job, whole: set[str], mine: list[dict[str, Any]]) -> dict[str, Any]:
    curves.write(CURVES / name, mine)
    recipe = job.spec["recipe"]
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
