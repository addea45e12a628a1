"""Pool of a sweep's actors: their queues of calls, their time limits, their number."""

from __future__ import annotations

import contextlib
import os
import socket
import time
import uuid
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from tasks.job import StoreCallbacks
from tasks.sweep.actor import Worker, WorkerConfig, WorkerLocation
from tasks.sweep.cluster import Resources, actor_options
from tasks.sweep.job_queue import Attempt, JobGroup, JobQueue
from tasks.sweep.placement import ActorResources, Node, allocate, cap, fits
from tasks.sweep.policy import Failure
from tsfmscope.errors import SweepError

# Seconds before a node's deadline at which its running jobs are handed back.
MARGIN_S = 5.0
# Longest wait, in seconds, for an answer of a node.
PROBE_S = 1.0
# Target duration in seconds, and largest number, of the jobs of one call.
BATCH_S, BATCH_JOBS = 0.05, 128
# Jobs that take longer are sent one call at a time; with a queue, actors would finish at different
# times.
SHORT_S = 0.1
# Seconds between queries of the cluster's resources.
RECOUNT_S = 1.0
# Number of failed starts in a row after which the environment of the workers counts as broken.
MAX_FAILED_STARTS = 5
NOWHERE = WorkerLocation("", "", "")
CallKind = Literal["start", "load", "job"]


class Nodes:
    """Snapshot of the cluster, updated by `refresh`."""

    def __init__(self) -> None:
        # Nodes that are alive and not about to leave.
        self.accepting: list[Node] = []
        # Node -> time of time.monotonic() by which it should be free; inf: no deadline.
        self.deadlines: dict[str, float] = {}
        # Ids of the nodes that are alive.
        self._ids: set[str] = set()
        self._raylets: dict[str, tuple[str, int]] = {}
        # Time at which a node last disappeared or was asked to leave.
        self._last_loss_at = float("-inf")

    def refresh(self) -> None:
        """Query Ray for the nodes, which takes about a millisecond."""
        import ray

        # The public state API needs a dashboard.
        from ray._private.state import state

        alive = [node for node in ray.nodes() if node["Alive"]]
        # Nodes that are about to leave, with their deadline in Unix ms (0: none). Autoscalers, `ray drain-node` and
        # `ray start --block` announce them.
        draining_nodes: dict[str, int] = state.get_draining_nodes()
        if draining_nodes.keys() - self.deadlines.keys() or self._ids - {node["NodeID"] for node in alive}:
            self._last_loss_at = time.monotonic()
        for name in draining_nodes.keys() - self.deadlines.keys():
            unix_ms = draining_nodes[name]
            seconds_left = unix_ms / 1000 - time.time() if unix_ms else float("inf")
            self.deadlines[name] = time.monotonic() + seconds_left - min(MARGIN_S, seconds_left / 4)
        self.deadlines = {name: end for name, end in self.deadlines.items() if name in draining_nodes}
        self.accepting = [
            Node(node["NodeID"], node["Resources"], node["Labels"])
            for node in alive
            if node["NodeID"] not in draining_nodes
        ]
        self._ids = {node["NodeID"] for node in alive}
        self._raylets.update({n["NodeID"]: (n["NodeManagerAddress"], n["NodeManagerPort"]) for n in alive})

    def has_disappeared(self, name: str) -> bool:
        """Return whether the node was alive in an earlier snapshot, but not in the last one."""
        return name in self._raylets and name not in self._ids

    def is_lost(self, name: str) -> bool:
        """Return whether the node is gone or leaving now.

        Ray needs up to 20 s to declare a node dead, but the node's actors end at once. So the node itself is
        contacted too.
        """
        if not name:
            return False
        self.refresh()
        return name in self.deadlines or name not in self._ids or not _is_reachable(*self._raylets[name])

    def may_have_failed(self, since: float) -> bool:
        """Return whether a node may have failed since that time of time.monotonic().

        True if a node disappeared or was asked to leave after that time, or if a node does not answer now.
        """
        self.refresh()
        return self._last_loss_at >= since or not all(_is_reachable(*self._raylets[name]) for name in self._ids)


