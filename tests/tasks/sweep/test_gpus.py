"""Actors on GPUs: logical ones, which Ray hands out on any machine, and a real one (marker gpu)."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import toy

from tasks.sweep.actor import Worker, WorkerConfig
from tasks.sweep.actor_pool import worker_callbacks
from tasks.sweep.cluster import Resources, connect
from tasks.sweep.engine import Summary, run
from tasks.sweep.placement import ActorResources
from tsfmscope.errors import SweepError

MIXED = {"toy": ActorResources(cpus=0.5, gpus=0.5, actors=4), "plain": ActorResources(cpus=0.5, actors=2)}


@pytest.fixture(scope="module")
def two_gpus() -> Iterator[None]:
    with connect(Resources(local_cpus=4, local_gpus=2)):
        yield


def sweep(folder: Path, resources: Resources, models: int = 3, **spec: Any) -> tuple[Summary, list[dict[str, Any]]]:
    """Jobs with models and jobs without, mixed, that end once all actors are at work; the summary and the records."""
    log = folder / "log"
    spec |= {"sleep": 0.15, "meet": sum(needs.actors or 0 for needs in resources.tasks.values())}
    with_model = toy.make(range(48), log, groups=models, **spec)
    without = toy.make(range(100, 124), log, toy.PLAIN, **spec)
    jobs = [job for pair in zip(with_model[::2], with_model[1::2], without, strict=True) for job in pair]
    summary = run(sorted(jobs, key=lambda job: job.group), toy.port(folder / "store"), resources)
    records = toy.read_records(folder / "store")
    assert len({record["key"] for record in records}) == len(records) == 72 and summary.failed == 0
    return summary, records


def of(records: list[dict[str, Any]], task: str) -> dict[str, list[Mapping[str, Any]]]:
    """Actor -> its records of a task."""
    found = defaultdict(list)
    for record in records:
        if record["task"] == task:
            found[record["timing"]["actor"]].append(record)
    return found


def devices_of(records: list[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """Devices that rows and timings tell of."""
    return {(record["rows"][0]["gpus"], record["timing"]["device"]) for record in records}


@pytest.mark.slow
def test_half_gpu_actors_share_a_device_while_a_cpu_job_beside_them_holds_none(two_gpus: None, tmp_path: Path) -> None:
    summary, records = sweep(tmp_path, Resources(tasks=MIXED))

    on_gpus, beside = of(records, "toy"), of(records, "plain")
    assert (len(on_gpus), len(beside)) == (4, 2) and not set(on_gpus) & set(beside)
    devices = defaultdict(list)
    for actor, mine in on_gpus.items():
        assert len(devices_of(mine)) == 1, "an actor changed its device"
        ((visible, device),) = devices_of(mine)
        assert device == f"cuda:{visible}" and visible in ("0", "1")
        devices[visible].append(actor)
    assert {visible: len(actors) for visible, actors in devices.items()} == {"0": 2, "1": 2}
    assert all(devices_of(mine) == {("", "cpu")} for mine in beside.values())

    assert 3 <= summary.loads <= 4 * 3, "more loads than actors times models"
    begun = {task: [r["timing"]["started"] for actor in of(records, task).values() for r in actor] for task in MIXED}
    assert max(begun["plain"]) > min(begun["toy"]) and max(begun["toy"]) > min(begun["plain"]), "one kind after another"


@pytest.mark.slow
def test_an_actor_that_shows_two_devices_stops_the_sweep(two_gpus: None, tmp_path: Path) -> None:
    import ray

    leaky = {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0,1"}
    port = ray.put(worker_callbacks(toy.port(tmp_path)))
    options = {"num_cpus": 0.5, "num_gpus": 0.5, "runtime_env": {"env_vars": leaky}}
    actor = ray.remote(Worker).options(**options).remote("leaky", port, WorkerConfig(1, str(tmp_path), devices=1))
    with pytest.raises(SweepError, match=r"Ray assigned \['?\d'?\], CUDA_VISIBLE_DEVICES shows \['0', '1'\]"):
        ray.get(actor.start.remote())
    ray.kill(actor)


@pytest.mark.slow
def test_ray_knows_actors_and_calls_by_their_model(two_gpus: None, tmp_path: Path) -> None:
    import ray

    names: set[str] = set()
    port = toy.port(tmp_path / "store")

    def append(records: Any) -> None:
        names.update(ray.util.list_named_actors())
        port.append(records)

    jobs = toy.make(range(24), tmp_path / "log", groups=2, sleep=0.15)
    run(jobs, port._replace(append=append), Resources(cpus=0.5, actors=2, flush_seconds=0.2))

    assert sorted(name.rsplit(" ", 1)[0] for name in names) == ["g0 actor-0", "g1 actor-1"]
    expected, deadline = (
        {f"task::{what} {model}" for what in ("load", "run") for model in ("g0", "g1")},
        time.time() + 60,
    )
    while not expected <= (calls := {event["cat"] for event in ray.timeline()}):  # workers tell of them once a second
        assert time.time() < deadline, calls
        time.sleep(0.5)


@pytest.mark.gpu
def test_on_a_real_gpu_two_halves_share_it_and_a_cpu_job_beside_them_sees_none(tmp_path: Path) -> None:
    with connect(Resources(local_cpus=4)):
        half = {"toy": ActorResources(gpus=0.5, actors=2), "plain": ActorResources(actors=1)}
        summary, records = sweep(tmp_path, Resources(tasks=half), torch=True)
    on_gpu = of(records, "toy")
    assert len(on_gpu) == 2 and summary.loads <= 2 * 3
    seen = {json.dumps(r["rows"][0]["torch"]) for mine in on_gpu.values() for r in mine}
    assert len(seen) == 1, "the two halves are of different GPUs"
    (facts,) = map(json.loads, seen)
    assert facts["count"] == 1 and facts["device"] == "cuda:0" and facts["sum"] == 1000.0
    for mine in of(records, "plain").values():
        assert {r["rows"][0]["torch"]["count"] for r in mine} == {0}
