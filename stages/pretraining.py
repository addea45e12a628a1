"""Stage pretraining: a search over rank schedules of one recipe; Ray Tune stops trials that fall behind."""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from stages.config.params import Params
from stages.planning import training
from stages.planning.model_folders import prune, publish, work_folder
from stages.planning.sweeping import RETRY_VARIABLE, judge, open_store, resources
from stages.planning.trials import (
    CURVES,
    MODELS,
    SEARCHES,
    delete_work,
    forget_lost,
    forget_stopped,
    reported_rows,
    store_ended,
    stored_curves,
    trial_row,
    trials,
)
from store.stage_store import StageStore
from store.status import Status, write_status
from tasks.job import Job, StoreCallbacks
from tasks.pretraining import PretrainSpec
from tasks.sweep.halving import Halving
from tasks.sweep.tune import FinishedTrial, ProgressReport, search


def main(params: Params) -> None:
    """Write data/pretraining: models/NAME of finished trials, curves/NAME, tables training and trials."""
    jobs = trials(params)
    with open_store("pretraining") as out:
        keys = [job.key for job in jobs.values()]
        forget_lost(jobs, out)
        changed = forget_stopped(jobs, params, out)
        status = Status(out.stage, len(jobs), 0, 0, 0, reused=len(jobs))
        if out.missing(keys, retry_failed=changed or RETRY_VARIABLE in os.environ):
            curves = stored_curves(out)
            status = replace(status, reused=sum(key in curves for key in keys))
            with training.follow_trainings(CURVES, jobs):
                for trial in _search(list(jobs.values()), params, out, partial(_write_progress, status, out.status)):
                    store_ended(out, trial)
        finished = {name for name, job in jobs.items() if publish(MODELS / name, job)}
        failed = set(out.failed()["key"].to_pylist()) & set(keys)
        curves = stored_curves(out)
        rows = [trial_row(name, job, finished, curves[job.key]) for name, job in jobs.items() if job.key not in failed]
        out.write("trials", rows)
        prune(CURVES, jobs)
        prune(MODELS, finished)
        out.finish(keys, run={"seed": params.seed, "cpus": os.cpu_count() or 1})
        n_run = len(jobs) - status.reused
        _write_progress(
            replace(status, finished=True), out.status, max(0, n_run - len(failed)), min(n_run, len(failed)), 0
        )
        delete_work(job for name, job in jobs.items() if name not in finished and job.key not in failed)
    stopped = sum(row["ended"] == "stopped" for row in rows)
    print(f"pretraining: {len(jobs)} trials, {len(finished)} finished, {stopped} stopped early, {len(failed)} failed")
    judge(out, out.failed(), len(jobs), params.resources.max_failed_share)


def _write_progress(status: Status, folder: Path, n_done: int, n_failed: int, n_running: int) -> None:
    current = replace(status, done=n_done, failed=n_failed, running=n_running, updated=time.time())
    write_status(current, folder=folder, interval=0.0 if current.finished else 1.0)


def _search(jobs: list[Job], params: Params, out: StageStore, report: ProgressReport) -> list[FinishedTrial]:
    block = params.pretraining
    recipe = PretrainSpec.from_job(jobs[0]).recipe
    halving = Halving(most=recipe.steps, grace=block.grace, reduction=block.reduction)
    settings = json.dumps([sorted(job.key for job in jobs), block.grace, block.reduction])
    folder = SEARCHES / hashlib.sha256(settings.encode()).hexdigest()
    callbacks = StoreCallbacks(out.missing, out.append, out.check, work_folder, out.write_dump)
    curves = stored_curves(out)
    stored = {job.key: reported_rows(curves[job.key], recipe.save_every) for job in jobs if job.key in curves}
    return search(jobs, callbacks, resources(params), halving, folder, stored, report)
