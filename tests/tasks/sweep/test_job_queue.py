from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest

from tasks.job import Job, Task
from tasks.sweep import job_queue as module
from tasks.sweep.job_queue import JobGroup, group_of
from tasks.sweep.placement import ActorResources

TASK = Task("t", 1, "m:f", "m:l")
CPU, GPU = ActorResources(), ActorResources(gpus=0.5)


def make_queue(jobs: Iterable[Job], find_missing: Any, chunk: int) -> module.JobQueue:
    return module.JobQueue(jobs, find_missing, chunk, lambda job: GPU if job.spec.get("gpu") else CPU)


def make_group(group: str, needs: ActorResources = CPU) -> JobGroup:
    return JobGroup(needs, "m:l", group)


def jobs(count: int, groups: int = 1) -> list[Job]:
    return [Job(TASK, {"n": n}, group=f"g{n * groups // count}") for n in range(count)]


def drain(queue: module.JobQueue) -> list[int]:
    numbers = []
    while (group := queue.choose({}, CPU)) is not None:
        numbers.append(queue.pop(group).job.spec["n"])
    return numbers


def test_stored_jobs_are_left_out_and_counted_and_the_order_is_kept() -> None:
    all_jobs = jobs(10)
    have = {job.key for job in all_jobs[::3]}
    queue = make_queue(all_jobs, lambda keys: [k for k in keys if k not in have], chunk=4)
    queue.refill(100)
    assert (queue.n_planned, queue.n_reused, len(queue), queue.is_complete) == (10, 4, 6, True)
    assert drain(queue) == [1, 2, 4, 5, 7, 8]


def test_planning_reads_no_more_chunks_than_wanted() -> None:
    read: list[int] = []

    def stream() -> Iterator[Job]:
        for job in jobs(100):
            read.append(job.spec["n"])
            yield job

    batch: list[int] = []

    def missing(keys: Sequence[str]) -> Sequence[str]:
        batch.append(len(keys))
        return keys

    queue = make_queue(stream(), missing, chunk=10)
    queue.refill(15)
    assert (len(read), batch, len(queue), queue.is_complete, queue.is_total_known) == (20, [10, 10], 20, False, False)
    queue.refill(1000)
    assert (len(queue), queue.is_complete, queue.is_total_known) == (100, True, True)


def test_stored_chunks_are_skipped_until_one_has_work() -> None:
    all_jobs = jobs(50)
    last = all_jobs[-1].key
    queue = make_queue(all_jobs, lambda keys: [k for k in keys if k == last], chunk=10)
    queue.refill(1)
    assert (len(queue), queue.n_reused) == (1, 49)


def test_the_length_of_a_list_is_known_before_it_is_planned() -> None:
    queue = make_queue(jobs(50), lambda keys: keys, chunk=10)
    queue.refill(1)
    assert (queue.n_planned, queue.is_total_known, len(queue)) == (50, True, 10)


def test_a_job_named_twice_is_planned_once() -> None:
    queue = make_queue([*jobs(5), *jobs(5)], lambda keys: keys, chunk=3)
    queue.refill(100)
    assert (queue.n_planned, drain(queue)) == (5, [0, 1, 2, 3, 4])


def test_a_job_put_back_is_the_next() -> None:
    queue = make_queue(jobs(3), lambda keys: keys, chunk=10)
    queue.refill(1)
    attempt = queue.pop(make_group("g0"))
    assert (len(queue), queue.ready[CPU]) == (2, 2)
    queue.put_back(attempt)
    assert queue.peek(make_group("g0")) is attempt and (len(queue), queue.ready[CPU]) == (3, 3)


@pytest.mark.parametrize(
    ("n_actors", "chosen"),
    [({}, "g0"), ({"g0": 1}, "g1"), ({"g0": 1, "g1": 1}, "g2"), ({"g0": 1, "g1": 1, "g2": 2}, "g0")],
)
def test_an_idle_actor_takes_an_unserved_group_first_then_the_longest_queue(
    n_actors: dict[str, int], chosen: str
) -> None:
    queue = make_queue(jobs(30, groups=3), lambda keys: keys, chunk=100)
    queue.refill(1)
    actors = {make_group(group): count for group, count in n_actors.items()}
    assert queue.choose(actors, CPU) == make_group(chosen)


def test_an_actor_is_offered_jobs_of_its_kind_only() -> None:
    mixed = [Job(TASK, {"n": n, "gpu": n % 2}, group="g0") for n in range(6)]
    queue = make_queue(mixed, lambda keys: keys, chunk=10)
    queue.refill(1)
    assert queue.ready == {CPU: 3, GPU: 3}
    assert drain(queue) == [0, 2, 4], "what is drained is the CPU's"
    assert queue.choose({}, CPU) is None and queue.choose({}, GPU) == make_group("g0", GPU)


@pytest.mark.parametrize(
    ("first", "second", "shared"),
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
    first: dict[str, str], second: dict[str, str], shared: bool
) -> None:
    groups = [group_of(Job(TASK, {"n": 1}, inputs, "g"), CPU) for inputs in (first, second)]
    assert (groups[0] == groups[1]) == shared


def test_jobs_without_a_loader_share_a_group() -> None:
    plain = Task("p", 1, "m:f")
    a, b = (group_of(Job(plain, {}, {"model:a": group}, group), CPU) for group in "ab")
    assert a == b != group_of(Job(TASK, {}), CPU)


def test_jobs_planned_ahead_keep_their_order_and_are_counted_before_they_are_ready() -> None:
    all_jobs = jobs(50)
    have = {job.key for job in all_jobs[::7]}
    queue = make_queue(iter(all_jobs), lambda keys: [k for k in keys if k not in have], chunk=10)
    queue.refill(1)
    while not queue.is_complete:
        queue.plan_ahead()
    assert (queue.n_planned, queue.is_total_known, queue.n_reused, len(queue)) == (50, True, 8, 42)
    numbers = []
    while len(queue):
        queue.refill(1)
        numbers += drain(queue)
    assert numbers == [n for n in range(50) if n % 7]
