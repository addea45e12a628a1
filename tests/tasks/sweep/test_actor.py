"""A worker in this process: what it does once a job has failed in passing."""

from __future__ import annotations

import gc
import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
import toy

from tasks.job import Job
from tasks.sweep.actor import Outcome, Worker, WorkerConfig


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    # A worker collects garbage before it loads a model: 6 s for the objects that the tests before this file left.
    gc.freeze()
    yield Worker("actor-0", toy.port(tmp_path / "store"), WorkerConfig(1, os.getcwd()))
    gc.unfreeze()


def outcomes(worker: Worker, *jobs: Job) -> list[Outcome]:
    answered: list[Outcome] = pickle.loads(worker.run_all([(job, 1) for job in jobs], 60.0))
    return answered


@pytest.mark.parametrize(("do", "spoils"), [("memory", True), ("raise", False)])
def test_jobs_queued_behind_one_that_failed_in_passing_wait_for_the_model_to_be_loaded_anew(
    worker: Worker, tmp_path: Path, do: str, spoils: bool
) -> None:
    log = tmp_path / "log"
    bad, *sound = [*toy.make([0], log, do=do), *toy.make(range(1, 4), log)]
    (plain,) = toy.make([4], log, toy.PLAIN)
    worker.load(bad)
    (failed,) = outcomes(worker, bad, *sound)
    assert failed.failure is not None and failed.failure.transient == spoils
    behind = outcomes(worker, *sound)
    assert [one.is_unfinished for one in behind] == ([True] if spoils else [False] * 3) and not behind[0].is_leaving
    assert not outcomes(worker, plain)[0].is_unfinished, "a job without a model"
    worker.load(bad)
    assert [one.rows[0]["n"] for one in outcomes(worker, *sound)] == [1, 2, 3]


def test_jobs_queued_behind_a_long_one_are_handed_back_and_those_sent_later_are_done(
    worker: Worker, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    (long,) = toy.make([0], log, toy.PLAIN, sleep=1.1)
    pairs = [(job, 1) for job in toy.make(range(1, 4), log, toy.PLAIN)]
    assert len(pickle.loads(worker.run_all(pairs, 60.0, was_queued=True))) == 3, "nothing was before them"
    worker.run_all([(long, 1)], 60.0)
    assert [pickle.loads(worker.run_all(pairs, 60.0, was_queued=True)) for _ in range(2)] == [[], []]
    assert len(pickle.loads(worker.run_all(pairs, 60.0))) == 3
    assert len(pickle.loads(worker.run_all(pairs, 60.0, was_queued=True))) == 3
