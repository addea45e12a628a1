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

from tasks.job import Job
from tasks.sweep.placement import ActorResources

# Prefix of the names of inputs that a loader loads.
MODEL_INPUT = "model:"


class JobGroup(NamedTuple):
    """Job group: jobs that one loaded model serves, on actors of one kind."""

    # Resources of an actor of this kind.
    needs: ActorResources
    loader: str = ""
    name: str = ""
    # Inputs that are models. Jobs of one group name may differ in them.
    models: tuple[tuple[str, str], ...] = ()


def group_of(job: Job, needs: ActorResources) -> JobGroup:
    """Return the job group of a job. Jobs without a loader share one group per kind of actor."""
    if job.task.loader is None:
        return JobGroup(needs)
    models = tuple(item for item in sorted(job.inputs.items()) if item[0].startswith(MODEL_INPUT))
    return JobGroup(needs, job.task.loader, job.group, models)


@dataclass(eq=False)
class Attempt:
    """A job and its history in this sweep."""

    job: Job
    group: JobGroup
    # Number of failed attempts.
    attempts: int = 0
    # Number of times that its node disappeared while it ran.
    losses: int = 0
    # Divisor of the batch size.
    divisor: int = 1
    # Run it alone, because an actor died with it and other jobs in its queue: then it is certain
    # which job is the cause.
    alone: bool = False


class JobQueue:
    """Waiting jobs of a sweep.

    Up to `chunk` jobs, and jobs that were put back, are objects in job groups. Of every other planned job the
    key is kept, and its compressed spec if it was planned ahead and is not stored.

    find_missing: keys -> keys that are not stored, in the same order. needs_of: job -> resources of its actor.
    """

    def __init__(
        self,
        jobs: Iterable[Job],
        find_missing: Callable[[Sequence[str]], Sequence[str]],
        chunk: int,
        needs_of: Callable[[Job], ActorResources],
    ) -> None:
        self._jobs = iter(jobs)
        self._find_missing = find_missing
        self._chunk = chunk
        self._needs_of = needs_of
        self._hint = length_hint(jobs)
        self._planned_keys: set[str] = set()
        # Chunks planned ahead: number of jobs, and their compressed pickle.
        self._packed_chunks: deque[tuple[int, bytes]] = deque()
        self._groups: dict[JobGroup, deque[Attempt]] = {}
        # Number of jobs in job groups, by the kind of actor that they need.
        self.ready: Counter[ActorResources] = Counter()
        self._n_ready = self._n_waiting = 0
        # Whether every job has been planned.
        self.is_complete = False
        self.n_reused = 0

    def __len__(self) -> int:
        return self._n_waiting

    @property
    def n_planned(self) -> int:
        """Return the number of planned jobs; until planning is complete, the length of `jobs` if known."""
        return len(self._planned_keys) if self.is_complete else max(len(self._planned_keys), self._hint)

    @property
    def is_total_known(self) -> bool:
        """Return whether `planned` is the total number of jobs."""
        return self.is_complete or self._hint > 0

    def refill(self, count: int) -> None:
        """Plan chunks until `count` jobs are ready or none is left. A repeated job runs once."""
        while self._n_ready < count and (self._packed_chunks or not self.is_complete):
            if self._packed_chunks:
                count, packed = self._packed_chunks.popleft()
                self._n_waiting -= count
                chunk = pickle.loads(zlib.decompress(packed))
            else:
                chunk = self._plan()
            for job in chunk:
                group = group_of(job, self._needs_of(job))
                self._groups.setdefault(group, deque()).append(Attempt(job, group))
                self.ready[group.needs] += 1
            self._n_ready += len(chunk)
            self._n_waiting += len(chunk)

    def plan_ahead(self) -> None:
        """Plan one more chunk, if any, and keep it compressed, so that the number of jobs is known early."""
        if not self.is_complete and (chunk := self._plan()):
            self._packed_chunks.append((len(chunk), zlib.compress(pickle.dumps(chunk), 1)))
            self._n_waiting += len(chunk)

    def _plan(self) -> list[Job]:
        """Return the jobs of the next chunk that are neither stored nor already planned."""
        chunk = list(islice(self._jobs, self._chunk))
        self.is_complete = not chunk
        fresh: dict[str, Job] = {}
        for job in chunk:
            if job.key not in self._planned_keys:
                fresh.setdefault(job.key, job)
        self._planned_keys.update(fresh)
        missing = self._find_missing(list(fresh)) if fresh else ()
        self.n_reused += len(fresh) - len(missing)
        return [fresh[key] for key in missing]

    def put_back(self, attempt: Attempt) -> None:
        """Put a job back as the next one of its group."""
        self._groups.setdefault(attempt.group, deque()).appendleft(attempt)
        self.ready[attempt.group.needs] += 1
        self._n_ready += 1
        self._n_waiting += 1

    def peek(self, group: JobGroup) -> Attempt | None:
        """Return the next job of the group without removing it; None where the group is empty."""
        return self._groups[group][0] if group in self._groups else None

    def pop(self, group: JobGroup) -> Attempt:
        """Remove and return the next job of the group."""
        attempts = self._groups[group]
        attempt = attempts.popleft()
        self.ready[group.needs] -= 1
        self._n_ready -= 1
        self._n_waiting -= 1
        if not attempts:
            del self._groups[group]
        return attempt

    def choose(
        self, actors: Mapping[JobGroup, int], needs: ActorResources, excluded: Collection[JobGroup] = ()
    ) -> JobGroup | None:
        """Choose the job group for an idle actor of this kind.

        The first group that no actor serves is chosen, else the group with the longest queue per actor; None
        where there is no job.

        actors: number of actors per job group. excluded: groups that the actor should not take from.
        """
        if not self.ready[needs]:
            return None
        candidates = [group for group in self._groups if group.needs == needs and group not in excluded]
        if not candidates:
            return None
        unserved = next((group for group in candidates if not actors.get(group)), None)
        return unserved or max(candidates, key=lambda group: len(self._groups[group]) / actors[group])