class Request:
    """Resources requested from an autoscaler. A cluster has one request; each new one replaces the last.

    of_cluster: False for a local Ray instance, which has no autoscaler.
    """

    def __init__(self, *, of_cluster: bool) -> None:
        self._of_cluster = of_cluster
        # None: unknown, because a driver that was killed leaves its request behind.
        self._last: dict[ActorResources, int] | None = None

    def submit(self, actors: Mapping[ActorResources, int]) -> None:
        """Request resources for this many actors of each kind; nothing happens where no autoscaler runs."""
        from ray.autoscaler.sdk import request_resources

        if not self._of_cluster or actors == self._last:
            return
        self._last = dict(actors)
        bundles = [needs for needs, count in actors.items() for _ in range(count)]
        labels = [dict(needs.labels) for needs in bundles]
        request_resources(bundles=[needs.amounts for needs in bundles], bundle_label_selectors=labels)


def _is_reachable(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=PROBE_S).close()
    except OSError:
        return False
    return True


@dataclass(eq=False)
class Call:
    """One call on an actor.

    A job call carries the attempts of its jobs, a load call the attempt that needs the load.
    """

    kind: CallKind
    ref: Any
    attempts: Sequence[Attempt] = ()
    sent_at: float = field(default_factory=time.monotonic)


