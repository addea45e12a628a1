"""The sweep: an event loop over ray.wait with a bounded number of jobs in flight.

It replaces Ray's ActorPool, which neither replaces a dead actor nor limits a job's time. The engine depends
on Ray; the code of the jobs does not.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from tasks.job import Job, StoreCallbacks
from tasks.sweep.actor import Outcome, WorkerLocation
from tasks.sweep.actor_pool import ActorHandle, ActorPool, Call
from tasks.sweep.cluster import Resources, connect
from tasks.sweep.job_queue import Attempt, JobGroup, JobQueue
from tasks.sweep.policy import Action, Failure, decide, fatal
from tasks.sweep.progress import Progress, Rate, usage
from tasks.sweep.records import Ledger, Summary, outcome_without_answer
from tasks.sweep.signals import caught_signals, exit_by_signal

# Seconds before a node's first retry; doubled for each further one.
PAUSE_S = 0.5
# Number of nodes that may disappear while they run one job; after that, the job counts as the cause.
MAX_LOSSES = 10
# Longest wait, in seconds, between checks of time limits, signals and progress.
TICK_S = 0.2
__all__ = ["Summary", "run"]
Report = Callable[[Progress], None]


@dataclass
class NodeFailures:
    """State of a node's attempts to load for a job group."""

    # Failure of the last attempt.
    failure: Failure
    location: WorkerLocation
    tries: int
    # Time of time.monotonic() at which the last attempt failed.
    failed_at: float
    # Time from which it may try again; inf: never.
    retry_at: float


class LoadFailures:
    """Failed loads by job group and node: the weights may be missing on one node only."""

    def __init__(self, max_attempts: int) -> None:
        self._max = max_attempts
        self._failures: dict[JobGroup, dict[str, NodeFailures]] = {}

    def record_failure(self, group: JobGroup, location: WorkerLocation, failure: Failure, requested_at: float) -> int:
        """Record a failed load that was requested at `requested_at`; return the number of the node's attempts.

        Loads that several actors of a node had started when one failed count as one attempt, because an
        outage hits them together.
        """
        now = time.monotonic()
        by_node = self._failures.setdefault(group, {})
        before = by_node.get(location.node_id)
        tries = 1 if before is None else before.tries + (requested_at > before.failed_at)
        stays = failure.transient and tries < self._max and (before is None or before.retry_at < float("inf"))
        retry_at = now + PAUSE_S * 2 ** (tries - 1) if stays else float("inf")
        by_node[location.node_id] = NodeFailures(failure, location, tries, now, retry_at)
        return tries

    def forget_failures(self, group: JobGroup, location: WorkerLocation) -> None:
        """Forget the node's failed attempts for this job group."""
        by_node = self._failures.get(group, {})
        by_node.pop(location.node_id, None)
        if not by_node:
            self._failures.pop(group, None)

    def excluded_groups(self, node: str) -> set[JobGroup]:
        """Return the job groups that the node should not try to load now."""
        now = time.monotonic()
        return {group for group, by in self._failures.items() if node in by and now < by[node].retry_at}

    def exhausted(self, group: JobGroup, nodes: Collection[str]) -> NodeFailures | None:
        """Return the last node's failures if no attempt is left, else None.

        No attempt is left if none of these nodes may try again, or if max_attempts nodes have no attempt left.
        Without nodes, the result is None.
        """
        by_node = self._failures.get(group, {})
        final = {name for name, node in by_node.items() if node.retry_at == float("inf")}
        if nodes and (final >= set(nodes) or len(final) >= self._max):
            return max((by_node[name] for name in final), key=lambda node: node.failed_at)
        return None

    def __iter__(self) -> Iterator[JobGroup]:
        """Iterate over the job groups that some node failed to load for."""
        return iter(list(self._failures))


