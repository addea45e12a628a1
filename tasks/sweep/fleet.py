"""The actors of a sweep: their queues of calls, their clocks, their number."""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from tasks.errors import SweepError
from tasks.sweep.actor import Site, Worker
from tasks.sweep.backlog import Attempt, Shelf, shelf_of
from tasks.sweep.cluster import Resources, actor_options, capacity
from tasks.sweep.jobs import Port
from tasks.sweep.policy import Failure

BATCH_S, BATCH_JOBS = 0.05, 128  # a call's jobs take about so long, and are at most so many
SHORT_S = 0.1  # jobs above it are handed out one by one: a queue would only make the sweep's end uneven
RECOUNT_S = 5.0  # how often the cluster is asked what it holds
MAX_FAILED_STARTS = 5  # in a row; then the environment of the workers is broken
NOWHERE = Site("", "", "")
What = Literal["start", "load", "job"]


@dataclass(eq=False)
class Call:
    """One call on an actor. Jobs carry their attempts, loads the one that they serve."""

    what: What
    ref: Any
    attempts: Sequence[Attempt] = ()


@dataclass(eq=False)
class Slot:
    """One actor and the calls that it has not answered; it works them off in order, so the first is what it does."""

    name: str
    actor: Any
    calls: deque[Call] = field(default_factory=deque)
    clock: float = field(default_factory=time.monotonic)  # when its first call began
    shelf: Shelf = ("", "")  # what it has loaded
    site: Site = NOWHERE
    job_seconds: float = float("inf")  # of one of its last jobs

    @property
    def up(self) -> bool:
        """Whether the actor has started."""
        return bool(self.site.actor)

    def send(self, what: What, attempts: Sequence[Attempt] = ()) -> None:
        """Queue a call."""
        if not self.calls:
            self.clock = time.monotonic()
        if what == "start":
            ref = self.actor.start.remote()
        elif what == "load":
            ref = self.actor.load.remote(attempts[0].job)
        else:
            ref = self.actor.run_all.remote([(one.job, one.divisor) for one in attempts], BATCH_S)
        self.calls.append(Call(what, ref, attempts))

    def answered(self, call: Call) -> None:
        """Strike a call off."""
        self.calls.remove(call)
        self.clock = time.monotonic()

    def takes(self, attempt: Attempt, max_in_flight: int) -> bool:
        """Whether the actor may be given this job now."""
        if not self.calls:
            return True
        if attempt.alone or self.calls[-1].what != "job" or any(c.attempts[0].alone for c in self.calls):
            return False
        return self.job_seconds < SHORT_S and len(self.calls) < max_in_flight

    def batch(self, waiting: int, actors: int) -> int:
        """How many of the waiting jobs to hand to it in one call: many where they are short, fewer towards the end."""
        share = -(-waiting // (2 * max(actors, 1)))
        return max(1, min(BATCH_JOBS, share, int(BATCH_S / max(self.job_seconds, 1e-9))))

    def overdue(self, resources: Resources) -> float | None:
        """The time limit that its present call has passed, in seconds; None where it has not."""
        if not self.calls:
            return None
        limits = {"job": resources.job_timeout_s, "load": resources.load_timeout_s, "start": None}
        limit = limits[self.calls[0].what]
        return limit if limit is not None and time.monotonic() - self.clock > limit else None


class Fleet:
    """As many actors as fit and are needed; dead ones are replaced, nodes that join are used."""

    def __init__(self, name: str, port: Port, resources: Resources) -> None:
        import ray

        self._ray = ray
        self._name = name
        self._resources = resources
        self._port = ray.put(of_worker(port))
        self._remote = ray.remote(Worker).options(**actor_options(resources))
        self._made = 0
        self._counted = float("-inf")
        self._fits = 0
        self._failed_starts = 0
        self._last_up = time.monotonic()
        self.slots: list[Slot] = []

    def __iter__(self) -> Iterator[Slot]:
        return iter(self.slots)

    @property
    def busy(self) -> int:
        """Jobs and loads that have been handed out."""
        return sum(len(call.attempts) for slot in self.slots for call in slot.calls)

    @property
    def size(self) -> int:
        """Actors that fit, as last counted."""
        return self._fits

    def serving(self) -> Counter[Shelf]:
        """How many actors have, or are loading, what each shelf needs."""
        loading = [shelf_of(c.attempts[0].job) for s in self.slots for c in s.calls if c.what == "load"]
        return Counter(loading) + Counter(s.shelf for s in self.slots if s.up)

    def top_up(self, waiting: int) -> None:
        """Start actors until as many live as fit and as there are jobs for. Raises SweepError where none comes up."""
        now = time.monotonic()
        if now - self._counted > RECOUNT_S:
            self._counted = now
            self._fits = min(capacity(self._resources), self._resources.actors or 2**31)
        while len(self.slots) < min(self._fits, waiting + self.busy):
            slot = Slot(f"{self._name}-{self._made}", self._new_actor())
            self._made += 1
            slot.send("start")
            self.slots.append(slot)
        if any(slot.up for slot in self.slots):
            self._last_up = now
        patience = 0.0 if self._fits == 0 and self._resources.address is None else self._resources.start_timeout_s
        if now - self._last_up > patience:
            raise SweepError(
                f"no actor came up in {patience:.0f} s: each needs {self._resources.needs}, the cluster has "
                f"{self._ray.cluster_resources()}; ask for less in resources, or add nodes"
            )

    def started(self, slot: Slot, site: Site) -> None:
        """Note where an actor runs."""
        slot.site = site
        self._failed_starts = 0

    def failed_start(self, failure: Failure) -> None:
        """Note that an actor did not come up. Raises SweepError when that goes on."""
        self._failed_starts += 1
        if self._failed_starts >= MAX_FAILED_STARTS or not failure.transient or "creation task" in failure.message:
            raise SweepError(
                f"workers do not start: {failure.type}: {failure.message}\n"
                "Expected the same environment and code on every node; see the traceback above for what is missing"
            )

    def drop(self, slot: Slot) -> None:
        """End an actor, whatever it does."""
        self._ray.kill(slot.actor, no_restart=True)
        self.slots.remove(slot)

    def close(self) -> None:
        """End all actors."""
        for slot in list(self.slots):
            self.drop(slot)

    def _new_actor(self) -> Any:
        return self._remote.remote(f"{self._name}-{self._made}", self._port, self._resources.threads, os.getcwd())


def of_worker(port: Port) -> Port:
    """The port as a worker has it: what asks the store and adds to it is the driver's, and need not be picklable."""
    return port._replace(missing=_driver_only, append=_driver_only)


def _driver_only(_: Sequence[Any]) -> NoReturn:
    raise AssertionError("a worker called missing or append, which are the driver's")
