"""Pool of a sweep's actors: their queues of calls, their time limits, their number."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from tsfmscope.tasks.errors import SweepError
from tsfmscope.tasks.job import StoreCallbacks
from tsfmscope.tasks.sweep.actor import Worker, WorkerConfig, WorkerLocation
from tsfmscope.tasks.sweep.cluster import Resources, actor_options
from tsfmscope.tasks.sweep.environments import EnvironmentBuilder
from tsfmscope.tasks.sweep.job_queue import Attempt, JobGroup, JobQueue
from tsfmscope.tasks.sweep.nodes import Nodes, Request
from tsfmscope.tasks.sweep.placement import ActorResources, allocate, cap, fits
from tsfmscope.tasks.sweep.policy import Failure

# Target duration in seconds, and largest number, of the jobs of one call.
BATCH_S, BATCH_JOBS = 0.05, 128
# Jobs that take longer are sent one call at a time: a queue would only make the actors finish at
# different times.
SHORT_S = 0.1
# Seconds between queries of the cluster's resources.
RECOUNT_S = 1.0
# Number of failed starts in a row after which the environment of the workers counts as broken.
MAX_FAILED_STARTS = 5
NOWHERE = WorkerLocation("", "", "")
What = Literal["start", "load", "job"]


@dataclass(eq=False)
class Call:
    """One call on an actor.

    A job call carries the attempts of its jobs, a load call the attempt that needs the load.
    """

    what: What
    ref: Any
    attempts: Sequence[Attempt] = ()
    sent: float = field(default_factory=time.monotonic)


@dataclass(eq=False)
class ActorHandle:
    """One actor and its unanswered calls. It processes them in order, so it is working on the first."""

    name: str
    actor: Any
    # Job group that it serves: the one that it has loaded, or is started for.
    shelf: JobGroup
    calls: deque[Call] = field(default_factory=deque)
    # Time of time.monotonic() at which its oldest unanswered call began.
    clock: float = field(default_factory=time.monotonic)
    loaded: JobGroup | None = None
    site: WorkerLocation = NOWHERE
    # Mean seconds per job of its last job call; inf: unknown, or longer than expected.
    job_seconds: float = float("inf")
    # Time of time.monotonic() at which its unfinished jobs are handed back; it takes no more jobs.
    # None: it stays.
    leaves: float | None = None
    # The actor's method `run_all`, named after the job group for Ray's dashboard and timeline.
    _run: Any = None
    _named: str | None = None

    @property
    def up(self) -> bool:
        """Return whether the actor has started."""
        return bool(self.site.actor)

    @property
    def open(self) -> bool:
        """Return whether the actor is up and may receive jobs."""
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
        """Remove an answered call and restart the clock."""
        self.calls.remove(call)
        self.clock = time.monotonic()

    def takes(self, attempt: Attempt, max_in_flight: int) -> bool:
        """Return whether the actor may be given this job now."""
        if not self.calls:
            return True
        if attempt.alone or self.calls[-1].what != "job" or any(c.attempts[0].alone for c in self.calls):
            return False
        return self.job_seconds < SHORT_S and len(self.calls) < max_in_flight

    def must_load(self, attempt: Attempt) -> bool:
        """Return whether the actor must load something before it can do the job."""
        return attempt.job.task.loader is not None and attempt.shelf != self.loaded

    def batch(self, waiting: int, actors: int) -> int:
        """Return how many jobs to send in one call: many where jobs are short, fewer towards the end."""
        share = -(-waiting // (2 * max(actors, 1)))
        return max(1, min(BATCH_JOBS, share, int(BATCH_S / max(self.job_seconds, 1e-9))))

    def overdue(self, resources: Resources) -> TimeoutError | None:
        """Return a TimeoutError if its current call has passed its time limit, else None."""
        if not self.calls:
            return None
        what = self.calls[0].what
        limit = {"job": resources.job_timeout_s, "load": resources.load_timeout_s, "start": None}[what]
        if limit is None or time.monotonic() - self.clock <= limit:
            return None
        return TimeoutError(f"{what} took more than {limit:g} s; raise resources.{what}_timeout_s if it may")


class ActorPool:
    """Pool of actors: for each kind, as many as fit and are needed.

    Dead actors are replaced. Nodes may join and leave.
    """

    def __init__(self, name: str, port: StoreCallbacks, resources: Resources) -> None:
        import ray

        self._ray = ray
        self._name = name
        # Ray requires actor names to be unique, across past sweeps too.
        self._run = uuid.uuid4().hex[:6]
        self._resources = resources
        self._port = ray.put(of_worker(port))
        self._made = 0
        self._counted = float("-inf")
        self._targets: dict[ActorResources, int] = {}
        self._failed_starts = 0
        # Kinds of actor that jobs wait for while none is up -> time.monotonic() since when.
        self._absent: dict[ActorResources, float] = {}
        self._request = Request(of_cluster=resources.address is not None)
        self._maker = EnvironmentBuilder()
        self.nodes = Nodes()
        self.slots: list[ActorHandle] = []

    def __iter__(self) -> Iterator[ActorHandle]:
        return iter(self.slots)

    @property
    def busy(self) -> int:
        """Return the number of jobs and loads that were sent and are not answered yet."""
        return sum(len(call.attempts) for slot in self.slots for call in slot.calls)

    @property
    def size(self) -> int:
        """Return the number of actors that fit and are needed, as last counted."""
        return sum(self._targets.values())

    def serving(self) -> Counter[JobGroup]:
        """Count the actors that have loaded, are loading, or are started for each job group."""
        loading = [call.attempts[0].shelf for s in self.slots for call in s.calls if call.what == "load"]
        return Counter(loading) + Counter(slot.shelf for slot in self.slots if slot.leaves is None)

    def top_up(self, backlog: JobQueue) -> None:
        """Start actors until there are as many as fit and as jobs need.

        Raises:
            SweepError: no actor of a needed kind comes up.
        """
        now = time.monotonic()
        if now - self._counted > RECOUNT_S or not self._targets.keys() >= (+backlog.ready).keys():
            self._counted = now
            self.nodes.look()
            self._give_notice()
            wanted = self._wanted(backlog)
            self._targets = allocate(wanted, self.nodes.open, self._resources.actors)
            self._request.make(cap(wanted, self._resources.actors) if self._resources.actors else {})
            self._make_room()
            self._check_starts(backlog, now)
        staying = self._staying()
        short = [needs for needs, target in self._targets.items() if staying[needs] < target]
        wanted = self._wanted(backlog) if short else {}
        for needs in short:
            for _ in range(min(self._targets[needs], wanted.get(needs, 0)) - staying[needs]):
                self._start(needs, backlog)

    def _wanted(self, backlog: JobQueue) -> dict[ActorResources, int]:
        """Return the number of actors that could be kept busy, by kind."""
        wanted = Counter(backlog.ready)
        for slot in self.slots:
            wanted[slot.shelf.needs] += sum(len(call.attempts) for call in slot.calls) if slot.open else 0
        return {needs: count for needs, count in (+wanted).items() if self._has_environment(needs)}

    def _has_environment(self, needs: ActorResources) -> bool:
        """Return whether actors of this kind can start; starts to build a missing environment."""
        return needs.environment is None or self._maker.ready(needs.environment)

    def unmade(self, backlog: JobQueue) -> Iterator[tuple[ActorResources, Failure]]:
        """Yield the needed kinds of actor whose environment could not be built, with the cause."""
        for needs in list(+backlog.ready):
            if needs.environment is not None and (failure := self._maker.failure(needs.environment)):
                yield needs, failure

    def _staying(self) -> Counter[ActorResources]:
        return Counter(slot.shelf.needs for slot in self.slots if slot.leaves is None)

    def _give_notice(self) -> None:
        for slot in self.slots:
            if slot.leaves is None and slot.site.node_id in self.nodes.leaving:
                slot.leaves = self.nodes.leaving[slot.site.node_id]

    def _make_room(self) -> None:
        """End surplus actors that are idle or not up yet, if another kind has too few."""
        staying = self._staying()
        if all(staying[needs] >= target for needs, target in self._targets.items()):
            return
        for slot in self.slots[::-1]:
            needs = slot.shelf.needs
            if staying[needs] > self._targets.get(needs, 0) and slot.leaves is None and not (slot.up and slot.calls):
                self.drop(slot)
                staying[needs] -= 1

    def _check_starts(self, backlog: JobQueue, now: float) -> None:
        """Raise SweepError if a kind of actor that jobs wait for does not come up."""
        up = {slot.shelf.needs for slot in self.slots if slot.up and not slot.site.unfit}
        lives = Counter(slot.shelf.needs for slot in self.slots)
        since, self._absent = self._absent, {}
        for needs in +backlog.ready:
            fit = fits(needs, self.nodes.open)
            held = any(count > self._targets.get(kind, 0) for kind, count in lives.items() if kind != needs)
            # An actor is up, or others must end first, or the environment is not ready.
            if needs in up or (fit and (held or not self._targets.get(needs))):
                continue
            self._absent[needs] = since.get(needs, now)
            patience = 0.0 if fit == 0 and self._resources.address is None else self._resources.start_timeout_s
            if now - self._absent[needs] >= patience:
                raise SweepError(
                    f"no actor came up in {patience:.0f} s: each needs {needs}, the cluster has "
                    f"{self._ray.cluster_resources()}; ask for less in resources, or add nodes"
                )

    def _start(self, needs: ActorResources, backlog: JobQueue) -> None:
        """Start a new actor. Ray shows it under the name of its first model, which may change later."""
        shelf = backlog.choose(self.serving(), needs) or JobGroup(needs)
        name = f"{self._name}-{self._made}"
        known = f"{shelf.group} {name} {self._run}".strip()
        remote = self._ray.remote(Worker).options(name=known, **actor_options(needs))
        own = needs.environment
        setting = WorkerConfig(
            needs.threads,
            os.getcwd(),
            needs.devices,
            self._resources.notice_seconds,
            environment=own.digest if own else "",
            prefix=str(own.folder) if own else None,
            processes=needs.shares,
        )
        slot = ActorHandle(name, remote.remote(name, self._port, setting), shelf)
        self._made += 1
        slot.send("start")
        self.slots.append(slot)

    def loading(self, node: str | None = None) -> set[JobGroup]:
        """Return the job groups that actors are loading, on one node or any."""
        slots = [slot for slot in self.slots if node in (None, slot.site.node_id)]
        return {call.attempts[0].shelf for slot in slots for call in slot.calls if call.what == "load"}

    def able(self, shelf: JobGroup) -> set[str]:
        """Return the nodes whose actors could load for a job group.

        Empty where an actor has loaded the group, is loading it, or is still to come up.
        """
        mine = [slot for slot in self.slots if slot.shelf.needs == shelf.needs and slot.leaves is None]
        # An actor that has waited this long may never come up.
        late = time.monotonic() - self._resources.start_timeout_s
        if shelf in self.loading() or any((not s.up and s.clock > late) or s.loaded == shelf for s in mine):
            return set()
        return {slot.site.node_id for slot in mine if slot.open}

    def started(self, slot: ActorHandle, site: WorkerLocation) -> None:
        """Store where an actor runs. Raises SweepError if all actors of the pool are unfit.

        An unfit actor is kept without jobs: it occupies resources in which Ray would otherwise start the next
        actor.
        """
        slot.site = site
        self._failed_starts = 0
        if site.unfit and all(one.site.unfit for one in self.slots):
            raise SweepError(f"workers do not start: {site.unfit}")

    def failed_start(self, failure: Failure, began: float) -> None:
        """Count an actor that did not come up, requested at time `began` of time.monotonic().

        A start does not count if a node disappeared in the meantime: the node may have been the actor's,
        which had not reported its location yet.

        Raises:
            SweepError: after MAX_FAILED_STARTS failed starts in a row, or at once if the actor's own
                constructor or start failed.
        """
        own = not failure.transient or "creation task" in failure.message
        self._failed_starts += own or not self.nodes.shaken(began)
        if self._failed_starts >= MAX_FAILED_STARTS or own:
            raise SweepError(
                f"workers do not start: {failure.type}: {failure.message}\n"
                "Expected the same environment and code on every node; see the traceback above for what is missing"
            )

    def drop(self, slot: ActorHandle) -> None:
        """End an actor, even if it is working."""
        self._ray.kill(slot.actor, no_restart=True)
        self.slots.remove(slot)
        self._counted = float("-inf")

    def close(self) -> None:
        """End all actors, and the building of environments."""
        self._maker.close()
        for slot in list(self.slots):
            self.drop(slot)
        # An error of a cluster that is gone must not hide the original error.
        with contextlib.suppress(Exception):
            self._request.make({})


def of_worker(port: StoreCallbacks) -> StoreCallbacks:
    """Return a worker's callbacks: without `missing` and `append`, which need not be picklable."""
    return port._replace(missing=_driver_only, append=_driver_only)


def _driver_only(_: Sequence[Any]) -> NoReturn:
    raise AssertionError("a worker called missing or append, which are the driver's")
