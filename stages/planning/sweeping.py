"""Execution of a stage's jobs: run those that the store lacks, then delete old rows, compact and report."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stages import DATA, STAGES
from stages.config.params import Params
from store.schema import job_tables
from store.stage_outputs import summarize_error
from store.stage_store import StageStore
from store.status import Status, write_status
from store.table_parts import parquet_files
from tasks.job import Job, StoreCallbacks
from tasks.sweep import engine, progress
from tasks.sweep.cluster import Resources
from tasks.sweep.placement import ActorResources
from tsfmscope.errors import TsfmscopeError

if TYPE_CHECKING:
    import pyarrow as pa

# Number of kinds of failures, the most common ones, that a stage prints at its end.
KINDS = 5
# Environment variable set by `tsfmscope retry`: jobs that failed permanently are tried again.
RETRY_VARIABLE = "TSFMSCOPE_RETRY_FAILED"


class PlannedJob(NamedTuple):
    """A job and the studies that request it."""

    job: Job
    studies: Sequence[str] = ()


class TooManyFailures(TsfmscopeError):
    """More jobs of a stage failed than resources.max_failed_share allows; the others are stored."""


@contextmanager
def open_store(stage: str) -> Iterator[StageStore]:
    """Open the output store of a stage for the tables that the schema assigns to it, locked for this driver."""
    companion = Path(DATA, "timings", stage)
    with StageStore(Path(DATA, stage), tables=job_tables(stage), companion=companion, stage=stage) as out:
        yield out


def sweep(out: StageStore, planned: Iterable[PlannedJob], params: Params, read: Callable[[Job], Any]) -> None:
    """Run the planned jobs that `out` lacks, delete rows of other jobs, compact the rest and print a summary.

    Raises TooManyFailures, after storing the finished jobs, if more than resources.max_failed_share of the
    jobs failed.
    """
    summary = run_and_finish(out, planned, resources(params), read, seed=params.seed)
    account(out, summary, params.resources.max_failed_share)


def sweep_stage(stage: str, planned: Iterable[PlannedJob], params: Params, read: Callable[[Path, Job], Any]) -> None:
    """Call `sweep` with the stage's store. read: returns the data of a job from files under a folder."""
    with open_store(stage) as out:
        sweep(out, planned, params, partial(read, Path.cwd()))


def run_and_finish(
    out: StageStore, planned: Iterable[PlannedJob], resources: Resources, read: Callable[[Job], Any], *, seed: int = 0
) -> engine.Summary:
    """Call `run`, then delete rows of jobs that were not planned and compact the rest.

    A stage may call `run` several times; jobs of its earlier calls count as done. `reused` counts jobs with
    rows, not failures.
    """
    log = JobLog()
    summary = run(out, log.record(planned), resources, read)
    counts = out.finish(log.keys, log.studies, {"seed": seed, "cpus": os.cpu_count() or 1})
    return replace(summary, done=counts["done"], reused=counts["reused"])


