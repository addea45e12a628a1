"""Training search: each trial is one job, and Ray Tune decides which trials continue.

A trial runs its job as the engine's actors do. The job's entry stores a trial's state under the job's key, so
Tune keeps no checkpoints: a restarted trial continues from its stored state. Tune's own state is not read
again either: it is seconds old and does not contain the rungs. Which trials are stopped depends on their
order in time, as in asynchronous halving.
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

from tsfmscope.tasks.errors import SweepError
from tsfmscope.tasks.job import WATCHER, Job, StoreCallbacks
from tsfmscope.tasks.sweep.actor import Outcome, Worker, WorkerConfig, WorkerLocation
from tsfmscope.tasks.sweep.actor_pool import of_worker
from tsfmscope.tasks.sweep.cluster import Resources, connect, environment
from tsfmscope.tasks.sweep.halving import Halving
from tsfmscope.tasks.sweep.policy import Failure
from tsfmscope.tasks.sweep.records import unanswered
from tsfmscope.tasks.sweep.signals import leaving

if TYPE_CHECKING:
    from tsfmscope.tasks.sweep.asha import PersistentAsha

# Subfolder of the search's folder with Tune's own files of one run.
EXPERIMENT = "tune"
# Folder with the outcomes of trials that ended, and file with all rows that trials reported; both
# in the search's folder.
OUTCOMES, HEARD = "outcomes", "heard.jsonl"
QUIET = {
    # Without it, Tune writes csv, JSON and tensorboardX files with the contents of the rows.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    # Tune's handler ends `fit` as if all trials were done.
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    # Jobs name files relative to the driver's folder.
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}


# Called with the number of trials that have ended, were given up, and are running.
Tell = Callable[[int, int, int], None]


class Ended(NamedTuple):
    """A trial at the end of a search. An outcome of None means that it was stopped early."""

    job: Job
    outcome: Outcome | None


def search(
    jobs: Sequence[Job],
    port: StoreCallbacks,
    resources: Resources,
    halving: Halving,
    folder: Path,
    stored: Mapping[str, Sequence[Mapping[str, Any]]] = MappingProxyType({}),
    tell: Tell = lambda ended, failed, running: None,
) -> list[Ended]:
    """Run jobs whose entries `report` their progress as trials.

    Each trial is compared with the trials of its group.

    stored: key -> rows that an already stored job reported; that job does not run again, but the others are
    compared with its rows too. tell: called while trials run; its counts include trials that had ended before
    a kill.

    Returns the trials of the jobs that are not in `stored`, in the order of `jobs`.

    A search that was killed continues in its folder: the reported rows of each trial keep their effect, and
    trials that had not ended continue from their jobs' last saved states. The folder belongs to these jobs
    and this halving: name it after both.
    """
    from tsfmscope.tasks.sweep.asha import PersistentAsha

    folder = Path(folder).absolute()
    (folder / OUTCOMES).mkdir(parents=True, exist_ok=True)
    judge = PersistentAsha(halving, folder / HEARD, {job.key: job.group for job in jobs})
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
    jobs: Sequence[Job], port: StoreCallbacks, resources: Resources, judge: PersistentAsha, folder: Path, tell: Tell
) -> dict[str, BaseException]:
    """Let Tune run the jobs; return the last error, by key, of each job that failed `max_attempts` times."""
    from ray import tune

    # Files of a search that was killed; nothing is read from them.
    shutil.rmtree(folder / EXPERIMENT, ignore_errors=True)
    with environment(QUIET), connect(resources):
        needs = resources.of(jobs[0].task.name)
        setting = WorkerConfig(needs.threads, os.getcwd(), needs.devices, processes=needs.shares)
        site = _Trials({job.key: job for job in jobs}, of_worker(port), setting, folder, judge.halving)
        bundle = tune.PlacementGroupFactory([needs.amounts], bundle_label_selector=[dict(needs.labels)])
        trainable = tune.with_resources(tune.with_parameters(_trial, site=site), bundle)
        resources = replace(resources, actors=needs.actors or resources.actors)
        tuner = _tuner(trainable, list(site.jobs), resources, judge, folder, tell)
        # Tune prints to standard output; standard error is the stream of progress.
        with contextlib.redirect_stdout(sys.stderr), leaving(lambda: _left(jobs, judge, folder)):
            grid = tuner.fit()
    return {result.config["key"]: result.error for result in grid if result.error is not None}


def _left(jobs: Sequence[Job], judge: PersistentAsha, folder: Path) -> str:
    ended = sum(job.key in judge.stopped or _outcome(folder, job) is not None for job in jobs)
    return f"{ended} trials ended, {len(jobs) - ended} left; run the same command again to go on"


class _Trials(NamedTuple):
    """Data that every trial needs."""

    jobs: Mapping[str, Job]
    port: StoreCallbacks
    setting: WorkerConfig
    folder: Path
    halving: Halving


def _tuner(
    trainable: Any, keys: list[str], resources: Resources, judge: PersistentAsha, folder: Path, tell: Tell
) -> Any:
    from ray import tune

    from tsfmscope.tasks.sweep.asha import ProgressCallback

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
            callbacks=[ProgressCallback(tell)],
            failure_config=tune.FailureConfig(max_failures=resources.max_attempts - 1),
        ),
    )


def _trial(config: Mapping[str, str], site: _Trials) -> None:
    """Run the job in a trial's actor; keep its outcome unless it failed transiently or Tune stopped it."""
    from ray import tune

    job, stopped = site.jobs[config["key"]], False

    def watch(row: Mapping[str, Any]) -> None:
        nonlocal stopped
        if row[site.halving.time] >= site.halving.most:
            # ASHA may have a rung at the end, which would discard a trial that is complete.
            return
        try:
            tune.report(dict(row))
        # Tune ends a trial's thread with SystemExit.
        except SystemExit:
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
        # Tune tries the trial again, as after the death of its actor.
        raise RuntimeError(f"{failure.type}: {failure.message}")
    _keep(site.folder, job, outcome)
    if outcome.rows:
        tune.report(dict(outcome.rows[-1]))


def _outcome(folder: Path, job: Job) -> Outcome | None:
    """Return the kept outcome of a trial, or None."""
    path = folder / OUTCOMES / job.key
    if not path.exists():
        return None
    # A file that this module wrote.
    outcome: Outcome = pickle.loads(path.read_bytes())
    return outcome


def _keep(folder: Path, job: Job, outcome: Outcome) -> None:
    path = folder / OUTCOMES / job.key
    making = path.with_suffix(".making")
    making.write_bytes(pickle.dumps(outcome))
    making.replace(path)


def _lost(error: BaseException | None) -> Outcome | None:
    return None if error is None else unanswered(Failure.of(error), WorkerLocation("", "", ""), seconds=0.0)
