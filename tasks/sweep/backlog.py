"""What is still to run: jobs planned as a stream, minus the stored ones, shelved by the model that they need."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import length_hint

from tasks.sweep.jobs import Job

Shelf = tuple[str, str]  # loader, group: what one loaded model serves


def shelf_of(job: Job) -> Shelf:
    """The shelf of a job; jobs without a loader share one."""
    return (job.task.loader, job.group) if job.task.loader else ("", "")


@dataclass(eq=False)
class Attempt:
    """A job and how it has fared so far."""

    job: Job
    attempts: int = 0  # failed ones
    divisor: int = 1  # of the batch
    alone: bool = False  # an actor died with it and others in its queue: run it alone, so that blame is sure


class Backlog:
    """The waiting jobs. Only `chunk` of them, and those that failed, are in memory; of the others, their keys."""

    def __init__(self, jobs: Iterable[Job], missing: Callable[[Sequence[str]], Sequence[str]], chunk: int) -> None:
        self._jobs = iter(jobs)
        self._missing = missing
        self._chunk = chunk
        self._hint = length_hint(jobs)
        self._seen: set[bytes] = set()
        self._shelves: dict[Shelf, deque[Attempt]] = {}
        self._waiting = 0
        self.complete = False  # every job has been planned
        self.reused = 0

    def __len__(self) -> int:
        return self._waiting

    @property
    def planned(self) -> int:
        """Jobs planned; before planning is complete, the length of `jobs` where it has one."""
        return len(self._seen) if self.complete else max(len(self._seen), self._hint)

    @property
    def counted(self) -> bool:
        """Whether `planned` is the whole number of jobs."""
        return self.complete or self._hint > 0

    def refill(self, wanted: int) -> None:
        """Plan chunk after chunk until at least `wanted` jobs wait or none is left. A job named twice runs once."""
        while self._waiting < wanted and not self.complete:
            chunk = list(islice(self._jobs, self._chunk))
            self.complete = not chunk
            fresh: dict[str, Job] = {}
            for job in chunk:
                digest = bytes.fromhex(job.key)
                if digest not in self._seen:
                    self._seen.add(digest)
                    fresh[job.key] = job
            missing = self._missing(list(fresh)) if fresh else ()
            self.reused += len(fresh) - len(missing)
            for key in missing:
                self._shelves.setdefault(shelf_of(fresh[key]), deque()).append(Attempt(fresh[key]))
            self._waiting += len(missing)

    def back(self, attempt: Attempt) -> None:
        """Put a job back, to be the next of its shelf."""
        self._shelves.setdefault(shelf_of(attempt.job), deque()).appendleft(attempt)
        self._waiting += 1

    def peek(self, shelf: Shelf) -> Attempt | None:
        """The next job of the shelf, left where it is."""
        return self._shelves[shelf][0] if shelf in self._shelves else None

    def pop(self, shelf: Shelf) -> Attempt:
        """The next job of the shelf, taken out."""
        attempts = self._shelves[shelf]
        attempt = attempts.popleft()
        self._waiting -= 1
        if not attempts:
            del self._shelves[shelf]
        return attempt

    def choose(self, served: Mapping[Shelf, int]) -> Shelf | None:
        """The shelf for an actor without work: the first that no actor serves, else the longest queue an actor."""
        if not self._shelves:
            return None
        for shelf in self._shelves:
            if not served.get(shelf):
                return shelf
        return max(self._shelves, key=lambda shelf: len(self._shelves[shelf]) / served[shelf])
