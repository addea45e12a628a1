"""Failed loads by node: when it may try again, and when nobody is to."""

from __future__ import annotations

import time

import pytest

from tsfmscope.tasks.sweep import load_failures
from tsfmscope.tasks.sweep.actor import WorkerLocation
from tsfmscope.tasks.sweep.job_queue import JobGroup
from tsfmscope.tasks.sweep.load_failures import LoadFailures
from tsfmscope.tasks.sweep.placement import ActorResources
from tsfmscope.tasks.sweep.policy import Failure

MODEL, OTHER = JobGroup(ActorResources(), "m:load", "a"), JobGroup(ActorResources(), "m:load", "b")
HERE, THERE, AWAY = (WorkerLocation("actor", name, "cpu", name) for name in ("here", "there", "away"))
ABSENT, OUTAGE = Failure.of(FileNotFoundError("no weights on this node")), Failure.of(ConnectionError("hub"))


def now() -> float:
    return time.monotonic()


def test_a_node_without_the_weights_is_barred_from_them_alone_and_others_are_not() -> None:
    failed = LoadFailures(3)
    assert failed.failed(MODEL, HERE, ABSENT, now()) == 1
    assert failed.barred("here") == {MODEL} and not failed.barred("there")
    assert failed.hopeless(MODEL, {"here", "there"}) is None
    refusal = failed.hopeless(MODEL, {"here"})
    assert refusal is not None and refusal.failure is ABSENT and refusal.site is HERE
    assert failed.hopeless(MODEL, set()) is None, "no actor is up: nothing is known"
    assert failed.hopeless(OTHER, {"here"}) is None


def test_after_as_many_nodes_as_attempts_the_model_is_given_up_on_the_others_too() -> None:
    failed = LoadFailures(2)
    failed.failed(MODEL, HERE, ABSENT, now())
    assert failed.hopeless(MODEL, {"here", "there", "away"}) is None
    failed.failed(MODEL, THERE, ABSENT, now())
    assert failed.hopeless(MODEL, {"here", "there", "away"}) is not None


def test_an_outage_that_meets_all_actors_of_a_node_at_once_is_one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_failures, "PAUSE_S", 0.02)
    failed, sent = LoadFailures(2), now()
    assert [failed.failed(MODEL, HERE, OUTAGE, sent) for _ in range(4)] == [1, 1, 1, 1]
    assert failed.barred("here") == {MODEL} and failed.hopeless(MODEL, {"here"}) is None
    time.sleep(0.03)
    assert not failed.barred("here"), "it may try again"
    assert failed.failed(MODEL, HERE, OUTAGE, now()) == 2
    time.sleep(0.05)
    assert failed.barred("here") and failed.hopeless(MODEL, {"here"}) is not None


def test_a_load_that_succeeds_clears_its_node() -> None:
    failed = LoadFailures(3)
    failed.failed(MODEL, HERE, ABSENT, now())
    failed.failed(MODEL, THERE, ABSENT, now())
    failed.succeeded(MODEL, HERE)
    assert not failed.barred("here") and failed.barred("there") and list(failed) == [MODEL]
    failed.succeeded(MODEL, THERE)
    failed.succeeded(MODEL, AWAY)
    assert list(failed) == []
