"""A training search: a trial is a job, done as the engine's actors do it; Ray Tune chooses which trials go on.

A trial's state lies where the job's entry puts it, under the job's key, so Tune keeps no checkpoints: a trial that is
begun again goes on from there. Which trials are stopped depends on their order in time, as asynchronous halving does.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from tasks.errors import SweepError
from tasks.sweep.actor import Outcome, Setting, Site, Worker
from tasks.sweep.cluster import Resources, connect, environment
from tasks.sweep.fleet import of_worker
from tasks.sweep.jobs import WATCHER, Job, Port
from tasks.sweep.policy import Failure
from tasks.sweep.records import unanswered

EXPERIMENT, OUTCOMES = "tune", "outcomes"  # in the search's folder: Tune's own files, and the answers of ended trials
QUIET = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # else csv, JSON and tensorboardX files of what the rows say too
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # its handler ends `fit` as if all were done
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # jobs name files relative to the driver's folder
    "TUNE_GLOBAL_CHECKPOINT_S": "5",  # s between saves of Tune's own state
}


@dataclass(frozen=True)
class Halving:
    """Asynchronous successive halving (ASHA, Li et al. 2020) of the rows that trials report.

    At `grace`, grace x reduction, ... up to `most` of `time`, a trial goes on if its `metric` is among the least 1 /
    reduction of those that came so far.
    """

    most: int
    grace: int
    reduction: float = 3.0
    time: str = "step"
    metric: str = "loss"


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
) -> list[Ended]:
    """Run the jobs, whose entries `report` on their way, as trials; those that are not stored, in the order of `jobs`.

    stored: by key, what jobs that are not to be done again reported; the others are compared with that.

    A search that was killed goes on in its folder, where each running trial goes on from its job's last saved state;
    one that has ended answers what it did. The folder belongs to these jobs and this halving: name it after both.
    """
    from ray import tune

    folder = Path(folder).absolute()
    (folder / OUTCOMES).mkdir(parents=True, exist_ok=True)
    with environment(QUIET), connect(resources):
        needs = resources.of(jobs[0].task.name)
        setting = Setting(needs.threads, os.getcwd(), needs.devices)
        first = sorted(jobs, key=lambda job: job.key not in stored)  # so that all others are compared with these
        site = _Trials({job.key: job for job in first}, of_worker(port), setting, folder, halving, stored)
        bundle = tune.PlacementGroupFactory([needs.amounts], bundle_label_selector=[dict(needs.labels)])
        trainable = tune.with_resources(tune.with_parameters(_trial, site=site), bundle)
        resources = replace(resources, actors=needs.actors or resources.actors)
        with contextlib.redirect_stdout(sys.stderr):  # where progress goes
            grid = _tuner(trainable, list(site.jobs), resources, halving, folder).fit()
    lost = {result.config["key"]: result.error for result in grid if result.error is not None}
    return [Ended(job, _outcome(folder, job) or _lost(lost.get(job.key))) for job in jobs if job.key not in stored]


class _Trials(NamedTuple):
    """What every trial needs."""

    jobs: Mapping[str, Job]
    port: Port
    setting: Setting
    folder: Path
    halving: Halving
    stored: Mapping[str, Sequence[Mapping[str, Any]]]


def _tuner(trainable: Any, keys: list[str], resources: Resources, halving: Halving, folder: Path) -> Any:
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler

    if tune.Tuner.can_restore(folder / EXPERIMENT):
        return tune.Tuner.restore(str(folder / EXPERIMENT), trainable, resume_errored=True)
    scheduler = ASHAScheduler(
        time_attr=halving.time,
        max_t=halving.most,
        grace_period=halving.grace,
        reduction_factor=halving.reduction,
        stop_last_trials=False,  # a trial that got so far is let to its own end
    )
    return tune.Tuner(
        trainable,
        param_space={"key": tune.grid_search(keys)},
        tune_config=tune.TuneConfig(
            metric=halving.metric, mode="min", scheduler=scheduler, max_concurrent_trials=resources.actors
        ),
        run_config=tune.RunConfig(
            name=EXPERIMENT,
            storage_path=str(folder),
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=resources.max_attempts - 1),
        ),
    )


def _trial(config: Mapping[str, str], site: _Trials) -> None:
    """Runs in a trial's actor: the job, unless its answer is kept from before a kill."""
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

    if job.key in site.stored:
        with contextlib.suppress(SystemExit):
            for row in site.stored[job.key]:
                tune.report(dict(row))
        return
    if _outcome(site.folder, job) is None:
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
    if (kept := _outcome(site.folder, job)) and kept.rows:
        tune.report(dict(kept.rows[-1]))


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
