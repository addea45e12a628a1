from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import toy

from tasks.job import Job, Task
from tasks.sweep.actor import Worker, WorkerConfig, WorkerLocation
from tasks.sweep.actor_pool import ActorHandle, ActorPool, worker_callbacks
from tasks.sweep.cluster import Resources, connect
from tasks.sweep.engine import Summary, run
from tasks.sweep.job_queue import JobGroup
from tasks.sweep.placement import ActorResources
from tasks.sweep.progress import Progress
from tsfmscope.errors import SweepError

LOCAL = Resources(local_cpus=2, local_gpus=1, flush_seconds=0.3)


@pytest.fixture(scope="module", autouse=True)
def local_ray() -> Iterator[None]:
    with connect(LOCAL):
        yield


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def by_n(store: Path) -> dict[int, dict[str, Any]]:
    records = toy.read_records(store)
    assert len({record["key"] for record in records}) == len(records), "a key stands twice"
    return {json.loads(record["spec"])["n"]: record for record in records}


def test_every_job_runs_once_and_is_stored_once_with_all_that_a_record_holds(log: Path, store: Path) -> None:
    jobs = toy.make(range(60), log, groups=3, sleep=0.03)
    jobs[7] = toy.make([7], log, dump=2)[0]
    moments: list[Progress] = []
    runs_at_append: list[int] = []
    port = toy.port(store)

    def append(records: Any) -> None:
        runs_at_append.append(len(toy.read_log(log, "run")))
        port.append(records)

    summary = run([*jobs, *jobs[:5]], port._replace(append=append), LOCAL, report=moments.append)

    assert (summary.planned, summary.reused, summary.done, summary.failed) == (60, 0, 60, 0)
    assert sorted(map(int, toy.read_log(log, "run"))) == list(range(60))
    assert len(toy.read_log(log, "load")) == summary.loads <= 2 * 3, "more loads than actors times groups"
    assert len(runs_at_append) >= 3 and runs_at_append[0] < 50, "nothing was stored while jobs still ran"
    assert moments[-1].remaining == 0 and moments[-1].done == 60 and any(0 < m.done < 60 for m in moments)
    records = by_n(store)
    assert sorted(records) == list(range(60))
    record = records[30]
    assert record["key"] == jobs[30].key and record["spec"] == jobs[30].spec_json
    assert (record["task"], record["table"], record["error"]) == ("toy", "toy", None)
    row = {"n": 30, "model": "model g1", "data": "data of 30", "seed": jobs[30].seed, "batch": 8}
    assert record["rows"] == [row | {"threads": "1", "gpus": ""}]
    timing = record["timing"]
    assert set(timing) == {"seconds", "load_seconds", "actor", "node", "device", "started", "tokens_per_s"}
    assert timing["device"] == "cpu" and timing["actor"].startswith("actor-") and timing["tokens_per_s"] > 0
    assert sum(r["timing"]["load_seconds"] > 0 for r in records.values()) == summary.loads

    row = records[7]["rows"][0]  # 16 MB, written by the worker; its facts are in the first row
    assert row["rows"] == 2_000_000 and row["pid"] != os.getpid() and len(row["fingerprint"]) == 64
    assert Path(row["path"]).stat().st_size == row["bytes"]

    again = run(jobs, toy.port(store), LOCAL)
    assert (again.planned, again.reused, again.done, again.loads) == (60, 60, 0, 0)
    assert len(toy.read_log(log, "run")) == 60


FAULTS = [  # what the job does, error type, text in its message, attempts
    ("raise", "ZeroDivisionError", "is poisoned", 1),
    ("exit", "SystemExit", "5", 1),
    ("nothing", "ValueError", "expected at least one", 1),
    ("unpicklable", "TypeError", "generator", 1),
    ("unreadable", "LookupError", "has not got it", 1),
    ("stale", "StaleInputError", "expected 'old'", 1),
    ("hang", "TimeoutError", "job took more than 3 s; raise resources.job_timeout_s", 2),
    ("die", "ActorDiedError", "died", 2),
]
NUMBER = {do: 100 + index for index, (do, *_) in enumerate(FAULTS)}
SOUND = [*range(40), 200, 202, 203, *range(400, 405)]


@dataclass(frozen=True)
class Faulty:
    summary: Summary
    records: dict[int, dict[str, Any]]
    runs: Counter[int]
    loads: Counter[str]


