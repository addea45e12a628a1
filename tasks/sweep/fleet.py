"""The actors of a sweep: their queues of calls, their clocks, their number."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from tasks.errors import SweepError
from tasks.sweep.actor import Setting, Site, Worker
from tasks.sweep.backlog import Attempt, Backlog, Shelf
from tasks.sweep.cluster import Resources, actor_options
from tasks.sweep.environments import Maker
from tasks.sweep.jobs import Port
from tasks.sweep.nodes import Nodes, Request
from tasks.sweep.placement import Needs, allot, fits, within
from tasks.sweep.policy import Failure

BATCH_S, BATCH_JOBS = 0.05, 128  # a call's jobs take about so long, and are at most so many
SHORT_S = 0.1  # jobs above it are handed out one by one: a queue would only make the sweep's end uneven
RECOUNT_S = 1.0  # how often the cluster is asked what it holds
MAX_FAILED_STARTS = 5  # in a row; then the environment of the workers is broken
NOWHERE = Site("", "", "")
What = Literal["start", "load", "job"]


@dataclass(eq=False)
class Call:
    """One call on an actor. Jobs carry their attempts, loads the one that they serve."""

    what: What
    ref: Any
    attempts: Sequence[Attempt] = ()
    sent: float = field(default_factory=time.monotonic)


@dataclass(eq=False)
class Slot:
    """One actor and the calls that it has not answered; it works them off in order, so the first is what it does."""

    name: str
    actor: Any
    shelf: Shelf  # what it serves: what it has loaded, or is started for
    calls: deque[Call] = field(default_factory=deque)
    clock: float = field(default_factory=time.monotonic)  # when its first call began
    loaded: Shelf | None = None
    site: Site = NOWHERE
    job_seconds: float = float("inf")  # of one of its last jobs
    leaves: float | None = None  # it takes no more jobs, and what it does is handed back at this time
    _run: Any = None  # the actor's method, by a name that says the model, for ray's dashboard and timeline
    _named: str | None = None

    @property
    def up(self) -> bool:
        """Whether the actor has started."""
        return bool(self.site.actor)

    @property
    def open(self) -> bool:
        """Whether it is up and may be given jobs."""
        return self.up and self.leaves is None and not self.site.unfit

    def send(self, what: What, attempts: Sequence[Attempt] = ()) -> None:
        """Queue a call."""
        if not self.calls:
            self.clock = time.monotonic()
        if what == "start":
            ref = self.actor.start.remote()
        elif what == "load":
            ref = self.actor.load.options(name=f"load {attempts[0].shelf.group}").remote(attempts[0].job)
        else:
            if self._named != attempts[0].shelf.group:
                self._named = attempts[0].shelf.group
                self._run = self.actor.run_all.options(name=f"run {self._named}".strip())
            jobs = [(one.job, one.divisor) for one in attempts]
            ref = self._run.remote(jobs, BATCH_S, queued=bool(self.calls))
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

    def must_load(self, attempt: Attempt) -> bool:
        """Whether the actor must load something before it can do the job."""
        return attempt.job.task.loader is not None and attempt.shelf != self.loaded

    def batch(self, waiting: int, actors: int) -> int:
        """How many of the waiting jobs to hand to it in one call: many where they are short, fewer towards the end."""
        share = -(-waiting // (2 * max(actors, 1)))
        return max(1, min(BATCH_JOBS, share, int(BATCH_S / max(self.job_seconds, 1e-9))))

    def overdue(self, resources: Resources) -> TimeoutError | None:
        """What is wrong where its present call has passed its time limit."""
        if not self.calls:
            return None
        what = self.calls[0].what
        limit = {"job": resources.job_timeout_s, "load": resources.load_timeout_s, "start": None}[what]
        if limit is None or time.monotonic() - self.clock <= limit:
            return None
        return TimeoutError(f"{what} took more than {limit:g} s; raise resources.{what}_timeout_s if it may")


class Fleet:
    """As many actors of each kind as fit and are needed; dead ones are replaced, nodes come and go."""

    def __init__(self, name: str, port: Port, resources: Resources) -> None:
        import ray

        self._ray = ray
        self._name = name
        self._run = uuid.uuid4().hex[:6]  # ray wants the names of its actors to differ, of past sweeps too
        self._resources = resources
        self._port = ray.put(of_worker(port))
        self._made = 0
        self._counted = float("-inf")
        self._targets: dict[Needs, int] = {}
        self._failed_starts = 0
        self._absent: dict[Needs, float] = {}  # kinds that no actor is up of, though jobs wait, and since when
        self._request = Request(of_cluster=resources.address is not None)
        self._maker = Maker()
        self.nodes = Nodes()
        self.slots: list[Slot] = []

    def __iter__(self) -> Iterator[Slot]:
        return iter(self.slots)

    @property
    def busy(self) -> int:
        """Jobs and loads that have been handed out."""
        return sum(len(call.attempts) for slot in self.slots for call in slot.calls)

    @property
    def size(self) -> int:
        """Actors that fit and are needed, as last counted."""
        return sum(self._targets.values())

    def serving(self) -> Counter[Shelf]:
        """How many actors have, are loading, or are started for what each shelf needs."""
        loading = [call.attempts[0].shelf for s in self.slots for call in s.calls if call.what == "load"]
        return Counter(loading) + Counter(slot.shelf for slot in self.slots if slot.leaves is None)

    def top_up(self, backlog: Backlog) -> None:
        """Start actors until as many live as fit and as there are jobs for. Raises SweepError where none comes up."""
        now = time.monotonic()
        if now - self._counted > RECOUNT_S or not self._targets.keys() >= (+backlog.ready).keys():
            self._counted = now
            self.nodes.look()
            self._give_notice()
            wanted = self._wanted(backlog)
            self._targets = allot(wanted, self.nodes.open, self._resources.actors)
            self._request.make(within(wanted, self._resources.actors) if self._resources.actors else {})
            self._make_room()
            self._check_starts(backlog, now)
        staying = self._staying()
        short = [needs for needs, target in self._targets.items() if staying[needs] < target]
        wanted = self._wanted(backlog) if short else {}
        for needs in short:
            for _ in range(min(self._targets[needs], wanted.get(needs, 0)) - staying[needs]):
                self._start(needs, backlog)

    def _wanted(self, backlog: Backlog) -> dict[Needs, int]:
        """Actors that could be kept busy, by kind."""
        wanted = Counter(backlog.ready)
        for slot in self.slots:
            wanted[slot.shelf.needs] += sum(len(call.attempts) for call in slot.calls) if slot.open else 0
        return {needs: count for needs, count in (+wanted).items() if self._has_environment(needs)}

    def _has_environment(self, needs: Needs) -> bool:
        """Whether actors of this kind can start; an environment that is not there is made meanwhile."""
        return needs.environment is None or self._maker.ready(needs.environment)

    def unmade(self, backlog: Backlog) -> Iterator[tuple[Needs, Failure]]:
        """The kinds of actor that jobs wait for in vain, with why their environment could not be made."""
        for needs in list(+backlog.ready):
            if needs.environment is not None and (failure := self._maker.failure(needs.environment)):
                yield needs, failure

    def _staying(self) -> Counter[Needs]:
        return Counter(slot.shelf.needs for slot in self.slots if slot.leaves is None)

    def _give_notice(self) -> None:
        for slot in self.slots:
            if slot.leaves is None and slot.site.node_id in self.nodes.leaving:
                slot.leaves = self.nodes.leaving[slot.site.node_id]

    def _make_room(self) -> None:
        """End idle actors of which there are too many, where another kind has too few."""
        staying = self._staying()
        if all(staying[needs] >= target for needs, target in self._targets.items()):
            return
        for slot in self.slots[::-1]:
            needs = slot.shelf.needs
            if staying[needs] > self._targets.get(needs, 0) and slot.leaves is None and not (slot.up and slot.calls):
                self.drop(slot)
                staying[needs] -= 1

    def _check_starts(self, backlog: Backlog, now: float) -> None:
        """Raises SweepError where a kind of actor that jobs wait for does not come up."""
        up = {slot.shelf.needs for slot in self.slots if slot.up and not slot.site.unfit}
        lives = Counter(slot.shelf.needs for slot in self.slots)
        since, self._absent = self._absent, {}
        for needs in +backlog.ready:
            fit = fits(needs, self.nodes.open)
            held = any(count > self._targets.get(kind, 0) for kind, count in lives.items() if kind != needs)
            if needs in up or (fit and (held or not self._targets.get(needs))):  # others end first, or its environment
                continue
            self._absent[needs] = since.get(needs, now)
            patience = 0.0 if fit == 0 and self._resources.address is None else self._resources.start_timeout_s
            if now - self._absent[needs] >= patience:
                raise SweepError(
                    f"no actor came up in {patience:.0f} s: each needs {needs}, the cluster has "
                    f"{self._ray.cluster_resources()}; ask for less in resources, or add nodes"
                )

    def _start(self, needs: Needs, backlog: Backlog) -> None:
        """A new actor. Ray knows it by the model that it is started for, which it may change for another later."""
        shelf = backlog.choose(self.serving(), needs) or Shelf(needs)
        name = f"{self._name}-{self._made}"
        known = f"{shelf.group} {name} {self._run}".strip()
        remote = self._ray.remote(Worker).options(name=known, **actor_options(needs))
        own = needs.environment
        setting = Setting(
            needs.threads,
            os.getcwd(),
            needs.devices,
            self._resources.notice_seconds,
            environment=own.digest if own else "",
            prefix=str(own.folder) if own else None,
            processes=needs.shares,
        )
        slot = Slot(name, remote.remote(name, self._port, setting), shelf)
        self._made += 1
        slot.send("start")
        self.slots.append(slot)

    def loading(self, node: str | None = None) -> set[Shelf]:
        """What actors are loading for, on one node or any."""
        slots = [slot for slot in self.slots if node in (None, slot.site.node_id)]
        return {call.attempts[0].shelf for slot in slots for call in slot.calls if call.what == "load"}

    def able(self, shelf: Shelf) -> set[str]:
        """The nodes whose actors could load for a shelf; none where one has it, loads it or is yet to come up."""
        mine = [slot for slot in self.slots if slot.shelf.needs == shelf.needs and slot.leaves is None]
        late = time.monotonic() - self._resources.start_timeout_s  # an actor that waits so long may never come up
        if shelf in self.loading() or any((not s.up and s.clock > late) or s.loaded == shelf for s in mine):
            return set()
        return {slot.site.node_id for slot in mine if slot.open}

    def started(self, slot: Slot, site: Site) -> None:
        """Note where an actor runs. SweepError where no job can run there, nor on any other actor.

        An unfit actor is kept, without jobs: it holds its place, where Ray would else put the next.
        """
        slot.site = site
        self._failed_starts = 0
        if site.unfit and all(one.site.unfit for one in self.slots):
            raise SweepError(f"workers do not start: {site.unfit}")

    def failed_start(self, failure: Failure, began: float) -> None:
        """Note that an actor, asked for at a time of time.monotonic(), did not come up. SweepError when that goes on.

        Not where a node has gone meanwhile: it may have been the actor's, which had yet to say where it is.
        """
        own = not failure.transient or "creation task" in failure.message
        self._failed_starts += own or not self.nodes.shaken(began)
        if self._failed_starts >= MAX_FAILED_STARTS or own:
            raise SweepError(
                f"workers do not start: {failure.type}: {failure.message}\n"
                "Expected the same environment and code on every node; see the traceback above for what is missing"
            )

    def drop(self, slot: Slot) -> None:
        """End an actor, whatever it does."""
        self._ray.kill(slot.actor, no_restart=True)
        self.slots.remove(slot)
        self._counted = float("-inf")

    def close(self) -> None:
        """End all actors, and the making of environments."""
        self._maker.close()
        for slot in list(self.slots):
            self.drop(slot)
        with contextlib.suppress(Exception):  # a cluster that has gone may not hide why
            self._request.make({})


def of_worker(port: Port) -> Port:
    """The port as a worker has it: what asks the store and adds to it is the driver's, and need not be picklable."""
    return port._replace(missing=_driver_only, append=_driver_only)


def _driver_only(_: Sequence[Any]) -> NoReturn:
    raise AssertionError("a worker called missing or append, which are the driver's")
