"""The sweep: an event loop over ray.wait with a bounded number of jobs in flight.

It replaces Ray's ActorPool, which neither replaces a dead actor nor limits a job's time. The engine depends
on Ray; the code of the jobs does not.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any

from tsfmscope.tasks.job import Job, StoreCallbacks
from tsfmscope.tasks.sweep.actor import Outcome, WorkerLocation
from tsfmscope.tasks.sweep.actor_pool import NOWHERE, ActorHandle, ActorPool, Call
from tsfmscope.tasks.sweep.cluster import Resources, connect
from tsfmscope.tasks.sweep.job_queue import Attempt, JobGroup, JobQueue
from tsfmscope.tasks.sweep.load_failures import LoadFailures
from tsfmscope.tasks.sweep.policy import Action, Failure, decide, fatal
from tsfmscope.tasks.sweep.progress import Progress, Rate, usage
from tsfmscope.tasks.sweep.records import Ledger, Summary, unanswered
from tsfmscope.tasks.sweep.signals import caught_signals, leave

# Number of nodes that may disappear while they run one job; after that, the job is taken for the
# cause.
MAX_LOSSES = 10
# Longest wait, in seconds, between checks of time limits, signals and progress.
TICK_S = 0.2

__all__ = ["Summary", "run"]
Report = Callable[[Progress], None]


def run(jobs: Iterable[Job], port: StoreCallbacks, resources: Resources, *, report: Report | None = None) -> Summary:
    """Run every job that is not stored yet, and hand its record to `port.append`.

    Jobs of one group should follow each other: the plan is read in chunks, and a model is loaded again for
    each chunk that needs it. Ray is not started when nothing is missing.

    Raises:
        SweepError: every further job would fail.
        KeyboardInterrupt: after SIGINT.
        SystemExit: after SIGTERM.

    In each case, the records of finished jobs are stored first, if the store still accepts them.
    """
    began = time.monotonic()
    backlog = JobQueue(jobs, port.missing, resources.chunk, resources.of_job)
    ledger = Ledger(port.append, resources.flush_seconds)
    backlog.refill(1)
    acted: tuple[int, ...] = ()
    if len(backlog):
        with connect(resources):
            sweep = _Sweep(backlog, ledger, port, resources, report)
            sweep.work()
            acted = (sweep.loads, sweep.restarts, sweep.handed_back)
    elif report:
        report(Progress(backlog.planned, backlog.reused, 0, 0, 0, 0.0, 0.0))
    seconds = time.monotonic() - began
    failures = dict(sorted(ledger.failures.items()))
    return Summary(backlog.planned, backlog.reused, ledger.done, ledger.failed, seconds, failures, *acted)


class _Sweep:
    """State and main loop of one sweep."""

    def __init__(
        self, backlog: JobQueue, ledger: Ledger, port: StoreCallbacks, resources: Resources, report: Report | None
    ):
        import ray

        self._ray = ray
        self._backlog = backlog
        self._ledger = ledger
        self._resources = resources
        self._report = report
        self._fleet = ActorPool("actor", port, resources)
        self._rate = Rate()
        self._told = 0.0
        self._loads = LoadFailures(resources.max_attempts)
        # Divisor of a task's batches for which memory was sufficient, by job group and task name.
        self._divisors: dict[tuple[JobGroup, str], int] = {}
        self.loads = self.restarts = self.handed_back = 0

    def work(self) -> None:
        """Run until no job is left or a signal asks to stop."""
        with caught_signals() as caught, ExitStack() as last:
            last.callback(self._tell, force=True)
            last.callback(self._fleet.close)
            # Callbacks run in reverse order, so the flush is first: records are stored even if the
            # cluster is gone.
            last.callback(self._ledger.flush, force=True)
            while (len(self._backlog) or self._fleet.busy) and not caught:
                self._fleet.top_up(self._backlog)
                self._give_up()
                self._dispatch()
                self._turn()
                self._backlog.plan_ahead()
                self._backlog.refill(1 + self._fleet.size * self._resources.max_in_flight)
            if caught:
                self._drain(caught)
        if caught:
            stored = self._ledger.done + self._ledger.failed
            left = f"{self._backlog.planned - self._backlog.reused - stored}" + " or more" * (not self._backlog.counted)
            leave(caught[0], f"{stored} jobs stored, {left} left; run the same command again to go on")

    def _turn(self) -> None:
        self._collect()
        self._expire()
        self._let_go()
        # Flush in a drain as well: a machine that is reclaimed may disappear before the drain ends.
        self._ledger.flush()
        self._tell()

    def _drain(self, caught: list[int]) -> None:
        """Wait for running jobs, at most `drain_seconds`; a second signal ends the wait."""
        end = time.monotonic() + self._resources.drain_seconds
        while self._fleet.busy and time.monotonic() < end and len(caught) < 2:
            self._turn()

    def _dispatch(self) -> None:
        for slot in [slot for slot in self._fleet if slot.open]:
            while attempts := self._next(slot):
                slot.send("load" if slot.must_load(attempts[0]) else "job", attempts)

    def _next(self, slot: ActorHandle) -> list[Attempt]:
        """Take the jobs for this actor's next call from the queue; empty where the actor has enough."""
        shelf, barred = slot.shelf, self._barred(slot)
        if self._backlog.peek(shelf) is None or (shelf in barred and shelf != slot.loaded):
            other = None if slot.calls else self._backlog.choose(self._fleet.serving(), shelf.needs, barred)
            if other is None:
                return []
            shelf = other
        attempt = self._backlog.peek(shelf)
        if attempt is None or not slot.takes(attempt, self._resources.max_in_flight):
            return []
        single = attempt.alone or slot.must_load(attempt)
        count = 1 if single else slot.batch(len(self._backlog), self._fleet.size)
        attempts = [self._backlog.pop(shelf)]
        while len(attempts) < count and (attempt := self._backlog.peek(shelf)) and not attempt.alone:
            attempts.append(self._backlog.pop(shelf))
        for attempt in attempts if self._divisors else ():
            attempt.divisor = max(attempt.divisor, self._divisors.get((shelf, attempt.job.task.name), 1))
        return attempts

    def _barred(self, slot: ActorHandle) -> set[JobGroup]:
        """Return the job groups that the actor should not load now.

        These are groups that its node failed to load and may not try again yet, and groups with a failed load
        that another actor of the node is loading.
        """
        node = slot.site.node_id
        return self._loads.barred(node) | {shelf for shelf in self._loads if shelf in self._fleet.loading(node)}

    def _collect(self) -> None:
        """Process the answers that have arrived to each actor's oldest call; calls are answered in order."""
        calls = {slot.calls[0].ref: (slot, slot.calls[0]) for slot in self._fleet if slot.calls}
        if not calls:
            time.sleep(TICK_S)
            return
        refs = list(calls)
        self._ray.wait(refs, num_returns=1, timeout=TICK_S)
        for ref in self._ray.wait(refs, num_returns=len(refs), timeout=0)[0]:
            slot, call = calls[ref]
            try:
                answer = self._ray.get(ref)
                answer = pickle.loads(answer) if call.what == "job" else answer
            # Any exception of Ray, such as the death of an actor, or an answer that cannot be
            # unpickled here.
            except Exception as error:
                self._broken(slot, call, error)
            else:
                self._answered(slot, call, answer)

    def _answered(self, slot: ActorHandle, call: Call, answer: Any) -> None:
        slot.answered(call)
        if call.what == "start":
            self._fleet.started(slot, answer)
        elif call.what == "job":
            self._done(slot, call, answer)
        elif answer.undone:
            slot.leaves = float("inf")
            self._hand_back(call.attempts)
        elif answer.failure is not None:
            self._failed(slot, call, call.attempts[0], answer.failure, answer)
        else:
            self.loads += 1
            slot.shelf = slot.loaded = call.attempts[0].shelf
            self._loads.succeeded(slot.shelf, slot.site)
            slot.send("job", call.attempts)

    def _done(self, slot: ActorHandle, call: Call, outcomes: Sequence[Outcome]) -> None:
        """Process the outcomes of a call's jobs; jobs that the call did not reach go back to the queue."""
        # A long job was ahead of them: another actor may be free sooner.
        if not outcomes:
            slot.job_seconds = float("inf")
            self._back(call.attempts)
            return
        if outcomes[-1].leaving:
            # The actor ends its job in time by itself.
            slot.leaves = float("inf")
        if outcomes[-1].undone:
            (self._hand_back if outcomes[-1].leaving else self._back)(call.attempts[len(outcomes) - 1 :])
            outcomes, slot.loaded = outcomes[:-1], None
        else:
            self._back(call.attempts[len(outcomes) :])
        if outcomes:
            slot.job_seconds = sum(outcome.timing["seconds"] for outcome in outcomes) / len(outcomes)
        for attempt, outcome in zip(call.attempts, outcomes, strict=False):
            if outcome.failure is None:
                self._ledger.add(attempt.job, outcome, attempt.attempts + 1)
                if attempt.divisor > 1:
                    self._divisors[attempt.shelf, attempt.job.task.name] = attempt.divisor
            else:
                self._failed(slot, call, attempt, outcome.failure, outcome)

    def _broken(self, slot: ActorHandle, call: Call, error: Exception) -> None:
        """Handle a call that failed itself, as opposed to the work in it."""
        failure = Failure.of(error)
        kinds = self._ray.exceptions
        if call.what == "start" or (isinstance(error, kinds.RayError) and not isinstance(error, kinds.RayTaskError)):
            self._lose(slot, failure, sure=False)
            return
        slot.answered(call)
        if len(call.attempts) == 1:
            self._failed(slot, call, call.attempts[0], failure, None)
        else:
            self._back(call.attempts, alone=True)

    def _expire(self) -> None:
        for slot in list(self._fleet):
            if (error := slot.overdue(self._resources)) is not None:
                self._lose(slot, Failure.of(error), sure=True)

    def _let_go(self) -> None:
        """End actors whose node has disappeared, and leaving actors that are idle or out of time."""
        now = time.monotonic()
        for slot in list(self._fleet):
            if slot.leaves is not None and (not slot.calls or now > slot.leaves):
                self._hand_back([attempt for call in self._end(slot) for attempt in call.attempts])
            elif slot.up and self._fleet.nodes.gone(slot.site.node_id):
                self._lose(slot, Failure.of(ConnectionError(f"node {slot.site.node} has gone")), sure=False)

    def _hand_back(self, attempts: Sequence[Attempt]) -> None:
        """Put back jobs that their actor or node had no time for; they do not count as failed attempts."""
        self.handed_back += len(attempts)
        self._back(attempts)

    def _lose(self, slot: ActorHandle, failure: Failure, *, sure: bool) -> None:
        """End an actor and decide which of its jobs caused the loss.

        The job of its first call is blamed. It is not blamed if the call had several jobs, or if other calls
        waited behind it and its answer may have been lost in transit. Jobs that may be the cause go back to
        the queue, to be run alone. If the node is gone or about to leave, no job is blamed, except a job to
        which this happened MAX_LOSSES times before.

        sure: no answer can have been lost.
        """
        lost = not sure and self._fleet.nodes.lost(slot.site.node_id)
        calls = self._end(slot)
        if not calls:
            return
        first, *others = calls
        if first.what == "start":
            self._fleet.failed_start(failure, slot.clock)
        elif lost and first.attempts[0].losses < MAX_LOSSES:
            first.attempts[0].losses += 1
            self._hand_back([attempt for call in calls for attempt in call.attempts])
        else:
            for call in reversed(others):
                self._back(call.attempts, alone=not sure)
            if len(first.attempts) == 1 and (sure or not others):
                first.attempts[0].alone = True
                self._failed(slot, first, first.attempts[0], failure, None)
            else:
                self._back(first.attempts, alone=True)

    def _back(self, attempts: Sequence[Attempt], *, alone: bool = False) -> None:
        for attempt in reversed(attempts):
            attempt.alone = attempt.alone or alone
            self._backlog.back(attempt)

    def _failed(
        self, slot: ActorHandle, call: Call, attempt: Attempt, failure: Failure, outcome: Outcome | None
    ) -> None:
        """Handle a failed job or load as the policy decides."""
        shelf, of_load = attempt.shelf, call.what == "load"
        if of_load:
            slot.shelf, slot.loaded = JobGroup(shelf.needs), None
            tried = self._loads.failed(shelf, slot.site, failure, call.sent)
        else:
            attempt.attempts += 1
            tried = attempt.attempts
        decision = decide(failure, tried, self._resources.max_attempts, attempt.divisor)
        if decision.action is Action.STOP:
            raise fatal(f"{attempt.job.task.name} {attempt.job.spec_json}", failure)
        if of_load or decision.action is Action.RETRY:
            attempt.divisor *= 2 if decision.halve and not of_load else 1
            self._backlog.back(attempt)
        else:
            outcome = outcome or unanswered(failure, slot.site, seconds=time.monotonic() - slot.clock)
            self._ledger.add(attempt.job, outcome, attempt.attempts)
        if decision.new_actor and slot in self._fleet.slots:
            for left in reversed(self._end(slot)):
                self._back(left.attempts)
        elif not of_load and failure.transient:
            # A job that failed midway may have changed the model, so the actor does no more jobs
            # with it.
            slot.loaded = None

    def _end(self, slot: ActorHandle) -> list[Call]:
        """End an actor and return its unanswered calls, the oldest first."""
        calls = list(slot.calls)
        self._fleet.drop(slot)
        slot.calls.clear()
        self.restarts += 1
        return calls

    def _give_up(self) -> None:
        """Record jobs that cannot run: no environment could be built, or no actor can load their model."""
        for needs, failure in self._fleet.unmade(self._backlog):
            for shelf in self._backlog.shelves(needs):
                self._record_all(shelf, failure, NOWHERE, 1)
        for shelf in self._loads:
            if (refusal := self._loads.hopeless(shelf, self._fleet.able(shelf))) is not None:
                self._record_all(shelf, refusal.failure, refusal.site, refusal.tries)

    def _record_all(self, shelf: JobGroup, failure: Failure, site: WorkerLocation, attempts: int) -> None:
        """Record one failure, of a load or an environment, for each job that waits for it."""
        while self._backlog.peek(shelf) is not None:
            self._ledger.add(self._backlog.pop(shelf).job, unanswered(failure, site, seconds=0.0), attempts)

    def _tell(self, *, force: bool = False) -> None:
        now = time.monotonic()
        if self._report is None or (not force and now - self._told < TICK_S):
            return
        self._told = now
        done, failed = self._ledger.done, self._ledger.failed
        rate = self._rate.update(done + failed)
        planned, reused = self._backlog.planned, self._backlog.reused
        left = planned - reused - done - failed
        seconds_left = left / rate if rate > 0 and self._backlog.counted else None
        nodes = usage((slot.site.node, bool(slot.calls)) for slot in self._fleet if slot.up)
        self._report(Progress(planned, reused, done, failed, self._fleet.busy, rate, seconds_left, nodes))