@pytest.fixture(scope="module")
def faulty(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Faulty:
    """One sweep that meets every fault a job can have, among jobs that are sound."""
    folder = tmp_path_factory.mktemp("faulty")
    log, store, changed = folder / "log", folder / "store", folder / "input"
    changed.write_text("new")
    jobs = toy.make(range(40), log)
    for do, number in NUMBER.items():
        inputs = {str(changed): "old"} if do == "stale" else {}
        jobs.insert(4 * (number - 99), Job(toy.WORK, {"n": number, "log": str(log), "do": do}, inputs, "g0"))
    jobs += toy.make([200], log, do="memory") + toy.make([202], log, toy.PLAIN)
    jobs += toy.make([203], log, do="die once")
    jobs += [Job(toy.WORK, {"n": n, "log": str(log), "load": "raise"}, group="broken") for n in range(300, 350)]
    jobs += toy.make(range(400, 405), log)
    summary = run(jobs, toy.port(store), Resources(max_attempts=2, job_timeout_s=3, flush_seconds=0.3))
    return Faulty(summary, by_n(store), Counter(map(int, toy.read_log(log, "run"))), Counter(toy.read_log(log, "load")))


@pytest.mark.parametrize(("do", "kind", "text", "attempts"), FAULTS)
def test_a_poisoned_job_is_one_failure_record(faulty: Faulty, do: str, kind: str, text: str, attempts: int) -> None:
    record = faulty.records[NUMBER[do]]
    error = record["error"]
    assert record["rows"] == [] and error["type"] == kind and text in error["message"]
    assert error["attempts"] == attempts and error["transient"] == (attempts > 1) and kind in error["traceback"]
    # at most once more: a call with a job that dies or hangs is lost whole, whoever is to blame, and no attempt counts
    least = 0 if do == "stale" else attempts
    assert least <= faulty.runs[NUMBER[do]] <= least + (do != "stale")


def test_the_jobs_among_poisoned_ones_finish(faulty: Faulty) -> None:
    done = sorted(n for n, record in faulty.records.items() if record["error"] is None)
    assert done == SOUND and faulty.summary.done == len(SOUND)
    assert faulty.summary.failed == len(FAULTS) + 50 and faulty.summary.restarts >= 4
    assert len(faulty.records) == faulty.summary.planned


def test_the_time_of_a_job_that_hung_is_recorded(faulty: Faulty) -> None:
    assert 3 <= faulty.records[NUMBER["hang"]]["timing"]["seconds"] < 9


def test_a_job_whose_worker_was_killed_once_is_done_at_the_next_attempt(faulty: Faulty) -> None:
    assert faulty.runs[203] == 2 and faulty.records[203]["error"] is None


def test_out_of_memory_halves_the_batch(faulty: Faulty) -> None:
    assert faulty.runs[200] == 2 and faulty.records[200]["rows"][0]["batch"] == 4


def test_a_model_that_does_not_load_is_recorded_for_each_of_its_jobs_after_few_loads(faulty: Faulty) -> None:
    assert 1 <= faulty.loads["broken"] <= 2, "more loads than actors"
    for n in range(300, 350):
        error = faulty.records[n]["error"]
        assert (error["type"], error["message"]) == ("ValueError", "checkpoint without weights")
        assert faulty.runs[n] == 0


def test_a_job_without_a_loader_gets_no_model(faulty: Faulty) -> None:
    assert faulty.records[202]["rows"][0]["model"] is None and faulty.records[0]["rows"][0]["model"] == "model g0"


def test_missing_code_stops_the_sweep_and_says_where_it_was_sought(log: Path, store: Path) -> None:
    jobs = [*toy.make(range(3), log, toy.PLAIN), *toy.make([100], log, Task("toy", 1, "toy:absent"))]
    with pytest.raises(SweepError, match=r"toy:absent: got AttributeError.*PYTHONPATH="):
        run(jobs, toy.port(store), Resources(actors=1))
    assert sorted(by_n(store)) == [0, 1, 2], "what had finished is kept"


def test_the_batch_that_memory_was_enough_for_is_found_once_however_few_attempts_a_job_has(
    log: Path, store: Path
) -> None:
    jobs = toy.make(range(12), log, do="memory", fits=4)  # of 64: four times halved
    summary = run(jobs, toy.port(store), Resources(max_attempts=2, actors=2))
    assert (summary.done, summary.failed) == (12, 0)
    assert {record["rows"][0]["batch"] for record in by_n(store).values()} == {1}
    # 60 if each job began with the whole batch; 20 and a few, as jobs may share a call with one that dies.
    assert len(toy.read_log(log, "run")) <= 12 + 2 * 4 + 16


def test_jobs_that_turn_out_long_do_not_wait_behind_each_other(log: Path, store: Path) -> None:
    """Of two actors that were given many short jobs, one gets long ones; the other does not stand idle."""
    jobs = [*toy.make(range(400), log, toy.PLAIN), *toy.make(range(400, 406), log, toy.PLAIN, sleep=1.2)]
    run(jobs, toy.port(store), Resources(actors=2))
    long = Counter(record["timing"]["actor"] for n, record in by_n(store).items() if n >= 400)
    assert len(long) == 2 and min(long.values()) >= 2, "all were queued on one actor"
    assert len(toy.read_log(log, "run")) == 406


def test_an_actor_on_a_node_without_the_folder_is_kept_idle_while_another_works(store: Path) -> None:
    import ray

    worker = ray.remote(Worker).remote("actor-0", worker_callbacks(toy.port(store)), WorkerConfig(1, "/absent/folder"))
    site = ray.get(worker.start.remote())
    ray.kill(worker)
    assert "lacks the driver's folder /absent/folder" in site.unfit
    pool, (first, second) = (
        ActorPool("actor", toy.port(store), LOCAL),
        (ActorHandle(n, None, JobGroup(LOCAL.needs)) for n in "ab"),
    )
    pool.handles = [first, second]
    pool.record_start(first, site)
    assert first.is_up and not first.is_open and not pool.capable_nodes(JobGroup(LOCAL.needs))
    with pytest.raises(SweepError, match=r"workers do not start: node .* lacks the driver's folder"):
        pool.record_start(second, site)
    pool.record_start(second, WorkerLocation("b", "127.0.0.1", "cpu", "id"))
    assert second.is_open and pool.capable_nodes(JobGroup(LOCAL.needs)) == {"id"}


@pytest.mark.slow
@pytest.mark.parametrize(("load", "kind", "most"), [("die", "ActorDiedError", 2), ("hang", "TimeoutError", 2)])
def test_a_load_that_takes_its_actor_along_is_tried_to_the_limit(
    log: Path, store: Path, load: str, kind: str, most: int
) -> None:
    broken = [Job(toy.WORK, {"n": n, "log": str(log), "load": load}, group="broken") for n in range(100, 120)]
    resources = Resources(max_attempts=2, load_timeout_s=1.5)
    summary = run([*broken, *toy.make(range(5), log)], toy.port(store), resources)
    assert (summary.done, summary.failures) == (5, {kind: 20})
    assert Counter(toy.read_log(log, "load"))["broken"] <= most + 1
    assert by_n(store)[110]["error"]["transient"]


@pytest.mark.parametrize(
    ("resources", "named"),
    [
        (Resources(gpus=4), "'GPU': 4"),
        (Resources(tasks={"plain": ActorResources(labels={"market": "spot"})}), "labels {'market': 'spot'}"),
    ],
    ids=["of all kinds", "of one kind, though others could work"],
)
def test_resources_that_no_node_has_are_refused_at_once(
    log: Path, store: Path, resources: Resources, named: str
) -> None:
    with pytest.raises(SweepError, match=rf"no actor came up .*{named}"):
        run([*toy.make([1], log), *toy.make([2], log, toy.PLAIN)], toy.port(store), resources)


def test_as_many_actors_as_their_reserved_memory_leaves_room_for(log: Path, store: Path) -> None:
    import ray

    memory_mb = int(0.6 * ray.cluster_resources()["memory"] / 2**20)
    run(toy.make(range(20), log, toy.PLAIN, sleep=0.1), toy.port(store), Resources(memory_mb=memory_mb))
    assert {record["timing"]["actor"] for record in by_n(store).values()} == {"actor-0"}


def test_when_nothing_is_missing_ray_is_not_even_imported(tmp_path: Path) -> None:
    code = (
        "import sys, toy; from pathlib import Path; from tasks.sweep.engine import run; "
        "from tasks.sweep.cluster import Resources; port = toy.port(Path(sys.argv[1])); "
        "jobs = toy.make(range(5), 'log'); port.append([{'key': job.key} for job in jobs]); "
        "summary = run(jobs, port, Resources()); assert summary.reused == 5 and 'ray' not in sys.modules, summary"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=60)
