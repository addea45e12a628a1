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

from tasks.job import WATCHER, Job, StoreCallbacks
from tasks.sweep.actor import Outcome, Worker, WorkerConfig, WorkerLocation
from tasks.sweep.actor_pool import worker_callbacks
from tasks.sweep.cluster import Resources, connect, environment
from tasks.sweep.halving import Halving
from tasks.sweep.policy import Failure
from tasks.sweep.records import outcome_without_answer
from tasks.sweep.signals import exit_on_signal
from tsfmscope.errors import SweepError

if TYPE_CHECKING:
    from tasks.sweep.asha import PersistentAsha

# Subfolder of the search's folder with Tune's own files of one run.
EXPERIMENT = "tune"
# Folder with the outcomes of trials that ended, and file with all rows that trials reported; both
# in the search's folder.
OUTCOMES_FOLDER, ROWS_FILE = "outcomes", "heard.jsonl"
QUIET = {
    # Without it, Tune writes csv, JSON and tensorboardX files with the contents of the rows.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    # Tune's handler ends `fit` as if all trials were done.
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    # Jobs name files relative to the driver's folder.
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}


# Callback with the numbers of trials that have ended, have failed, and are running.
ProgressReport = Callable[[int, int, int], None]


class FinishedTrial(NamedTuple):
    """Trial at the end of a search; its outcome is None if it was stopped early."""

    job: Job
    outcome: Outcome | None


def search(
    jobs: Sequence[Job],
    callbacks: StoreCallbacks,
    resources: Resources,
    halving: Halving,
    folder: Path,
    stored_rows: Mapping[str, Sequence[Mapping[str, Any]]] = MappingProxyType({}),
    on_progress: ProgressReport = lambda ended, failed, running: None,
) -> list[FinishedTrial]:
    """Run jobs whose entries `report` their progress as trials.

    Each trial is compared with the trials of its group.

    stored_rows: key -> rows that an already stored job reported; that job does not run again, but the others
    are compared with its rows too. on_progress: called while trials run; its counts include trials that had
    ended before a kill.

    Returns the trials of the jobs that are not in `stored_rows`, in the order of `jobs`.

    A search that was killed continues in its folder: the reported rows of each trial keep their effect, and
    trials that had not ended continue from their jobs' last saved states. The folder belongs to these jobs
    and this halving: name it after both.
    """
    from tasks.sweep.asha import PersistentAsha

    folder = Path(folder).absolute()
    (folder / OUTCOMES_FOLDER).mkdir(parents=True, exist_ok=True)
    scheduler = PersistentAsha(halving, folder / ROWS_FILE, {job.key: job.group for job in jobs})
    for key, rows in stored_rows.items():
        for row in () if scheduler.has_rows(key) else rows:
            scheduler.report(key, row)
    requested = [job for job in jobs if job.key not in stored_rows]
    remaining = [job for job in requested if job.key not in scheduler.stopped_keys and _outcome(folder, job) is None]
    n_before = len(requested) - len(remaining)

    def report_progress(ended: int, failed: int, running: int) -> None:
        on_progress(n_before + ended, failed, running)

    errors = _run(remaining, callbacks, resources, scheduler, folder, report_progress) if remaining else {}
    trials = []
    for job in requested:
        outcome, error = _outcome(folder, job), errors.get(job.key)
        if outcome is None and error is not None:
            outcome = outcome_without_answer(Failure.of(error), WorkerLocation("", "", ""), seconds=0.0)
        trials.append(FinishedTrial(job, outcome))
    return trials


