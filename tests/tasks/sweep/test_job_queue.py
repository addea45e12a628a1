from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsfmscope.tasks.job import Job, Task
from tsfmscope.tasks.sweep import job_queue as module
from tsfmscope.tasks.sweep.job_queue import Digests, JobGroup, shelf_of
from tsfmscope.tasks.sweep.placement import ActorResources

TASK = Task("t", 1, "m:f", "m:l")
CPU, GPU = ActorResources(), ActorResources(gpus=0.5)


def Backlog(jobs: Iterable[Job], missing: Any, chunk: int) -> module.JobQueue:
    return module.JobQueue(jobs, missing, chunk, lambda job: GPU if job.spec.get("gpu") else CPU)


def shelf(group: str, needs: ActorResources = CPU) -> JobGroup:
    return JobGroup(needs, "m:l", group)


def jobs(count: int, groups: int = 1) -> list[Job]:
    return [Job(TASK, {"n": n}, group=f"g{n * groups // count}") for n in range(count)]


def drained(backlog: module.JobQueue) -> list[int]:
    numbers = []
    while (shelf := backlog.choose({}, CPU)) is not None:
        numbers.append(backlog.pop(shelf).job.spec["n"])
    return numbers


def test_stored_jobs_are_left_out_and_counted_and_the_order_is_kept() -> None:
    all_jobs = jobs(10)
    have = {job.key for job in all_jobs[::3]}
    backlog = Backlog(all_jobs, lambda keys: [k for k in keys if k not in have], chunk=4)
    backlog.refill(100)
    assert (backlog.planned, backlog.reused, len(backlog), backlog.complete) == (10, 4, 6, True)
    assert drained(backlog) == [1, 2, 4, 5, 7, 8]


def test_planning_reads_no_more_chunks_than_wanted() -> None:
    read: list[int] = []

    def stream() -> Iterator[Job]:
        for job in jobs(100):
            read.append(job.spec["n"])
            yield job

    asked: list[int] = []

    def missing(keys: Sequence[str]) -> Sequence[str]:
        asked.append(len(keys))
        return keys

    backlog = Backlog(stream(), missing, chunk=10)
    backlog.refill(15)
    assert (len(read), asked, len(backlog), backlog.complete, backlog.counted) == (20, [10, 10], 20, False, False)
    backlog.refill(1000)
    assert (len(backlog), backlog.complete, backlog.counted) == (100, True, True)


def test_stored_chunks_are_skipped_until_one_has_work() -> None:
    all_jobs = jobs(50)
    last = all_jobs[-1].key
    backlog = Backlog(all_jobs, lambda keys: [k for k in keys if k == last], chunk=10)
    backlog.refill(1)
    assert (len(backlog), backlog.reused) == (1, 49)


def test_the_length_of_a_list_is_known_before_it_is_planned() -> None:
    backlog = Backlog(jobs(50), lambda keys: keys, chunk=10)
    backlog.refill(1)
    assert (backlog.planned, backlog.counted, len(backlog)) == (50, True, 10)


def test_a_job_named_twice_is_planned_once() -> None:
    backlog = Backlog([*jobs(5), *jobs(5)], lambda keys: keys, chunk=3)
    backlog.refill(100)
    assert (backlog.planned, drained(backlog)) == (5, [0, 1, 2, 3, 4])


def test_a_job_put_back_is_the_next() -> None:
    backlog = Backlog(jobs(3), lambda keys: keys, chunk=10)
    backlog.refill(1)
    attempt = backlog.pop(shelf("g0"))
    assert (len(backlog), backlog.ready[CPU]) == (2, 2)
    backlog.back(attempt)
    assert backlog.peek(shelf("g0")) is attempt and (len(backlog), backlog.ready[CPU]) == (3, 3)


@pytest.mark.parametrize(
    ("served", "chosen"),
    [({}, "g0"), ({"g0": 1}, "g1"), ({"g0": 1, "g1": 1}, "g2"), ({"g0": 1, "g1": 1, "g2": 2}, "g0")],
)
def test_an_idle_actor_takes_an_unserved_group_first_then_the_longest_queue(
    served: dict[str, int], chosen: str
) -> None:
    backlog = Backlog(jobs(30, groups=3), lambda keys: keys, chunk=100)
    backlog.refill(1)
    served_shelves = {shelf(group): count for group, count in served.items()}
    assert backlog.choose(served_shelves, CPU) == shelf(chosen)


def test_an_actor_is_offered_jobs_of_its_kind_only() -> None:
    mixed = [Job(TASK, {"n": n, "gpu": n % 2}, group="g0") for n in range(6)]
    backlog = Backlog(mixed, lambda keys: keys, chunk=10)
    backlog.refill(1)
    assert backlog.ready == {CPU: 3, GPU: 3}
    assert drained(backlog) == [0, 2, 4], "what is drained is the CPU's"
    assert backlog.choose({}, CPU) is None and backlog.choose({}, GPU) == shelf("g0", GPU)


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ({"model:a": "1"}, {"model:a": "1"}, True),
        ({"model:a": "1", "data": "x"}, {"model:a": "1", "data": "y"}, True),  # what is read does not matter
        ({"model:a": "1"}, {"model:b": "1"}, False),  # snapshots of one training
        ({"model:a": "1"}, {"model:a": "2"}, False),  # its files have changed since
        ({"model:a": "1", "model:b": "2"}, {"model:b": "2", "model:a": "1"}, True),
        ({"model:a": "1", "model:b": "2"}, {"model:a": "1"}, False),  # a compressed model and its base, the base alone
        ({"data": "x"}, {"data": "y"}, True),
    ],
)
def test_jobs_of_one_group_share_a_loaded_model_only_if_they_read_the_same_models(
    one: dict[str, str], other: dict[str, str], shared: bool
) -> None:
    shelves = [shelf_of(Job(TASK, {"n": 1}, inputs, "g"), CPU) for inputs in (one, other)]
    assert (shelves[0] == shelves[1]) == shared


def test_jobs_without_a_loader_share_a_shelf() -> None:
    plain = Task("p", 1, "m:f")
    a, b = (shelf_of(Job(plain, {}, {"model:a": group}, group), CPU) for group in "ab")
    assert a == b != shelf_of(Job(TASK, {}), CPU)


def test_jobs_planned_ahead_keep_their_order_and_are_counted_before_they_stand_ready() -> None:
    all_jobs = jobs(50)
    have = {job.key for job in all_jobs[::7]}
    backlog = Backlog(iter(all_jobs), lambda keys: [k for k in keys if k not in have], chunk=10)
    backlog.refill(1)
    while not backlog.complete:
        backlog.plan_ahead()
    assert (backlog.planned, backlog.counted, backlog.reused, len(backlog)) == (50, True, 8, 42)
    found = []
    while len(backlog):
        backlog.refill(1)
        found += drained(backlog)
    assert found == [n for n in range(50) if n % 7]


@given(st.lists(st.lists(st.integers(0, 300), max_size=40), max_size=30))
@settings(deadline=None, max_examples=60)
def test_digests_behave_as_a_set_that_says_what_was_new(chunks: list[list[int]]) -> None:
    digests, twin = Digests(), set[bytes]()
    for chunk in chunks:
        asked = [hashlib.sha256(str(n).encode()).digest() if n % 3 else bytes([n % 251]) * 2 + bytes(30) for n in chunk]
        expected = []
        for one in asked:
            expected.append(one not in twin)
            twin.add(one)
        assert digests.add(asked).tolist() == expected
        assert len(digests) == len(twin)
