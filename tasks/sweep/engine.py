"""The sweep: a loop of our own over ray.wait, with bounded work in flight.

Ray's ActorPool neither replaces a dead actor nor limits a job's time. The engine knows Ray; the work does not.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tasks.errors import SweepError
from tasks.sweep.actor import Outcome
from tasks.sweep.backlog import Attempt, Backlog, Shelf, shelf_of
from tasks.sweep.cluster import Resources, connect
from tasks.sweep.fleet import Call, Fleet, Slot
from tasks.sweep.interrupts import caught_signals, leave
from tasks.sweep.jobs import Job, Port
from tasks.sweep.policy import Action, Failure, decide
from tasks.sweep.progress import Progress, Rate, usage
from tasks.sweep.records import Ledger, unanswered

TICK_S = 0.2  # longest wait before clocks, signals and progress are looked at

Report = Callable[[Progress], None]


@dataclass(frozen=True)
class Summary:
    """What a sweep did. Counts are jobs; failures maps error types to counts; loads and restarts are of actors."""

    planned: int
    reused: int
    done: int
    failed: int
    seconds: float
    failures: Mapping[str, int]
    loads: int = 0
    restarts: int = 0


def run(jobs: Iterable[Job], port: Port, resources: Resources, *, report: Report | None = None) -> Summary:
    """Run every job that the store has not got, and hand its record to `port.append`.

    Jobs of one group should follow each other: the plan is read in chunks, and a model is loaded again for each
    chunk that needs it. Ray is not started when nothing is missing.

    Raises SweepError when every further job would fail, and KeyboardInterrupt or SystemExit after SIGINT or SIGTERM;
    what finished is stored in each case.
    """
    began = time.monotonic()
    backlog = Backlog(jobs, port.missing, resources.chunk)
    ledger = Ledger(port.append, resources.flush_seconds)
    backlog.refill(1)
    loads = restarts = 0
    if len(backlog):
        with connect(resources):
            sweep = _Sweep(backlog, ledger, port, resources, report)
            sweep.work()
            loads, restarts = sweep.loads, sweep.restarts
    elif report:
        report(Progress(backlog.planned, backlog.reused, 0, 0, 0, 0.0, 0.0))
    seconds = time.monotonic() - began
    failures = dict(sorted(ledger.failures.items()))
    return Summary(backlog.planned, backlog.reused, ledger.done, ledger.failed, seconds, failures, loads, restarts)


class _Sweep:
    """The loop and its state."""

    def __init__(
        self, backlog: Backlog, ledger: Ledger, port: Port, resources: Resources, report: Report | None
    ) -> None:
        import ray

        self._ray = ray
        self._backlog = backlog
        self._ledger = ledger
        self._resources = resources
        self._report = report
        self._fleet = Fleet("actor", port, resources)
        self._rate = Rate()
        self._told = 0.0
        self._load_failures: Counter[Shelf] = Counter()
        self._doomed: dict[Shelf, Failure] = {}
        self.loads = 0
        self.restarts = 0

    def work(self) -> None:
        """Until nothing is left, or a signal asks to stop."""
        with caught_signals() as caught:
            try:
                while (len(self._backlog) or self._fleet.busy) and not caught:
                    self._fleet.top_up(len(self._backlog))
                    self._dispatch()
                    self._turn()
                if caught:
                    self._drain(caught)
            finally:
                self._fleet.close()
                self._ledger.flush(force=True)
                self._tell(force=True)
        if caught:
            stored = self._ledger.done + self._ledger.failed
            left = f"{self._backlog.planned - self._backlog.reused - stored}" + " or more" * (not self._backlog.counted)
            leave(caught[0], f"{stored} jobs stored, {left} left; run the same command again to go on")

    def _turn(self) -> None:
        self._collect()
        self._expire()
        self._ledger.flush()
        self._backlog.refill(1 + self._fleet.size * self._resources.max_in_flight)
        self._tell()

    def _drain(self, caught: list[int]) -> None:
        """Wait for what runs, within reason; a second signal ends that."""
        end = time.monotonic() + self._resources.drain_seconds
        while self._fleet.busy and time.monotonic() < end and len(caught) < 2:
            self._collect()
            self._expire()

    def _dispatch(self) -> None:
        for slot in [slot for slot in self._fleet if slot.up]:
            while (attempt := self._next(slot)) is not None:
                shelf = shelf_of(attempt.job)
                load = attempt.job.task.loader is not None and shelf != slot.shelf
                slot.send("load" if load else "job", attempt)

    def _next(self, slot: Slot) -> Attempt | None:
        """The job that this actor should do next, taken from the backlog."""
        shelf = slot.shelf
        if self._backlog.peek(shelf) is None:
            other = None if slot.calls else self._backlog.choose(self._fleet.serving())
            if other is None:
                return None
            shelf = other
        if shelf in self._doomed:
            self._record_doomed(shelf, slot)
            return self._next(slot)
        attempt = self._backlog.peek(shelf)
        return self._backlog.pop(shelf) if attempt and slot.takes(attempt, self._resources.max_in_flight) else None

    def _collect(self) -> None:
        """Take in every answer that has come, the oldest of each actor first."""
        calls = {call.ref: (slot, call) for slot in self._fleet for call in slot.calls}
        if not calls:
            time.sleep(TICK_S)
            return
        refs = list(calls)
        self._ray.wait(refs, num_returns=1, timeout=TICK_S)
        ready, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0)
        for ref in ready:
            slot, call = calls[ref]
            if call not in slot.calls:
                continue  # its actor was lost with an answer before it
            try:
                answer = self._ray.get(ref)
            except Exception as error:  # whatever ray raises: a death, or an answer that cannot be pickled
                self._broken(slot, call, error)
            else:
                self._answered(slot, call, answer)

    def _answered(self, slot: Slot, call: Call, answer: Any) -> None:
        slot.answered(call)
        if call.attempt is None:
            self._fleet.started(slot, answer)
        elif answer.failure is not None:
            self._failed(slot, call, answer.failure, answer)
        elif call.what == "load":
            self.loads += 1
            slot.shelf = shelf_of(call.attempt.job)
            self._load_failures.pop(slot.shelf, None)
            slot.send("job", call.attempt)
        else:
            slot.job_seconds = answer.timing["seconds"]
            self._ledger.add(call.attempt.job, answer, call.attempt.attempts + 1)

    def _broken(self, slot: Slot, call: Call, error: Exception) -> None:
        """The call itself went wrong, not the work in it."""
        failure = Failure.of(error)
        if isinstance(error, self._ray.exceptions.RayTaskError) and call.attempt is not None:
            slot.answered(call)
            self._failed(slot, call, failure, None)
        else:
            self._lose(slot, failure, sure=False)

    def _expire(self) -> None:
        for slot in list(self._fleet):
            limit = slot.overdue(self._resources)
            if limit is not None:
                what = slot.calls[0].what
                error = TimeoutError(f"{what} took more than {limit:g} s; raise resources.{what}_timeout_s if it may")
                self._lose(slot, Failure.of(error), sure=True)

    def _lose(self, slot: Slot, failure: Failure, *, sure: bool) -> None:
        """End an actor; blame its first call, unless an answer may have been lost on the way with others queued."""
        first, *others = slot.calls
        self._end(slot)
        for call in reversed(others):
            assert call.attempt is not None
            call.attempt.alone = call.attempt.alone or not sure
            self._backlog.back(call.attempt)
        if first.attempt is None:
            self._fleet.failed_start(failure)
            return
        first.attempt.alone = True
        if sure or not others:
            self._failed(slot, first, failure, None)
        else:
            self._backlog.back(first.attempt)

    def _failed(self, slot: Slot, call: Call, failure: Failure, outcome: Outcome | None) -> None:
        """Do as the policy says about a failed job or load."""
        attempt = call.attempt
        assert attempt is not None
        shelf = shelf_of(attempt.job)
        if call.what == "load":
            slot.shelf = ("", "")
            self._load_failures[shelf] += 1
        else:
            attempt.attempts += 1
        tried = self._load_failures[shelf] if call.what == "load" else attempt.attempts
        decision = decide(failure, tried, self._resources.max_attempts)
        if decision.action is Action.STOP:
            error = SweepError(
                f"{attempt.job.task.name} {attempt.job.spec_json}: {failure.type}: {failure.message}\n"
                "Every further job would fail the same way: mend this and run the same command again"
            )
            error.add_note(f"On the worker:\n{failure.traceback}")
            raise error
        if call.what == "load" and decision.action is Action.RECORD:
            self._doomed[shelf] = failure
        if call.what == "load" or decision.action is Action.RETRY:
            attempt.divisor *= 2 if decision.halve and call.what == "job" else 1
            self._backlog.back(attempt)
        else:
            outcome = outcome or unanswered(failure, slot.site, seconds=time.monotonic() - slot.clock)
            self._ledger.add(attempt.job, outcome, attempt.attempts)
        if decision.new_actor and slot in self._fleet.slots:
            others = list(slot.calls)
            self._end(slot)
            for other in reversed(others):
                assert other.attempt is not None
                self._backlog.back(other.attempt)

    def _end(self, slot: Slot) -> None:
        self._fleet.drop(slot)
        slot.calls.clear()
        self.restarts += 1

    def _record_doomed(self, shelf: Shelf, slot: Slot) -> None:
        """Record the failure of a load for each job that waits for it, without another load."""
        while self._backlog.peek(shelf) is not None:
            outcome = unanswered(self._doomed[shelf], slot.site, seconds=0.0)
            self._ledger.add(self._backlog.pop(shelf).job, outcome, self._load_failures[shelf])

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
