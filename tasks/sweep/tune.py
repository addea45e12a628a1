"""A training search: a trial is a job, done as the engine's actors do it; Ray Tune chooses which trials go on.

A trial's state lies where the job's entry puts it, under the job's key, so Tune keeps no checkpoints: a trial that is
begun again goes on from there. Nor is Tune's own state read again: it is seconds old, and has no rungs. Which trials
are stopped depends on their order in time, as asynchronous halving does.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from tasks.errors import SweepError
from tasks.sweep.actor import Outcome, Setting, Site, Worker
from tasks.sweep.cluster import Resources, connect, environment
from tasks.sweep.fleet import of_worker
from tasks.sweep.halving import Halving
from tasks.sweep.interrupts import leaving
from tasks.sweep.jobs import WATCHER, Job, Port
from tasks.sweep.policy import Failure
from tasks.sweep.records import unanswered

if TYPE_CHECKING:
    from tasks.sweep.judging import Judge

EXPERIMENT = "tune"  # in the search's folder: Tune's own files, a run's
OUTCOMES, HEARD = "outcomes", "heard.jsonl"  # there: answers of trials that came to their end, and what all reported
QUIET = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # else csv, JSON and tensorboardX files of what the rows say too
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # its handler ends `fit` as if all were done
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # jobs name files relative to the driver's folder
}


Tell = Callable[[int, int, int], None]  # of trials: how many have ended, were given up, and run


class Ended(NamedTuple):
    """A trial at the end of a search; outcome None: it was stopped early."""

    job: Job
    outcome: Outcome | None


def search(
    jobs: Sequence[Job],
    port: Port,
    resources: Resources,
    halving: Halving,
    folder: Path,
    stored: Mapping[str, Sequence[Mapping[str, Any]]] = MappingProxyType({}),
    tell: Tell = lambda ended, failed, running: None,
) -> list[Ended]:
    """Run the jobs, whose entries `report` on their way, as trials; those that are not stored, in the order of `jobs`.

    Each is compared with those of its group. stored: by key, what jobs that are not to be done again reported; the
    others are compared with that, too.
    tell: is called while trials run; those that had ended before a kill are counted.

    A search that was killed goes on in its folder: what each trial had reported counts as it did, and those that had
    not ended go on from their jobs' last saved states. The folder belongs to these jobs and this halving: name it
    after both.
    """
    from tasks.sweep.judging import Judge

    folder = Path(folder).absolute()
    (folder / OUTCOMES).mkdir(parents=True, exist_ok=True)
    judge = Judge(halving, folder / HEARD, {job.key: job.group for job in jobs})
    for key, rows in stored.items():
        for row in () if judge.knows(key) else rows:
            judge.hear(key, row)
    asked = [job for job in jobs if job.key not in stored]
    left = [job for job in asked if job.key not in judge.stopped and _outcome(folder, job) is None]
    before = len(asked) - len(left)

    def said(ended: int, failed: int, running: int) -> None:
        tell(before + ended, failed, running)

    lost = _run(left, port, resources, judge, folder, said) if left else {}
    return [Ended(job, _outcome(folder, job) or _lost(lost.get(job.key))) for job in asked]


def _run(
    jobs: Sequence[Job], port: Port, resources: Resources, judge: Judge, folder: Path, tell: Tell
) -> dict[str, BaseException]:
    """Have Tune run the jobs; by key, why those were given up whose actors were lost too often."""
    from ray import tune

    shutil.rmtree(folder / EXPERIMENT, ignore_errors=True)  # of a search that was killed; nothing is read from it
    with environment(QUIET), connect(resources):
        needs = resources.of(jobs[0].task.name)
        setting = Setting(needs.threads, os.getcwd(), needs.devices, processes=needs.shares)
        site = _Trials({job.key: job for job in jobs}, of_worker(port), setting, folder, judge.halving)
        bundle = tune.PlacementGroupFactory([needs.amounts], bundle_label_selector=[dict(needs.labels)])
        trainable = tune.with_resources(tune.with_parameters(_trial, site=site), bundle)
        resources = replace(resources, actors=needs.actors or resources.actors)
        tuner = _tuner(trainable, list(site.jobs), resources, judge, folder, tell)
        with contextlib.redirect_stdout(sys.stderr), leaving(lambda: _left(jobs, judge, folder)):  # progress goes there
            grid = tuner.fit()
    return {result.config["key"]: result.error for result in grid if result.error is not None}


def _left(jobs: Sequence[Job], judge: Judge, folder: Path) -> str:
    ended = sum(job.key in judge.stopped or _outcome(folder, job) is not None for job in jobs)
    return f"{ended} trials ended, {len(jobs) - ended} left; run the same command again to go on"


class _Trials(NamedTuple):
    """What every trial needs."""

    jobs: Mapping[str, Job]
    port: Port
    setting: Setting
    folder: Path
    halving: Halving


def _tuner(trainable: Any, keys: list[str], resources: Resources, judge: Judge, folder: Path, tell: Tell) -> Any:
    from ray import tune

    from tasks.sweep.judging import Teller

    return tune.Tuner(
        trainable,
        param_space={"key": tune.grid_search(keys)},
        tune_config=tune.TuneConfig(
            metric=judge.halving.metric,
            mode="min",
            scheduler=judge,
            max_concurrent_trials=resources.actors,
        ),
        run_config=tune.RunConfig(
            name=EXPERIMENT,
            storage_path=str(folder),
            verbose=0,
            callbacks=[Teller(tell)],
            failure_config=tune.FailureConfig(max_failures=resources.max_attempts - 1),
        ),
    )


def _trial(config: Mapping[str, str], site: _Trials) -> None:
    """Runs in a trial's actor: the job, whose answer is kept unless Tune stops it on its way."""
    from ray import tune

    job, stopped = site.jobs[config["key"]], False

    def watch(row: Mapping[str, Any]) -> None:
        nonlocal stopped
        if row[site.halving.time] >= site.halving.most:
            return  # ASHA may have a rung there, which would throw away a trial that is done
        try:
            tune.report(dict(row))
        except SystemExit:  # how Tune ends a trial's thread
            stopped = True
            raise

    worker = Worker(f"trial-{job.key[:8]}", site.port, site.setting)
    if unfit := worker.start().unfit:
        raise SweepError(unfit)
    WATCHER.set(watch)
    outcome = worker.run(job, 1)
    if stopped:
        return
    if (failure := outcome.failure) and failure.transient:
        raise RuntimeError(f"{failure.type}: {failure.message}")  # tried again, as after a death
    _keep(site.folder, job, outcome)
    if outcome.rows:
        tune.report(dict(outcome.rows[-1]))


def _outcome(folder: Path, job: Job) -> Outcome | None:
    """The kept answer of a trial."""
    path = folder / OUTCOMES / job.key
    if not path.exists():
        return None
    outcome: Outcome = pickle.loads(path.read_bytes())  # our own file
    return outcome


def _keep(folder: Path, job: Job, outcome: Outcome) -> None:
    path = folder / OUTCOMES / job.key
    making = path.with_suffix(".making")
    making.write_bytes(pickle.dumps(outcome))
    making.replace(path)


def _lost(error: BaseException | None) -> Outcome | None:
    return None if error is None else unanswered(Failure.of(error), Site("", "", ""), seconds=0.0)
