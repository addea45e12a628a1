"""What is still to run: jobs planned as a stream, minus the stored ones, shelved by the model that they need."""

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

from tasks.sweep.jobs import Job
from tasks.sweep.placement import Needs

MODEL_INPUT = "model:"  # how the name of an input begins that a loader loads


class Shelf(NamedTuple):
    """Jobs that one loaded model serves, on actors of one kind."""

    needs: Needs  # of an actor
    loader: str = ""
    group: str = ""
    models: tuple[tuple[str, str], ...] = ()  # the inputs that are models: jobs of one group may differ in them


def shelf_of(job: Job, needs: Needs) -> Shelf:
    """The shelf of a job; jobs without a loader share one of each kind of actor."""
    if job.task.loader is None:
        return Shelf(needs)
    models = tuple(one for one in sorted(job.inputs.items()) if one[0].startswith(MODEL_INPUT))
    return Shelf(needs, job.task.loader, job.group, models)


@dataclass(eq=False)
class Attempt:
    """A job and how it has fared so far."""

    job: Job
    shelf: Shelf
    attempts: int = 0  # failed ones
    losses: int = 0  # times that its node went away under it
    divisor: int = 1  # of the batch
    alone: bool = False  # an actor died with it and others in its queue: run it alone, so that blame is sure


class Digests:
    """A growing set of SHA-256 digests in few sorted arrays: a million take 32 MB, a third of a set of bytes."""

    def __init__(self) -> None:
        self._runs: list[np.ndarray] = []  # S32, each ascending, the longest first

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def add(self, digests: Sequence[bytes]) -> np.ndarray:
        """Add digests; boolean array: which of them were new, each at its first place."""
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


class Backlog:
    """The waiting jobs. `chunk` of them, and those that failed, stand on shelves. Of the others there is the digest, 32
    bytes, and where they were planned ahead and are not stored, some 50 bytes more (bench/sweep.py).
    """

    def __init__(
        self,
        jobs: Iterable[Job],
        missing: Callable[[Sequence[str]], Sequence[str]],
        chunk: int,
        needs_of: Callable[[Job], Needs],
    ) -> None:
        self._jobs = iter(jobs)
        self._missing = missing
        self._chunk = chunk
        self._needs_of = needs_of
        self._hint = length_hint(jobs)
        self._seen = Digests()
        self._packed: deque[tuple[int, bytes]] = deque()  # planned ahead: how many jobs, and their pickle, compressed
        self._shelves: dict[Shelf, deque[Attempt]] = {}
        self.ready: Counter[Needs] = Counter()  # jobs that stand on shelves, by the kind of actor that they need
        self._shelved = self._waiting = 0
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
        """Plan chunk after chunk until `wanted` jobs stand ready or none is left. A job named twice runs once."""
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
        """Plan another chunk, where one is left, and put it by; so the number of jobs is soon known."""
        if not self.complete and (found := self._plan()):
            self._packed.append((len(found), zlib.compress(pickle.dumps(found), 1)))
            self._waiting += len(found)

    def _plan(self) -> list[Job]:
        """The jobs of the next chunk that are neither stored nor planned already."""
        chunk = list(islice(self._jobs, self._chunk))
        self.complete = not chunk
        new = self._seen.add([bytes.fromhex(job.key) for job in chunk])
        fresh = {job.key: job for job, is_new in zip(chunk, new, strict=True) if is_new}
        missing = self._missing(list(fresh)) if fresh else ()
        self.reused += len(fresh) - len(missing)
        return [fresh[key] for key in missing]

    def back(self, attempt: Attempt) -> None:
        """Put a job back, to be the next of its shelf."""
        self._shelves.setdefault(attempt.shelf, deque()).appendleft(attempt)
        self.ready[attempt.shelf.needs] += 1
        self._shelved += 1
        self._waiting += 1

    def peek(self, shelf: Shelf) -> Attempt | None:
        """The next job of the shelf, left where it is."""
        return self._shelves[shelf][0] if shelf in self._shelves else None

    def pop(self, shelf: Shelf) -> Attempt:
        """The next job of the shelf, taken out."""
        attempts = self._shelves[shelf]
        attempt = attempts.popleft()
        self.ready[shelf.needs] -= 1
        self._shelved -= 1
        self._waiting -= 1
        if not attempts:
            del self._shelves[shelf]
        return attempt

    def shelves(self, needs: Needs) -> list[Shelf]:
        """Those whose jobs need such an actor."""
        return [shelf for shelf in self._shelves if shelf.needs == needs]

    def choose(self, served: Mapping[Shelf, int], needs: Needs, barred: Collection[Shelf] = ()) -> Shelf | None:
        """The shelf for an idle actor of this kind: the first that none serves, else the longest queue an actor.

        barred: shelves that it should not take from.
        """
        if not self.ready[needs]:
            return None
        mine = [shelf for shelf in self.shelves(needs) if shelf not in barred]
        if not mine:
            return None
        unserved = next((shelf for shelf in mine if not served.get(shelf)), None)
        return unserved or max(mine, key=lambda shelf: len(self._shelves[shelf]) / served[shelf])
