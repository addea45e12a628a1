"""Records, the answers of jobs on their way to the store, and the count of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tasks.errors import SweepError
from tasks.sweep.actor import Outcome, Site
from tasks.sweep.jobs import Job
from tasks.sweep.policy import FATAL_ERRNO, Failure

MAX_BUFFERED = 10_000  # records; bounds the driver's memory where jobs end faster than the clock flushes


@dataclass(frozen=True)
class Summary:
    """What a sweep did. Counts are jobs; failures maps error types to counts; loads and restarts are of actors.

    handed_back: times that a job was begun again elsewhere because its actor or node had to go.
    """

    planned: int
    reused: int
    done: int
    failed: int
    seconds: float
    failures: Mapping[str, int]
    loads: int = 0
    restarts: int = 0
    handed_back: int = 0


def record(job: Job, outcome: Outcome, attempts: int) -> dict[str, Any]:
    """What `Port.append` gets for one job.

    key, task, spec (canonical JSON), table; rows, empty on failure; error, None on success, else type, message,
    traceback, attempts, transient (the next run tries again); timing: seconds, load_seconds, actor, node, device,
    started (UTC), tokens_per_s.
    """
    failure = outcome.failure
    error = failure and {
        "type": failure.type,
        "message": failure.message,
        "traceback": failure.traceback,
        "attempts": attempts,
        "transient": failure.of_machine,
    }
    return {
        "key": job.key,
        "task": job.task.name,
        "spec": job.spec_json,
        "table": job.task.table or job.task.name,
        "rows": [] if failure else list(outcome.rows),
        "error": error,
        "timing": dict(outcome.timing),
    }


def unanswered(failure: Failure, site: Site, *, seconds: float) -> Outcome:
    """The outcome of a job whose actor could not answer, with what the driver knows of its time and place."""
    timing = {
        "seconds": seconds,
        "load_seconds": 0.0,
        "actor": site.actor,
        "node": site.node,
        "device": site.device,
        "started": datetime.now(UTC) - timedelta(seconds=seconds),
        "tokens_per_s": None,
    }
    return Outcome([], failure, timing)


class Ledger:
    """Collects records and hands them to the store every few seconds."""

    def __init__(self, append: Callable[[Sequence[Mapping[str, Any]]], None], flush_seconds: float) -> None:
        self._append = append
        self._flush_seconds = flush_seconds
        self._buffer: list[dict[str, Any]] = []
        self._flushed = time.monotonic()
        self.done = 0
        self.failures: Counter[str] = Counter()

    @property
    def failed(self) -> int:
        """Jobs recorded as failures."""
        return self.failures.total()

    def add(self, job: Job, outcome: Outcome, attempts: int) -> None:
        """Take in one finished job."""
        self._buffer.append(record(job, outcome, attempts))
        if outcome.failure is None:
            self.done += 1
        else:
            self.failures[outcome.failure.type] += 1

    def flush(self, *, force: bool = False) -> None:
        """Append what has gathered, if `flush_seconds` have passed, or memory says so, or `force`."""
        now = time.monotonic()
        if not force and now - self._flushed < self._flush_seconds and len(self._buffer) < MAX_BUFFERED:
            return
        self._flushed = now
        if not self._buffer:
            return
        try:
            self._append(self._buffer)
        except OSError as error:
            if error.errno not in FATAL_ERRNO:
                raise
            raise SweepError(f"{error}\n{len(self._buffer)} finished jobs could not be stored and run again") from error
        self._buffer = []  # after append: what could not be stored is tried again at the last flush
