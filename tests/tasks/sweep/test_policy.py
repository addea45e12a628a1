from __future__ import annotations

import pickle

import pytest

from tasks.job import Job, Task
from tasks.sweep.actor import Outcome
from tasks.sweep.policy import Action, Decision, Failure, decide
from tasks.sweep.records import record
from tsfmscope.errors import DataError, MissingOnHubError, ModelError, StaleInputError, SweepError

RETRY, RECORD, STOP = Action.RETRY, Action.RECORD, Action.STOP


def make_error(name: str, text: str = "", *bases: type[Exception]) -> Exception:
    """An exception of a library that need not be imported for its name."""
    return type(name, bases or (Exception,), {})(text)


DIED = make_error("ActorDiedError", "The actor died unexpectedly", type("RayActorError", (Exception,), {}))
GPU_MEMORY = make_error("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2 GiB", RuntimeError)
CASES = [
    (DIED, Decision(RETRY), True),
    (make_error("WorkerCrashedError"), Decision(RETRY), True),
    (make_error("NodeDiedError"), Decision(RETRY), True),
    (make_error("OwnerDiedError", "", type("ObjectLostError", (Exception,), {})), Decision(RETRY), True),
    (TimeoutError("job took more than 5 s"), Decision(RETRY), True),
    (ConnectionResetError("peer"), Decision(RETRY), True),
    (GPU_MEMORY, Decision(RETRY, halve=True), True),
    (RuntimeError("CUDA error: out of memory"), Decision(RETRY, halve=True), True),
    (make_error("ActorDiedError", "killed due to the node running low on memory"), Decision(RETRY, halve=True), True),
    (MemoryError(), Decision(RETRY, halve=True), True),
    (make_error("AcceleratorError", "device-side assert", RuntimeError), Decision(RETRY, new_actor=True), True),
    (StaleInputError("changed"), Decision(RECORD), False),
    (DataError("all NaN"), Decision(RECORD), False),
    (ModelError("no weights"), Decision(RECORD), False),
    (MissingOnHubError("404"), Decision(RECORD), False),
    (ValueError("wrong"), Decision(RECORD), False),
    (RuntimeError("shape mismatch"), Decision(RECORD), False),
    (FileNotFoundError(2, "absent"), Decision(RECORD), False),
    (SystemExit(1), Decision(RECORD), False),
    (OSError(28, "No space left on device"), Decision(STOP), False),
    (OSError(30, "Read-only file system"), Decision(STOP), False),
    (SweepError("no such entry"), Decision(STOP), False),
]


@pytest.mark.parametrize(("error", "decision", "transient"), CASES, ids=lambda v: repr(v)[:40])
def test_the_first_failure_is_retried_recorded_or_stops(
    error: BaseException, decision: Decision, transient: bool
) -> None:
    failure = Failure.of(error)
    assert decide(failure, 1, 3) == decision
    assert failure.transient == transient


@pytest.mark.parametrize(("error", "decision", "transient"), CASES, ids=lambda v: repr(v)[:40])
def test_the_last_attempt_is_never_retried(error: BaseException, decision: Decision, transient: bool) -> None:
    last = decide(Failure.of(error), 3, 3)
    assert last.action is (STOP if decision.action is STOP else RECORD)
    assert not last.halve and last.new_actor == decision.new_actor


def missing_package_error(error: Exception) -> Exception:
    """The error, as families raise it where a package is missing."""
    try:
        raise error from ModuleNotFoundError("No module named 'uni2ts'", name="uni2ts")
    except Exception as raised:
        return raised


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (ModuleNotFoundError("No module named 'uni2ts'"), True),
        (ImportError("cannot import name 'x'"), True),
        (missing_package_error(ModelError("family moirai: module 'uni2ts' is missing")), True),
        (TimeoutError("late"), True),
        (ModelError("no weights"), False),
        (KeyError("x"), False),
    ],
    ids=repr,
)
def test_the_next_run_tries_again_what_came_of_the_machine(error: Exception, again: bool) -> None:
    stored = record(Job(Task("t", 1, "m:f"), {}), Outcome([], Failure.of(error), {}), 1)
    assert stored["error"]["transient"] is again


def test_a_package_that_is_missing_is_not_asked_for_twice_in_one_run() -> None:
    assert decide(Failure.of(ModuleNotFoundError("No module named 'uni2ts'")), 1, 3) == Decision(RECORD)


def test_transient_failures_are_tried_exactly_max_attempts_times() -> None:
    actions = [decide(Failure.of(GPU_MEMORY), attempt, 4).action for attempt in range(1, 5)]
    assert actions == [RETRY, RETRY, RETRY, RECORD]


def test_a_failure_keeps_type_message_and_traceback_and_is_picklable_whatever_the_error() -> None:
    class Local(Exception):
        def __init__(self, code: int, lock: object) -> None:
            super().__init__(f"code {code}")
            self.lock = lock

    try:
        raise Local(3, lambda: None)
    except Local as error:
        failure = pickle.loads(pickle.dumps(Failure.of(error)))
    assert (failure.type, failure.message) == ("Local", "code 3")
    assert "raise Local(3" in failure.traceback and {"Local", "Exception"} <= failure.ancestry


def test_rays_wrapper_is_taken_off_a_workers_exception() -> None:
    wrapped = make_error("RayTaskError(ValueError)", "ray: long text")
    wrapped.cause = ValueError("inner")  # type: ignore[attr-defined]
    failure = Failure.of(wrapped)
    assert (failure.type, failure.message) == ("ValueError", "inner")


def test_where_memory_lacks_the_batch_is_halved_beyond_the_attempts_unless_ray_killed_the_actor() -> None:
    by_ray = make_error("OutOfMemoryError", "killed", type("RayError", (Exception,), {}))
    assert decide(Failure.of(GPU_MEMORY), 3, 3, divisor=8) == Decision(RETRY, halve=True)
    assert decide(Failure.of(GPU_MEMORY), 7, 3, divisor=64) == Decision(RECORD)
    assert decide(Failure.of(by_ray), 3, 3, divisor=8) == Decision(RECORD)
