"""Records of finished jobs, buffered for the store, and their counts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tasks.job import Job
from tasks.sweep.actor import Outcome, WorkerLocation
from tasks.sweep.policy import FATAL_ERRNO, Failure
from tsfmscope.errors import SweepError

# Largest number of buffered records. It bounds the driver's memory where jobs end faster than the
# timer flushes.
MAX_BUFFERED = 10_000


@dataclass(frozen=True)
class Summary:
    """Counts of a finished sweep.

    planned, reused, done and failed count jobs; failures maps error types to counts; loads counts successful
    loads; restarts counts actors that ended early, because of a failure or because their node had to leave;
    handed_back counts how often a job was put back because its actor or node had to end.
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
    """Build the record of one job for `StoreCallbacks.append`.

    Keys: key, task, spec (canonical JSON), table; rows, empty on failure; error, None on success, else type,
    message, traceback, attempts, transient (the next run tries again); timing: seconds, load_seconds, actor,
    node, device, started (UTC), tokens_per_s.
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


def outcome_without_answer(failure: Failure, location: WorkerLocation, *, seconds: float) -> Outcome:
    """Build the outcome of a job whose actor could not answer; its timing comes from the driver."""
    timing = {
        "seconds": seconds,
        "load_seconds": 0.0,
        "actor": location.actor,
        "node": location.node,
        "device": location.device,
        "started": datetime.now(UTC) - timedelta(seconds=seconds),
        "tokens_per_s": None,
    }
    return Outcome([], failure, timing)


class Ledger:
    """Buffer of records, handed to the store every few seconds."""

    def __init__(self, append: Callable[[Sequence[Mapping[str, Any]]], None], flush_seconds: float) -> None:
        self._append = append
        self._flush_seconds = flush_seconds
        self._buffer: list[dict[str, Any]] = []
        self._flushed_at = time.monotonic()
        self.done = 0
        self.failures: Counter[str] = Counter()

    @property
    def failed(self) -> int:
        """Return the number of jobs recorded as failures."""
        return self.failures.total()

    def add(self, job: Job, outcome: Outcome, attempts: int) -> None:
        """Add the record of one finished job."""
        self._buffer.append(record(job, outcome, attempts))
        if outcome.failure is None:
            self.done += 1
        else:
            self.failures[outcome.failure.type] += 1

    def flush(self, *, force: bool = False) -> None:
        """Append the buffered records if `flush_seconds` have passed, the buffer is full, or `force` is set.

        Raises:
            SweepError: the store has no disk space or quota left, or is read-only.
        """
        now = time.monotonic()
        if not force and now - self._flushed_at < self._flush_seconds and len(self._buffer) < MAX_BUFFERED:
            return
        self._flushed_at = now
        if not self._buffer:
            return
        try:
            self._append(self._buffer)
        except OSError as error:
            if error.errno not in FATAL_ERRNO:
                raise
            raise SweepError(f"{error}\n{len(self._buffer)} finished jobs could not be stored and run again") from error
        # Emptied after append only: records that could not be stored are tried again at the last
        # flush.
        self._buffer = []