class JobLog:
    """Keys of the planned jobs: of all, and of those that each study requests; twice if planned twice."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.studies: dict[str, list[str]] = {}

    def record(self, planned: Iterable[PlannedJob]) -> Iterator[PlannedJob]:
        """Yield the planned jobs unchanged and record each."""
        for planned_job in planned:
            self.keys.append(planned_job.job.key)
            for study in planned_job.studies:
                self.studies.setdefault(study, []).append(planned_job.job.key)
            yield planned_job


def read_nothing(job: Job) -> None:
    """Return None, the data of a job that reads nothing."""


def run(
    out: StageStore, planned: Iterable[PlannedJob], resources: Resources, read: Callable[[Job], Any]
) -> engine.Summary:
    """Run the planned jobs that `out` lacks. Rows, failures and timings are stored as they arrive."""
    retry, passed_over = RETRY_VARIABLE in os.environ, 0
    latest: Status | None = None

    def missing(keys: Sequence[str]) -> list[str]:
        nonlocal passed_over
        missing_keys = out.missing(keys, retry_failed=retry)
        passed_over += 0 if retry else out.permanent_failures(keys)
        return missing_keys

    callbacks = StoreCallbacks(
        missing=missing, append=out.append, check=out.check, read=read, write_dump=out.write_dump
    )
    started = time.time()
    with progress.show(out.stage) as show:

        def report(state: progress.Progress) -> None:
            nonlocal latest
            show(state)
            counts = {name: getattr(state, name) for name in ("planned", "done", "failed", "running", "reused")}
            latest = Status(
                out.stage, **counts, passed_over=passed_over, started=started, finished=state.remaining == 0
            )
            write_status(latest, folder=out.status)

        try:
            return engine.run(map(attrgetter("job"), planned), callbacks, resources, report=report)
        # The last status is written even if the run was interrupted; it stays until the next run.
        finally:
            if latest:
                write_status(latest, folder=out.status, interval=0.0)


def resources(params: Params) -> Resources:
    """Return the resources of a sweep from the block `resources`."""
    block = params.resources
    defaults: dict[str, Any] = {
        "cpus": block.cpus_per_actor,
        "gpus": block.gpus_per_actor,
        "memory_mb": block.memory_mb,
        "labels": block.labels,
    }
    tasks = {
        name: ActorResources(**defaults | overrides.model_dump(exclude_none=True))
        for name, overrides in block.tasks.items()
    }
    limits = {name: getattr(block, name) for name in ("actors", "max_attempts", "job_timeout_s", "load_timeout_s")}
    address = block.address or os.environ.get("RAY_ADDRESS") or None
    return Resources(address=address, **defaults, tasks=tasks, **limits, flush_seconds=block.flush_s)


def stages_with_failures() -> list[str]:
    """Return the names of the sweeping stages whose output contains a failure."""
    import pyarrow.parquet as pq

    files = {stage.name: parquet_files(Path(DATA, stage.name, "failures")) for stage in STAGES if stage.sweeps}
    return [name for name, paths in files.items() if any(pq.read_metadata(path).num_rows for path in paths)]


def account(out: StageStore, summary: engine.Summary, max_share: float) -> None:
    """Print a summary of a run. Raises TooManyFailures if more than `max_share` of the jobs failed."""
    failures = out.failed()
    reused_text = f", {summary.reused} from before" if summary.reused else ""
    counts = f"{summary.planned} jobs, {summary.done} done{reused_text}, {len(failures)} failed"
    print(f"{out.stage}: {counts}, {summary.seconds:.1f} s", flush=True)
    judge(out, failures, summary.planned, max_share)


def judge(out: StageStore, failures: pa.Table, planned: int, max_share: float) -> None:
    """Print the most common kinds of failures, each with the message of its first failure.

    failures: rows of the table `failures`. Raises TooManyFailures if more than `max_share` of the planned
    jobs failed.
    """
    kinds, messages, traces = (failures[name].to_pylist() for name in ("error", "message", "traceback"))
    common = Counter(kinds).most_common(KINDS)
    for kind, count in common:
        first = summarize_error(messages[at := kinds.index(kind)], traces[at])
        print(f"{out.stage}: failed: {count} {kind}{first and ': '}{first}", flush=True)
    if others := len(kinds) - sum(count for _, count in common):
        print(f"{out.stage}: failed: {others} of other kinds", flush=True)
    if len(kinds) > max_share * planned:
        n_transient = sum(failures["transient"].to_pylist())
        data_option = "" if out.root.parent == Path(DATA).absolute() else f" --data {out.root.parent}"
        raise TooManyFailures(
            f"{out.stage}: {len(kinds)} of {planned} jobs failed, more than resources.max_failed_share = {max_share:g} "
            f"allows; the finished jobs are stored. `tsfmscope failures{data_option}` lists the "
            "failures, with --full their tracebacks. Fix the cause: `dvc repro` then runs again the "
            f"{n_transient} jobs that failed because of the machine, and jobs whose params or inputs have changed; "
            "`make retry` runs all failed jobs again"
        )
