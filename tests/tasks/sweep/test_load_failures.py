"""Failed loads by node: when a node may try again, and when no attempt is left."""

from __future__ import annotations

import time

import pytest

from tasks.sweep import engine
from tasks.sweep.actor import WorkerLocation
from tasks.sweep.engine import LoadFailures
from tasks.sweep.job_queue import JobGroup
from tasks.sweep.placement import ActorResources
from tasks.sweep.policy import Failure

MODEL, OTHER = JobGroup(ActorResources(), "m:load", "a"), JobGroup(ActorResources(), "m:load", "b")
HERE, THERE, AWAY = (WorkerLocation("actor", name, "cpu", name) for name in ("here", "there", "away"))
ABSENT, OUTAGE = Failure.of(FileNotFoundError("no weights on this node")), Failure.of(ConnectionError("hub"))


def now() -> float:
    return time.monotonic()


def test_a_node_without_the_weights_is_excluded_for_that_group_alone_and_others_are_not() -> None:
    failures = LoadFailures(3)
    assert failures.record_failure(MODEL, HERE, ABSENT, now()) == 1
    assert failures.excluded_groups("here") == {MODEL} and not failures.excluded_groups("there")
    assert failures.exhausted(MODEL, {"here", "there"}) is None
    node = failures.exhausted(MODEL, {"here"})
    assert node is not None and node.failure is ABSENT and node.location is HERE
    assert failures.exhausted(MODEL, set()) is None, "no actor is up: nothing is known"
    assert failures.exhausted(OTHER, {"here"}) is None


def test_after_as_many_nodes_as_attempts_the_group_is_exhausted_on_the_others_too() -> None:
    failures = LoadFailures(2)
    failures.record_failure(MODEL, HERE, ABSENT, now())
    assert failures.exhausted(MODEL, {"here", "there", "away"}) is None
    failures.record_failure(MODEL, THERE, ABSENT, now())
    assert failures.exhausted(MODEL, {"here", "there", "away"}) is not None


def test_an_outage_that_meets_all_actors_of_a_node_at_once_is_one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "PAUSE_S", 0.02)
    failures, requested_at = LoadFailures(2), now()
    assert [failures.record_failure(MODEL, HERE, OUTAGE, requested_at) for _ in range(4)] == [1, 1, 1, 1]
    assert failures.excluded_groups("here") == {MODEL} and failures.exhausted(MODEL, {"here"}) is None
    time.sleep(0.03)
    assert not failures.excluded_groups("here"), "it may try again"
    assert failures.record_failure(MODEL, HERE, OUTAGE, now()) == 2
    time.sleep(0.05)
    assert failures.excluded_groups("here") and failures.exhausted(MODEL, {"here"}) is not None


def test_a_load_that_succeeds_clears_its_node() -> None:
    failures = LoadFailures(3)
    failures.record_failure(MODEL, HERE, ABSENT, now())
    failures.record_failure(MODEL, THERE, ABSENT, now())
    failures.forget_failures(MODEL, HERE)
    assert not failures.excluded_groups("here") and failures.excluded_groups("there") and list(failures) == [MODEL]
    failures.forget_failures(MODEL, THERE)
    failures.forget_failures(MODEL, AWAY)
    assert list(failures) == []