@dataclass(eq=False)
class ActorHandle:
    """One actor and its unanswered calls. It processes them in order, so it is working on the first."""

    name: str
    actor: Any
    # Job group that it serves: the one that it has loaded, or is started for.
    group: JobGroup
    calls: deque[Call] = field(default_factory=deque)
    # Time of time.monotonic() at which its oldest unanswered call began.
    clock_began: float = field(default_factory=time.monotonic)
    loaded_group: JobGroup | None = None
    location: WorkerLocation = NOWHERE
    # Mean seconds per job of its last job call; inf: unknown, or longer than expected.
    job_seconds: float = float("inf")
    # Time of time.monotonic() at which its unfinished jobs are handed back; it takes no more jobs.
    # None: it stays.
    leaves_at: float | None = None
    # The actor's method `run_all`, named after the job group for Ray's dashboard and timeline.
    _run_method: Any = None
    _run_name: str | None = None

    @property
    def is_up(self) -> bool:
        """Return whether the actor has started."""
        return bool(self.location.actor)

    @property
    def is_open(self) -> bool:
        """Return whether the actor is up and may receive jobs."""
        return self.is_up and self.leaves_at is None and not self.location.unfit

    def send(self, kind: CallKind, attempts: Sequence[Attempt] = ()) -> None:
        """Queue a call."""
        if not self.calls:
            self.clock_began = time.monotonic()
        if kind == "start":
            ref = self.actor.start.remote()
        elif kind == "load":
            ref = self.actor.load.options(name=f"load {attempts[0].group.name}").remote(attempts[0].job)
        else:
            if self._run_name != attempts[0].group.name:
                self._run_name = attempts[0].group.name
                self._run_method = self.actor.run_all.options(name=f"run {self._run_name}".strip())
            jobs = [(attempt.job, attempt.divisor) for attempt in attempts]
            ref = self._run_method.remote(jobs, BATCH_S, was_queued=bool(self.calls))
        self.calls.append(Call(kind, ref, attempts))

    def remove(self, call: Call) -> None:
        """Remove an answered call and restart the clock."""
        self.calls.remove(call)
        self.clock_began = time.monotonic()

    def accepts(self, attempt: Attempt, max_in_flight: int) -> bool:
        """Return whether this job may be sent to the actor now."""
        if not self.calls:
            return True
        if attempt.alone or self.calls[-1].kind != "job" or any(c.attempts[0].alone for c in self.calls):
            return False
        return self.job_seconds < SHORT_S and len(self.calls) < max_in_flight

    def must_load(self, attempt: Attempt) -> bool:
        """Return whether the actor must load something before it can do the job."""
        return attempt.job.task.loader is not None and attempt.group != self.loaded_group

    def batch_size(self, waiting: int, actors: int) -> int:
        """Return the number of jobs for one call: many if jobs are short, fewer towards the end."""
        share = -(-waiting // (2 * max(actors, 1)))
        return max(1, min(BATCH_JOBS, share, int(BATCH_S / max(self.job_seconds, 1e-9))))

    def timeout_error(self, resources: Resources) -> TimeoutError | None:
        """Return a TimeoutError if its current call has passed its time limit, else None."""
        if not self.calls:
            return None
        kind = self.calls[0].kind
        limit = {"job": resources.job_timeout_s, "load": resources.load_timeout_s, "start": None}[kind]
        if limit is None or time.monotonic() - self.clock_began <= limit:
            return None
        return TimeoutError(f"{kind} took more than {limit:g} s; raise resources.{kind}_timeout_s to allow more")


class ActorPool:
    """Pool of actors: for each kind, as many as fit and are needed.

    Dead actors are replaced. Nodes may join and leave.
    """

    def __init__(self, name: str, callbacks: StoreCallbacks, resources: Resources) -> None:
        import ray

        self._ray = ray
        self._name = name
        # Ray requires actor names to be unique, across past sweeps too.
        self._run_id = uuid.uuid4().hex[:6]
        self._resources = resources
        self._callbacks = ray.put(worker_callbacks(callbacks))
        self._n_made = 0
        self._counted_at = float("-inf")
        self._targets: dict[ActorResources, int] = {}
        self._failed_starts = 0
        # Kinds of actor that jobs wait for while none is up -> time.monotonic() since when.
        self._absent: dict[ActorResources, float] = {}
        self._request = Request(of_cluster=resources.address is not None)
        self.nodes = Nodes()
        self.handles: list[ActorHandle] = []

    def __iter__(self) -> Iterator[ActorHandle]:
        return iter(self.handles)

    @property
    def busy(self) -> int:
        """Return the number of jobs and loads without an answer yet."""
        return sum(len(call.attempts) for handle in self.handles for call in handle.calls)

    def longest_job(self) -> tuple[str, float] | None:
        """Return task and group of the job that has run longest, and its seconds; None if no job runs."""
        working = [handle for handle in self.handles if handle.calls and handle.calls[0].kind == "job"]
        if not working:
            return None
        handle = min(working, key=lambda handle: handle.clock_began)
        job = handle.calls[0].attempts[0].job
        return f"{job.task.name} {job.group or ''}".strip(), time.monotonic() - handle.clock_began

    @property
    def size(self) -> int:
        """Return the number of actors that fit and are needed, at the last count."""
        return sum(self._targets.values())

    def count_serving(self) -> Counter[JobGroup]:
        """Count the actors that have loaded, are loading, or are started for each job group."""
        loading_groups = [call.attempts[0].group for s in self.handles for call in s.calls if call.kind == "load"]
        return Counter(loading_groups) + Counter(handle.group for handle in self.handles if handle.leaves_at is None)

    def scale_up(self, queue: JobQueue) -> None:
        """Start actors until there are as many as fit and as jobs need.

        Raises:
            SweepError: no actor of a needed kind comes up.
        """
        now = time.monotonic()
        if now - self._counted_at > RECOUNT_S or not self._targets.keys() >= (+queue.ready).keys():
            self._counted_at = now
            self.nodes.refresh()
            for handle in self.handles:
                if handle.leaves_at is None:
                    handle.leaves_at = self.nodes.deadlines.get(handle.location.node_id)
            demand = self._demand(queue)
            self._targets = allocate(demand, self.nodes.accepting, self._resources.actors)
            self._request.submit(cap(demand, self._resources.actors) if self._resources.actors else {})
            self._make_room()
            self._check_starts(queue, now)
        counts = self._count_staying()
        short = [needs for needs, target in self._targets.items() if counts[needs] < target]
        demand = self._demand(queue) if short else Counter()
        for needs in short:
            for _ in range(min(self._targets[needs], demand[needs]) - counts[needs]):
                self._start(needs, queue)

    def _demand(self, queue: JobQueue) -> Counter[ActorResources]:
        """Return the number of actors that could be kept busy, by kind."""
        demand = Counter(queue.ready)
        for handle in self.handles:
            demand[handle.group.needs] += sum(len(call.attempts) for call in handle.calls) if handle.is_open else 0
        return +demand

    def _count_staying(self) -> Counter[ActorResources]:
        return Counter(handle.group.needs for handle in self.handles if handle.leaves_at is None)

    def _make_room(self) -> None:
        """End surplus actors that are idle or not up yet, if another kind has too few."""
        counts = self._count_staying()
        if all(counts[needs] >= target for needs, target in self._targets.items()):
            return
        for handle in self.handles[::-1]:
            needs = handle.group.needs
            if (
                counts[needs] > self._targets.get(needs, 0)
                and handle.leaves_at is None
                and not (handle.is_up and handle.calls)
            ):
                self.drop(handle)
                counts[needs] -= 1

    def _check_starts(self, queue: JobQueue, now: float) -> None:
        """Raise SweepError if a kind of actor that jobs wait for does not come up."""
        is_up = {handle.group.needs for handle in self.handles if handle.is_up and not handle.location.unfit}
        lives = Counter(handle.group.needs for handle in self.handles)
        since, self._absent = self._absent, {}
        for needs in +queue.ready:
            fit = fits(needs, self.nodes.accepting)
            surplus = any(count > self._targets.get(kind, 0) for kind, count in lives.items() if kind != needs)
            # No alarm: an actor is up, or others must end first.
            if needs in is_up or (fit and (surplus or not self._targets.get(needs))):
                continue
            self._absent[needs] = since.get(needs, now)
            patience = 0.0 if fit == 0 and self._resources.address is None else self._resources.start_timeout_s
            if now - self._absent[needs] >= patience:
                raise SweepError(
                    f"no actor came up in {patience:.0f} s: each needs {needs}, the cluster has "
                    f"{self._ray.cluster_resources()}; lower the resources of the task, or add nodes"
                )

    def _start(self, needs: ActorResources, queue: JobQueue) -> None:
        """Start a new actor. Ray shows it under the name of its first model, which may change later."""
        group = queue.choose(self.count_serving(), needs) or JobGroup(needs)
        name = f"{self._name}-{self._n_made}"
        ray_name = f"{group.name} {name} {self._run_id}".strip()
        remote = self._ray.remote(Worker).options(name=ray_name, **actor_options(needs))
        config = WorkerConfig(
            needs.threads, os.getcwd(), needs.devices, self._resources.notice_seconds, processes=needs.shares
        )
        handle = ActorHandle(name, remote.remote(name, self._callbacks, config), group)
        self._n_made += 1
        handle.send("start")
        self.handles.append(handle)

    def loading_groups(self, node: str | None = None) -> set[JobGroup]:
        """Return the job groups that actors are loading, on one node or any."""
        handles = [handle for handle in self.handles if node in (None, handle.location.node_id)]
        return {call.attempts[0].group for handle in handles for call in handle.calls if call.kind == "load"}

    def capable_nodes(self, group: JobGroup) -> set[str]:
        """Return the nodes whose actors could load for a job group.

        Empty if an actor has loaded the group, is loading it, or has not started yet.
        """
        staying = [handle for handle in self.handles if handle.group.needs == group.needs and handle.leaves_at is None]
        # An actor that has waited this long may never come up.
        late = time.monotonic() - self._resources.start_timeout_s
        if group in self.loading_groups() or any(
            (not s.is_up and s.clock_began > late) or s.loaded_group == group for s in staying
        ):
            return set()
        return {handle.location.node_id for handle in staying if handle.is_open}

    def record_start(self, handle: ActorHandle, location: WorkerLocation) -> None:
        """Store where an actor runs. Raises SweepError if all actors of the pool are unfit.

        An unfit actor is kept without jobs: it occupies resources in which Ray would otherwise start the next
        actor.
        """
        handle.location = location
        self._failed_starts = 0
        if location.unfit and all(other.location.unfit for other in self.handles):
            raise SweepError(f"workers do not start: {location.unfit}")

    def record_failed_start(self, failure: Failure, began: float) -> None:
        """Count an actor that did not come up, requested at time `began` of time.monotonic().

        A start does not count if a node disappeared in the meantime: the node may have been the actor's,
        which had not reported its location yet.

        Raises:
            SweepError: after MAX_FAILED_STARTS failed starts in a row, or at once if the actor's own
                constructor or start failed.
        """
        own = not failure.transient or "creation task" in failure.message
        self._failed_starts += own or not self.nodes.may_have_failed(began)
        if self._failed_starts >= MAX_FAILED_STARTS or own:
            raise SweepError(
                f"workers do not start: {failure.type}: {failure.message}\n"
                "Expected the same environment and code on every node; the traceback above names what is missing"
            )

    def drop(self, handle: ActorHandle) -> None:
        """End an actor, even if it is working."""
        self._ray.kill(handle.actor, no_restart=True)
        self.handles.remove(handle)
        self._counted_at = float("-inf")

    def close(self) -> None:
        """End all actors."""
        for handle in list(self.handles):
            self.drop(handle)
        # An error of a cluster that is gone must not hide the original error.
        with contextlib.suppress(Exception):
            self._request.submit({})


def worker_callbacks(callbacks: StoreCallbacks) -> StoreCallbacks:
    """Return a worker's callbacks: without `missing` and `append`, which need not be picklable."""
    return callbacks._replace(missing=_driver_only, append=_driver_only)


def _driver_only(_: Sequence[Any]) -> NoReturn:
    raise AssertionError("a worker called missing or append, which only the driver may call")
