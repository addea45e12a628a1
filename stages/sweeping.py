"""What every sweeping stage does with its jobs: run what the store has not got, then prune, compact and account."""

from __future__ import annotations

import os
import time
from array import array
from binascii import hexlify
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stages import DATA, STAGES
from stages.params import Params
from store.keys import SLICE, unique
from store.out import Out
from store.outcomes import in_a_line
from store.published import table_files
from store.shelf import place
from store.status import Status, write_status
from tasks.sweep import engine, progress
from tasks.sweep.cluster import Resources
from tasks.sweep.environments import Environment
from tasks.sweep.jobs import Job, Port
from tasks.sweep.placement import Needs

if TYPE_CHECKING:
    import pyarrow as pa

KINDS = 5  # of failures, the commonest, that a stage tells of at its end
RETRY_VARIABLE = "TSFM_LENS_RETRY_FAILED"  # set by `stages retry`: jobs that failed for good are tried again


class Planned(NamedTuple):
    """A job and the studies that ask for it."""

    job: Job
    studies: Sequence[str] = ()


class TooManyFailures(Exception):
    """A stage failed more jobs than resources.max_failed_share allows; what finished is stored."""


@contextmanager
def opened(stage: str, tables: Sequence[str], params: Params | None = None) -> Iterator[Out]:
    """The out of a stage, locked for this driver.

    params: of a stage whose rows and dumps go to resources.store, where that is given.
    """
    uri = params.resources.store if params else None
    where = place(uri, stage) if uri else None
    companion = Path(DATA, "timings", stage)
    with Out(Path(DATA, stage), tables=tables, companion=companion, stage=stage, place=where) as out:
        yield out


def sweep(out: Out, planned: Iterable[Planned], params: Params, read: Callable[[Job], Any]) -> None:
    """Run the planned jobs that `out` lacks, drop what is no longer asked for, compact the rest, and say how it went.

    Raises TooManyFailures, after storing what finished, when more than resources.max_failed_share of the jobs failed.
    """
    summary = run_and_finish(out, planned, resources(params), read, seed=params.seed)
    account(out, summary, params.resources.max_failed_share)


def run_and_finish(
    out: Out, planned: Iterable[Planned], where: Resources, read: Callable[[Job], Any], *, seed: int = 0
) -> engine.Summary:
    """`run`, then drop what was not planned and compact the rest.

    Jobs that an earlier `run` of a stage with several did count as done; `reused` are jobs with rows, no failures.
    """
    asked = Asked()
    summary = run(out, asked.noting(planned), where, read)
    counts = out.finish(asked.keys, asked.studies, {"seed": seed, "cpus": os.cpu_count() or 1})
    return replace(summary, done=counts["done"], reused=counts["reused"])


class Asked:
    """What was planned, without the jobs: 36 bytes each."""

    def __init__(self) -> None:
        self._digests = bytearray()
        self._kinds = array("I")  # of each job, the place of its studies in _sets
        self._sets: dict[tuple[str, ...], int] = {}

    def noting(self, planned: Iterable[Planned]) -> Iterator[Planned]:
        """The same jobs, noted as they pass."""
        for one in planned:
            self._digests += bytes.fromhex(one.job.key)
            self._kinds.append(self._sets.setdefault(tuple(one.studies), len(self._sets)))
            yield one

    @property
    def keys(self) -> np.ndarray:
        """Every job's key, S64, ascending."""
        return _hex(np.sort(np.frombuffer(self._digests, "S32")))

    @property
    def studies(self) -> Iterator[tuple[str, np.ndarray]]:
        """Each study, in order, and the keys of its jobs: S64, ascending, each once, some at a time."""
        digests, kinds = np.frombuffer(self._digests, "S32"), np.frombuffer(self._kinds, np.uint32)
        for study in sorted({study for studies in self._sets for study in studies}):
            asking = [kind for studies, kind in self._sets.items() if study in studies]
            mine = digests[np.isin(kinds, asking)]
            mine.sort()
            mine = unique(mine)
            for start in range(0, len(mine), SLICE):
                yield study, _hex(mine[start : start + SLICE])


def _hex(digests: np.ndarray) -> np.ndarray:
    return np.frombuffer(hexlify(digests.data), "S64")


def nothing(job: Job) -> None:
    """What a job reads that reads nothing."""