def _run(
    jobs: Sequence[Job],
    callbacks: StoreCallbacks,
    resources: Resources,
    scheduler: PersistentAsha,
    folder: Path,
    on_progress: ProgressReport,
) -> dict[str, BaseException]:
    """Let Tune run the jobs; return the last error, by key, of each job that failed `max_attempts` times."""
    from ray import tune

    # Files of a search that was killed; nothing is read from them.
    shutil.rmtree(folder / EXPERIMENT, ignore_errors=True)
    with environment(QUIET), connect(resources):
        needs = resources.for_task(jobs[0].task.name)
        config = WorkerConfig(needs.threads, os.getcwd(), needs.devices, processes=needs.shares)
        trials = _Trials({job.key: job for job in jobs}, worker_callbacks(callbacks), config, folder, scheduler.halving)
        bundle = tune.PlacementGroupFactory([needs.amounts], bundle_label_selector=[dict(needs.labels)])
        trainable = tune.with_resources(tune.with_parameters(_trial, trials=trials), bundle)
        resources = replace(resources, actors=needs.actors or resources.actors)
        tuner = _tuner(trainable, list(trials.jobs), resources, scheduler, folder, on_progress)
        # Tune prints to standard output; standard error is the stream of progress.
        with contextlib.redirect_stdout(sys.stderr), exit_on_signal(lambda: _stop_message(jobs, scheduler, folder)):
            grid = tuner.fit()
    return {result.config["key"]: result.error for result in grid if result.error is not None}


def _stop_message(jobs: Sequence[Job], scheduler: PersistentAsha, folder: Path) -> str:
    ended = sum(job.key in scheduler.stopped_keys or _outcome(folder, job) is not None for job in jobs)
    return f"{ended} trials ended, {len(jobs) - ended} left; run the same command again to go on"


class _Trials(NamedTuple):
    """Data that every trial needs."""

    jobs: Mapping[str, Job]
    callbacks: StoreCallbacks
    config: WorkerConfig
    folder: Path
    halving: Halving


def _tuner(
    trainable: Any,
    keys: list[str],
    resources: Resources,
    scheduler: PersistentAsha,
    folder: Path,
    on_progress: ProgressReport,
) -> Any:
    from ray import tune

    from tasks.sweep.asha import ProgressCallback

    return tune.Tuner(
        trainable,
        param_space={"key": tune.grid_search(keys)},
        tune_config=tune.TuneConfig(
            metric=scheduler.halving.metric, mode="min", scheduler=scheduler, max_concurrent_trials=resources.actors
        ),
        run_config=tune.RunConfig(
            name=EXPERIMENT,
            storage_path=str(folder),
            verbose=0,
            callbacks=[ProgressCallback(on_progress)],
            failure_config=tune.FailureConfig(max_failures=resources.max_attempts - 1),
        ),
    )


def _trial(config: Mapping[str, str], trials: _Trials) -> None:
    """Run the job in a trial's actor; save its outcome unless it failed transiently or Tune stopped it."""
    from ray import tune

    job, stopped = trials.jobs[config["key"]], False

    def watch(row: Mapping[str, Any]) -> None:
        nonlocal stopped
        if row[trials.halving.time] >= trials.halving.most:
            # ASHA may have a rung at the end, which would discard a trial that is complete.
            return
        try:
            tune.report(dict(row))
        # Tune ends a trial's thread with SystemExit.
        except SystemExit:
            stopped = True
            raise

    worker = Worker(f"trial-{job.key[:8]}", trials.callbacks, trials.config)
    if unfit := worker.start().unfit:
        raise SweepError(unfit)
    WATCHER.set(watch)
    outcome = worker.run(job, 1)
    if stopped:
        return
    if (failure := outcome.failure) and failure.transient:
        # Tune tries the trial again, as after the death of its actor.
        raise RuntimeError(f"{failure.type}: {failure.message}")
    path = trials.folder / OUTCOMES_FOLDER / job.key
    temporary = path.with_suffix(".making")
    temporary.write_bytes(pickle.dumps(outcome))
    temporary.replace(path)
    if outcome.rows:
        tune.report(dict(outcome.rows[-1]))


def _outcome(folder: Path, job: Job) -> Outcome | None:
    """Return the saved outcome of a trial, or None."""
    path = folder / OUTCOMES_FOLDER / job.key
    if not path.exists():
        return None
    # A file that this module wrote.
    outcome: Outcome = pickle.loads(path.read_bytes())
    return outcome