def run(
    jobs: Iterable[Job], callbacks: StoreCallbacks, resources: Resources, *, report: Report | None = None
) -> Summary:
    """Run every job that is not stored yet, and hand its record to `callbacks.append`.

    Jobs of one group should follow each other: the plan is read in chunks, and a model is loaded again for
    each chunk that needs it. Ray is not started when nothing is missing.

    Raises:
        SweepError: every further job would fail.
        KeyboardInterrupt: after SIGINT.
        SystemExit: after SIGTERM.

    In each case, the records of finished jobs are stored first, if the store still accepts them.
    """
    began = time.monotonic()
    queue = JobQueue(jobs, callbacks.missing, resources.chunk, lambda job: resources.for_task(job.task.name))
    ledger = Ledger(callbacks.append, resources.flush_seconds)
    queue.refill(1)
    activity: tuple[int, ...] = ()
    if len(queue):
        with connect(resources):
            sweep = _Sweep(queue, ledger, callbacks, resources, report)
            sweep.work()
            activity = (sweep.loads, sweep.restarts, sweep.handed_back)
    elif report:
        report(Progress(queue.n_planned, queue.n_reused, 0, 0, 0, 0.0, 0.0))
    seconds = time.monotonic() - began
    failures = dict(sorted(ledger.failures.items()))
    return Summary(queue.n_planned, queue.n_reused, ledger.done, ledger.failed, seconds, failures, *activity)