def run(out: Out, planned: Iterable[Planned], where: Resources, read: Callable[[Job], Any]) -> engine.Summary:
    """Run the planned jobs that `out` lacks; rows, failures and timings are stored as they come."""
    retry, passed_over = RETRY_VARIABLE in os.environ, 0
    latest: Status | None = None

    def missing(keys: Sequence[str]) -> list[str]:
        nonlocal passed_over
        found = out.missing(keys, retry_failed=retry)
        passed_over += 0 if retry else out.given_up(keys)
        return found

    port = Port(
        missing=missing,
        append=out.append,
        check=out.check,
        read=read,
        write_dump=out.write_dump,
    )
    started = time.time()
    with progress.show(out.stage) as show:

        def report(now: progress.Progress) -> None:
            nonlocal latest
            show(now)
            latest = Status(
                out.stage,
                planned=now.planned,
                done=now.done,
                failed=now.failed,
                running=now.running,
                reused=now.reused,
                passed_over=passed_over,
                started=started,
                finished=now.left == 0,
            )
            write_status(latest, folder=out.status)

        try:
            return engine.run(map(attrgetter("job"), planned), port, where, report=report)
        finally:  # the last word stands, also of a run that was interrupted, until the next one
            if latest:
                write_status(latest, folder=out.status, every=0.0)


def resources(params: Params) -> Resources:
    """The sweep's resources from the block of that name."""
    block = params.resources
    usual: dict[str, Any] = {
        "cpus": block.cpus_per_actor,
        "gpus": block.gpus_per_actor,
        "memory_mb": block.memory_mb,
        "labels": block.labels,
    }
    return Resources(
        address=block.address or os.environ.get("RAY_ADDRESS") or None,
        actors=block.actors,
        **usual,
        tasks={name: Needs(**(usual | own.model_dump(exclude_none=True))) for name, own in block.tasks.items()},
        environments=environments(params),
        max_attempts=block.max_attempts,
        job_timeout_s=block.job_timeout_s,
        load_timeout_s=block.load_timeout_s,
        flush_seconds=block.flush_s,
    )


def environments(params: Params) -> dict[str, Environment]:
    """The environments of the models that run in one of their own, by model."""
    made = {
        name: Environment(name, tuple(one.packages), tuple(one.options), one.timeout_s)
        for name, one in params.environments.items()
    }
    return {name: made[model.environment] for name, model in params.models.items() if model.environment}


def stages_with_failures() -> list[str]:
    """Sweeping stages whose out holds a failure."""
    import pyarrow.parquet as pq

    files = {stage.name: table_files(Path(DATA, stage.name), "failures") for stage in STAGES if stage.sweeps}
    return [name for name, found in files.items() if any(pq.read_metadata(path).num_rows for path in found)]


def account(out: Out, summary: engine.Summary, max_share: float) -> None:
    """Say how it went. Raises TooManyFailures where more than `max_share` of the jobs have failed."""
    failures = out.failed()
    reused = f", {summary.reused} from before" if summary.reused else ""
    counts = f"{summary.planned} jobs, {summary.done} done{reused}, {len(failures)} failed"
    print(f"{out.stage}: {counts}, {summary.seconds:.1f} s", flush=True)
    judge(out, failures, summary.planned, max_share)


def judge(out: Out, failures: pa.Table, planned: int, max_share: float) -> None:
    """Tell of each kind of failure. Raises TooManyFailures where more than `max_share` of the planned jobs have failed.

    failures: rows of that table.
    """
    kinds, messages, traces = (failures[name].to_pylist() for name in ("error", "message", "traceback"))
    common = Counter(kinds).most_common(KINDS)
    for kind, count in common:
        first = in_a_line(messages[at := kinds.index(kind)], traces[at])
        print(f"{out.stage}: failed: {count} {kind}{first and ': '}{first}", flush=True)
    if others := len(kinds) - sum(count for _, count in common):
        print(f"{out.stage}: failed: {others} of other kinds", flush=True)
    if len(kinds) > max_share * planned:
        again = sum(failures["transient"].to_pylist())
        where = "" if out.root.parent == Path(DATA).absolute() else f" --data {out.root.parent}"
        raise TooManyFailures(
            f"{out.stage}: {len(kinds)} of {planned} jobs failed, more than resources.max_failed_share = {max_share:g} "
            f"allows; what finished is stored. `python -m store failures{where}` lists them, with --full their "
            f"tracebacks. Mend the cause: `dvc repro` then tries again the {again} that came of the machine, and what "
            "has other params or inputs by then; `make retry` tries all again"
        )
