"""Queue of the jobs to run: planned as a stream, without stored jobs, grouped by the model they need."""

from __future__ import annotations

import pickle
import zlib
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import length_hint
from typing import NamedTuple

import numpy as np

from tsfmscope.tasks.job import Job
from tsfmscope.tasks.sweep.placement import ActorResources

# Prefix of the names of inputs that a loader loads.
MODEL_INPUT = "model:"


class JobGroup(NamedTuple):
    """Job group: jobs that one loaded model serves, on actors of one kind."""

    # Resources of an actor of this kind.
    needs: ActorResources
    loader: str = ""
    group: str = ""
    # Inputs that are models. Jobs of one group name may differ in them.
    models: tuple[tuple[str, str], ...] = ()


def shelf_of(job: Job, needs: ActorResources) -> JobGroup:
    """Return the job group of a job. Jobs without a loader share one group per kind of actor."""
    if job.task.loader is None:
        return JobGroup(needs)
    models = tuple(one for one in sorted(job.inputs.items()) if one[0].startswith(MODEL_INPUT))
    return JobGroup(needs, job.task.loader, job.group, models)


@dataclass(eq=False)
class Attempt:
    """A job and its history in this sweep."""

    job: Job
    shelf: JobGroup
    # Number of failed attempts.
    attempts: int = 0
    # Number of times that its node disappeared while it ran.
    losses: int = 0
    # Divisor of the batch size.
    divisor: int = 1
    # Run it alone, because an actor died with it and other jobs in its queue: then it is certain
    # which job is the cause.
    alone: bool = False


class Digests:
    """Growing set of SHA-256 digests in a few sorted arrays.

    A million digests take 32 MB, a third of the memory of a set of bytes objects.
    """

    def __init__(self) -> None:
        # Arrays of type S32, each ascending, the longest first.
        self._runs: list[np.ndarray] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def add(self, digests: Sequence[bytes]) -> np.ndarray:
        """Add digests; return a boolean array that marks the first occurrence of each new one."""
        asked = np.frombuffer(b"".join(digests), "S32")
        ascending, first = np.unique(asked, return_index=True)
        fresh = np.ones(len(ascending), bool)
        for run in self._runs:
            places = np.minimum(np.searchsorted(run, ascending), len(run) - 1)
            fresh &= run[places] != ascending
        new = np.zeros(len(asked), bool)
        new[first[fresh]] = True
        if fresh.any():
            self._runs.append(ascending[fresh])
        while len(self._runs) > 1 and 2 * len(self._runs[-1]) > len(self._runs[-2]):
            self._runs[-2:] = [np.sort(np.concatenate(self._runs[-2:]), kind="stable")]
        return new


class JobQueue:
    """Waiting jobs of a sweep.

    `chunk` jobs, and those that were put back, are kept as objects in job groups. Every other planned job
    takes 32 bytes for its digest, and about 50 bytes more if it was planned ahead and is not stored
    (bench/sweep.py).
    """

    def __init__(
        self,
        jobs: Iterable[Job],
        missing: Callable[[Sequence[str]], Sequence[str]],
        chunk: int,
        needs_of: Callable[[Job], ActorResources],
    ) -> None:
        self._jobs = iter(jobs)
        self._missing = missing
        self._chunk = chunk
        self._needs_of = needs_of
        self._hint = length_hint(jobs)
        self._seen = Digests()
        # Chunks planned ahead: number of jobs, and their compressed pickle.
        self._packed: deque[tuple[int, bytes]] = deque()
        self._shelves: dict[JobGroup, deque[Attempt]] = {}
        # Number of jobs in job groups, by the kind of actor that they need.
        self.ready: Counter[ActorResources] = Counter()
        self._shelved = self._waiting = 0
        # Whether every job has been planned.
        self.complete = False
        self.reused = 0

    def __len__(self) -> int:
        return self._waiting

    @property
    def planned(self) -> int:
        """Return the number of planned jobs; until planning is complete, the length of `jobs` if known."""
        return len(self._seen) if self.complete else max(len(self._seen), self._hint)

    @property
    def counted(self) -> bool:
        """Return whether `planned` is the total number of jobs."""
        return self.complete or self._hint > 0

    def refill(self, wanted: int) -> None:
        """Plan chunk after chunk until `wanted` jobs are ready or none is left. A repeated job runs once."""
        while self._shelved < wanted and (self._packed or not self.complete):
            if self._packed:
                count, packed = self._packed.popleft()
                self._waiting -= count
                found = pickle.loads(zlib.decompress(packed))
            else:
                found = self._plan()
            for job in found:
                shelf = shelf_of(job, self._needs_of(job))
                self._shelves.setdefault(shelf, deque()).append(Attempt(job, shelf))
                self.ready[shelf.needs] += 1
            self._shelved += len(found)
            self._waiting += len(found)

    def plan_ahead(self) -> None:
        """Plan one more chunk, if any, and keep it compressed; so the number of jobs is known soon."""
        if not self.complete and (found := self._plan()):
            self._packed.append((len(found), zlib.compress(pickle.dumps(found), 1)))
            self._waiting += len(found)

    def _plan(self) -> list[Job]:
        """Return the jobs of the next chunk that are neither stored nor already planned."""
        chunk = list(islice(self._jobs, self._chunk))
        self.complete = not chunk
        new = self._seen.add([bytes.fromhex(job.key) for job in chunk])
        fresh = {job.key: job for job, is_new in zip(chunk, new, strict=True) if is_new}
        missing = self._missing(list(fresh)) if fresh else ()
        self.reused += len(fresh) - len(missing)
        return [fresh[key] for key in missing]

    def back(self, attempt: Attempt) -> None:
        """Put a job back as the next one of its group."""
        self._shelves.setdefault(attempt.shelf, deque()).appendleft(attempt)
        self.ready[attempt.shelf.needs] += 1
        self._shelved += 1
        self._waiting += 1

    def peek(self, shelf: JobGroup) -> Attempt | None:
        """Return the next job of the group without removing it; None where the group is empty."""
        return self._shelves[shelf][0] if shelf in self._shelves else None

    def pop(self, shelf: JobGroup) -> Attempt:
        """Remove and return the next job of the group."""
        attempts = self._shelves[shelf]
        attempt = attempts.popleft()
        self.ready[shelf.needs] -= 1
        self._shelved -= 1
        self._waiting -= 1
        if not attempts:
            del self._shelves[shelf]
        return attempt

    def shelves(self, needs: ActorResources) -> list[JobGroup]:
        """Return the job groups whose jobs need actors of this kind."""
        return [shelf for shelf in self._shelves if shelf.needs == needs]

    def choose(
        self, served: Mapping[JobGroup, int], needs: ActorResources, barred: Collection[JobGroup] = ()
    ) -> JobGroup | None:
        """Choose the job group for an idle actor of this kind.

        The first group that no actor serves is chosen, else the group with the longest queue per actor; None
        where there is no job.

        barred: groups that the actor should not take from.
        """
        if not self.ready[needs]:
            return None
        mine = [shelf for shelf in self.shelves(needs) if shelf not in barred]
        if not mine:
            return None
        unserved = next((shelf for shelf in mine if not served.get(shelf)), None)
        return unserved or max(mine, key=lambda shelf: len(self._shelves[shelf]) / served[shelf])