class _Sweep:
    """State and main loop of one sweep."""

    def __init__(
        self, queue: JobQueue, ledger: Ledger, callbacks: StoreCallbacks, resources: Resources, report: Report | None
    ):
        import ray

        self._ray = ray
        self._queue = queue
        self._ledger = ledger
        self._resources = resources
        self._report = report
        self._pool = ActorPool("actor", callbacks, resources)
        self._rate = Rate()
        self._reported_at = 0.0
        self._loads = LoadFailures(resources.max_attempts)
        # Divisor of a task's batches for which memory was sufficient, by job group and task name.
        self._divisors: dict[tuple[JobGroup, str], int] = {}
        self.loads = self.restarts = self.handed_back = 0

    def work(self) -> None:
        """Run until no job is left or a stop signal arrives."""
        with caught_signals() as caught, ExitStack() as last:
            last.callback(self._report_progress, force=True)
            last.callback(self._pool.close)
            # Callbacks run in reverse order, so the flush is first: records are stored even if the
            # cluster is gone.
            last.callback(self._ledger.flush, force=True)
            while (len(self._queue) or self._pool.busy) and not caught:
                self._pool.scale_up(self._queue)
                self._record_impossible()
                for handle in [handle for handle in self._pool if handle.is_open]:
                    while attempts := self._next_attempts(handle):
                        handle.send("load" if handle.must_load(attempts[0]) else "job", attempts)
                self._step()
                self._queue.plan_ahead()
                self._queue.refill(1 + self._pool.size * self._resources.max_in_flight)
            # Wait for running jobs, at most `drain_seconds`; a second signal ends the wait.
            end = time.monotonic() + self._resources.drain_seconds
            while caught and self._pool.busy and time.monotonic() < end and len(caught) < 2:
                self._step()
        if caught:
            stored = self._ledger.done + self._ledger.failed
            remaining = str(self._queue.n_planned - self._queue.n_reused - stored)
            if not self._queue.is_total_known:
                remaining += " or more"
            exit_by_signal(caught[0], f"{stored} jobs stored, {remaining} left; run the same command again to go on")

    def _step(self) -> None:
        self._collect()
        for handle in list(self._pool):
            if (error := handle.timeout_error(self._resources)) is not None:
                self._lose_actor(handle, Failure.of(error), certain=True)
        self._end_leaving()
        # Flush in a drain as well: a machine that is reclaimed may disappear before the drain ends.
        self._ledger.flush()
        self._report_progress()

    def _next_attempts(self, handle: ActorHandle) -> list[Attempt]:
        """Take the jobs for this actor's next call from the queue; empty if the actor has enough jobs."""
        group, excluded = handle.group, self._excluded_groups(handle)
        if self._queue.peek(group) is None or (group in excluded and group != handle.loaded_group):
            chosen = None if handle.calls else self._queue.choose(self._pool.count_serving(), group.needs, excluded)
            if chosen is None:
                return []
            group = chosen
        attempt = self._queue.peek(group)
        if attempt is None or not handle.accepts(attempt, self._resources.max_in_flight):
            return []
        single = attempt.alone or handle.must_load(attempt)
        count = 1 if single else handle.batch_size(len(self._queue), self._pool.size)
        attempts = [self._queue.pop(group)]
        while len(attempts) < count and (attempt := self._queue.peek(group)) and not attempt.alone:
            attempts.append(self._queue.pop(group))
        for attempt in attempts if self._divisors else ():
            attempt.divisor = max(attempt.divisor, self._divisors.get((group, attempt.job.task.name), 1))
        return attempts

    def _excluded_groups(self, handle: ActorHandle) -> set[JobGroup]:
        """Return the job groups that the actor should not load now.

        These are groups that its node failed to load and may not try again yet, and groups with a failed load
        that another actor of the node is loading.
        """
        node = handle.location.node_id
        return self._loads.excluded_groups(node) | {
            group for group in self._loads if group in self._pool.loading_groups(node)
        }

    def _collect(self) -> None:
        """Process the answers that have arrived to each actor's oldest call; calls are answered in order."""
        calls = {handle.calls[0].ref: (handle, handle.calls[0]) for handle in self._pool if handle.calls}
        if not calls:
            time.sleep(TICK_S)
            return
        refs = list(calls)
        self._ray.wait(refs, num_returns=1, timeout=TICK_S)
        for ref in self._ray.wait(refs, num_returns=len(refs), timeout=0)[0]:
            handle, call = calls[ref]
            try:
                answer = self._ray.get(ref)
                answer = pickle.loads(answer) if call.kind == "job" else answer
            # Any exception of Ray, such as the death of an actor, or an answer that cannot be
            # unpickled here.
            except Exception as error:
                self._handle_error(handle, call, error)
            else:
                self._process_answer(handle, call, answer)

    def _process_answer(self, handle: ActorHandle, call: Call, answer: Any) -> None:
        handle.remove(call)
        if call.kind == "start":
            self._pool.record_start(handle, answer)
        elif call.kind == "job":
            self._process_outcomes(handle, call, answer)
        elif answer.is_unfinished:
            handle.leaves_at = float("inf")
            self._hand_back(call.attempts)
        elif answer.failure is not None:
            self._handle_failure(handle, call, call.attempts[0], answer.failure, answer)
        else:
            self.loads += 1
            handle.group = handle.loaded_group = call.attempts[0].group
            self._loads.forget_failures(handle.group, handle.location)
            handle.send("job", call.attempts)

    def _process_outcomes(self, handle: ActorHandle, call: Call, outcomes: Sequence[Outcome]) -> None:
        """Process the outcomes of a call's jobs; jobs that the call did not reach go back to the queue."""
        # A long job ran before this call: another actor may be free sooner.
        if not outcomes:
            handle.job_seconds = float("inf")
            self._put_back(call.attempts)
            return
        if outcomes[-1].is_leaving:
            # The actor ends its job in time by itself.
            handle.leaves_at = float("inf")
        if outcomes[-1].is_unfinished:
            (self._hand_back if outcomes[-1].is_leaving else self._put_back)(call.attempts[len(outcomes) - 1 :])
            outcomes, handle.loaded_group = outcomes[:-1], None
        else:
            self._put_back(call.attempts[len(outcomes) :])
        if outcomes:
            handle.job_seconds = sum(outcome.timing["seconds"] for outcome in outcomes) / len(outcomes)
        for attempt, outcome in zip(call.attempts, outcomes, strict=False):
            if outcome.failure is None:
                self._ledger.add(attempt.job, outcome, attempt.attempts + 1)
                if attempt.divisor > 1:
                    self._divisors[attempt.group, attempt.job.task.name] = attempt.divisor
            else:
                self._handle_failure(handle, call, attempt, outcome.failure, outcome)

    def _handle_error(self, handle: ActorHandle, call: Call, error: Exception) -> None:
        """Handle an error of the call itself, as opposed to a failure of its job."""
        failure = Failure.of(error)
        kinds = self._ray.exceptions
        if call.kind == "start" or (isinstance(error, kinds.RayError) and not isinstance(error, kinds.RayTaskError)):
            self._lose_actor(handle, failure, certain=False)
            return
        handle.remove(call)
        if len(call.attempts) == 1:
            self._handle_failure(handle, call, call.attempts[0], failure, None)
        else:
            self._put_back(call.attempts, alone=True)

    def _end_leaving(self) -> None:
        """End actors whose node has disappeared, and leaving actors that are idle or out of time."""
        now = time.monotonic()
        for handle in list(self._pool):
            if handle.leaves_at is not None and (not handle.calls or now > handle.leaves_at):
                self._hand_back([attempt for call in self._end_actor(handle) for attempt in call.attempts])
            elif handle.is_up and self._pool.nodes.has_disappeared(handle.location.node_id):
                error = ConnectionError(f"node {handle.location.node} disappeared")
                self._lose_actor(handle, Failure.of(error), certain=False)

    def _hand_back(self, attempts: Sequence[Attempt]) -> None:
        """Put back jobs that their actor or node had no time for; they do not count as failed attempts."""
        self.handed_back += len(attempts)
        self._put_back(attempts)

    def _lose_actor(self, handle: ActorHandle, failure: Failure, *, certain: bool) -> None:
        """End an actor and decide which of its jobs caused the loss.

        The job of its first call is blamed. It is not blamed if the call had several jobs, or if other calls
        waited behind it and its answer may have been lost in transit. Jobs that may be the cause go back to
        the queue, to be run alone. If the node is gone or about to leave, no job is blamed, except a job to
        which this happened MAX_LOSSES times before.

        certain: no answer can have been lost.
        """
        node_lost = not certain and self._pool.nodes.is_lost(handle.location.node_id)
        calls = self._end_actor(handle)
        if not calls:
            return
        first, *others = calls
        if first.kind == "start":
            self._pool.record_failed_start(failure, handle.clock_began)
        elif node_lost and first.attempts[0].losses < MAX_LOSSES:
            first.attempts[0].losses += 1
            self._hand_back([attempt for call in calls for attempt in call.attempts])
        else:
            for call in reversed(others):
                self._put_back(call.attempts, alone=not certain)
            if len(first.attempts) == 1 and (certain or not others):
                first.attempts[0].alone = True
                self._handle_failure(handle, first, first.attempts[0], failure, None)
            else:
                self._put_back(first.attempts, alone=True)

    def _put_back(self, attempts: Sequence[Attempt], *, alone: bool = False) -> None:
        for attempt in reversed(attempts):
            attempt.alone = attempt.alone or alone
            self._queue.put_back(attempt)

    def _handle_failure(
        self, handle: ActorHandle, call: Call, attempt: Attempt, failure: Failure, outcome: Outcome | None
    ) -> None:
        """Handle a failed job or load as the policy decides."""
        group, of_load = attempt.group, call.kind == "load"
        if of_load:
            handle.group, handle.loaded_group = JobGroup(group.needs), None
            tries = self._loads.record_failure(group, handle.location, failure, call.sent_at)
        else:
            attempt.attempts += 1
            tries = attempt.attempts
        decision = decide(failure, tries, self._resources.max_attempts, attempt.divisor)
        if decision.action is Action.STOP:
            raise fatal(f"{attempt.job.task.name} {attempt.job.spec_json}", failure)
        if of_load or decision.action is Action.RETRY:
            attempt.divisor *= 2 if decision.halve and not of_load else 1
            self._queue.put_back(attempt)
        else:
            outcome = outcome or outcome_without_answer(
                failure, handle.location, seconds=time.monotonic() - handle.clock_began
            )
            self._ledger.add(attempt.job, outcome, attempt.attempts)
        if decision.new_actor and handle in self._pool.handles:
            for call in reversed(self._end_actor(handle)):
                self._put_back(call.attempts)
        elif not of_load and failure.transient:
            # A job that failed midway may have changed the model, so the actor does no more jobs
            # with it.
            handle.loaded_group = None

    def _end_actor(self, handle: ActorHandle) -> list[Call]:
        """End an actor and return its unanswered calls, the oldest first."""
        calls = list(handle.calls)
        self._pool.drop(handle)
        handle.calls.clear()
        self.restarts += 1
        return calls

    def _record_impossible(self) -> None:
        """Record the failed load of a model for each job that waits for it."""
        for group in self._loads:
            if (failures := self._loads.exhausted(group, self._pool.capable_nodes(group))) is None:
                continue
            while self._queue.peek(group) is not None:
                outcome = outcome_without_answer(failures.failure, failures.location, seconds=0.0)
                self._ledger.add(self._queue.pop(group).job, outcome, failures.tries)

    def _report_progress(self, *, force: bool = False) -> None:
        now = time.monotonic()
        if self._report is None or (not force and now - self._reported_at < TICK_S):
            return
        self._reported_at = now
        done, failed = self._ledger.done, self._ledger.failed
        rate = self._rate.update(done + failed)
        planned, reused = self._queue.n_planned, self._queue.n_reused
        left = planned - reused - done - failed
        seconds_left = left / rate if rate > 0 and self._queue.is_total_known else None
        nodes = usage((handle.location.node, bool(handle.calls)) for handle in self._pool if handle.is_up)
        longest = self._pool.longest_job()
        self._report(Progress(planned, reused, done, failed, self._pool.busy, rate, seconds_left, nodes, longest))
