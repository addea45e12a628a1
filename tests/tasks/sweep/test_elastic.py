"""Nodes that join, leave, and are taken away with notice, on a cluster of several raylets on this machine.

Every sweep here has max_attempts=1: a job that were blamed for what happened to its node would be a failure.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import toy

from tasks.job import Job
from tasks.sweep.actor_pool import Nodes
from tasks.sweep.cluster import Resources, connect
from tasks.sweep.engine import Summary, run
from tasks.sweep.placement import ActorResources
from tasks.sweep.progress import Progress

pytestmark = pytest.mark.slow

Event = Callable[[], None]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without room for actors; tests add nodes and end with none."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    with connect(Resources(address=cluster.address)):
        yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def nodes(cluster: Any) -> Iterator[Callable[..., Any]]:
    """Adds a node; those still there are removed at the end."""
    added: list[Any] = []

    def add(**options: Any) -> Any:
        added.append(cluster.add_node(**{"num_cpus": 1, **options}))
        return added[-1]

    yield add
    for node in added:
        if node in cluster.worker_nodes:
            cluster.remove_node(node, allow_graceful=True)
    deadline = time.monotonic() + 120
    while any(map(alive, added)):  # else the next test's first actor may be sent to a node that has gone
        assert time.monotonic() < deadline, "Ray has not noticed in two minutes that a node is gone"
        time.sleep(0.1)


def alive(node: Any) -> bool:
    import ray

    return any(one["NodeID"] == node.node_id and one["Alive"] for one in ray.nodes())


def drain(node: Any, seconds: float) -> None:
    """What an autoscaler does, or a machine that got SIGTERM, when it is about to be taken away."""
    from ray._private.worker import global_worker
    from ray.core.generated.autoscaler_pb2 import DrainNodeReason

    deadline = int((time.time() + seconds) * 1000)
    reason = DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    accepted, why = global_worker.gcs_client.drain_node(node.node_id, reason, "spot", deadline)
    assert accepted, why


def sweep(folder: Path, jobs: list[Job], events: list[tuple[Callable[[list[dict[str, Any]]], bool], Event]]) -> Summary:
    """Run the jobs; several times a second, if the first of the events is due by what is stored, let it happen."""

    def look(_: Progress) -> None:
        if events and events[0][0](toy.read_records(folder / "store")):
            events.pop(0)[1]()
            toy.log(str(folder / "log"), "event that")

    resources = Resources(address="auto", max_attempts=1, flush_seconds=0.2, start_timeout_s=120)
    summary = run(jobs, toy.port(folder / "store"), resources, report=look)
    assert not events, "the sweep ended before all had happened"
    return summary


def once(folder: Path, count: int) -> list[dict[str, Any]]:
    """The records, each key once and none a failure."""
    records = toy.read_records(folder / "store")
    assert len({record["key"] for record in records}) == len(records) == count
    assert [record["error"] for record in records if record["error"]] == []
    return records


def autoscaler_request() -> list[dict[str, float]]:
    """What Ray's autoscaler, if one ran, would find asked of it."""
    from ray._private.ray_constants import AUTOSCALER_RESOURCE_REQUEST_CHANNEL
    from ray.experimental.internal_kv import _internal_kv_get

    return list(json.loads(_internal_kv_get(AUTOSCALER_RESOURCE_REQUEST_CHANNEL) or "[]"))


def ran_on(records: list[dict[str, Any]]) -> Counter[str]:
    return Counter(record["rows"][0]["node"] for record in records)


def test_nodes_that_join_are_used_and_nodes_that_drain_or_die_are_done_without(
    tmp_path: Path, cluster: Any, nodes: Callable[..., Any]
) -> None:
    first, added = nodes(), []

    def join() -> None:
        added.append(nodes(num_cpus=2))

    def has_run(count: int, node: int) -> Callable[[list[dict[str, Any]]], bool]:
        return lambda records: ran_on(records)[added[node].node_id] >= count

    events = [
        (lambda records: len(records) >= 3, join),  # 1 actor, then 3
        (has_run(6, 0), lambda: drain(first, 60)),
        (lambda records: not alive(first), join),  # it has ended by itself: its actor was let go
        (has_run(6, 1), lambda: cluster.remove_node(added[0], allow_graceful=False)),
    ]
    jobs = toy.make(range(120), tmp_path / "log", groups=2, sleep=0.2, where=True, paced=[8, len(events)])
    summary = sweep(tmp_path, jobs, events)

    records = once(tmp_path, 120)
    assert (summary.done, summary.failed) == (120, 0)
    assert ran_on(records).keys() == {first.node_id, *(node.node_id for node in added)}
    extra = Counter(map(int, toy.read_log(tmp_path / "log", "run"))).total() - 120
    assert extra <= summary.handed_back, "a job ran again that had not been handed back"


def test_a_job_that_its_node_has_no_time_for_is_done_elsewhere(tmp_path: Path, nodes: Callable[..., Any]) -> None:
    first, added = nodes(), []

    def take_away() -> None:
        added.append(nodes())
        drain(first, 8)

    jobs = [
        *toy.make(range(4), tmp_path / "log", where=True, sleep=0.15),  # so long that each is handed out by itself
        *toy.make([9], tmp_path / "log", do="hang once", where=True),
    ]
    jobs += toy.make(range(10, 14), tmp_path / "log", where=True)
    began = time.monotonic()
    summary = sweep(tmp_path, jobs, [(lambda _: "9" in toy.read_log(tmp_path / "log", "run"), take_away)])

    records = once(tmp_path, 9)
    assert summary.handed_back >= 1 and time.monotonic() - began < 300, "the job that hangs for 600 s was waited for"
    (hung,) = [record for record in records if '"n":9' in record["spec"]]
    assert hung["rows"][0]["node"] == added[0].node_id
    assert Counter(toy.read_log(tmp_path / "log", "run"))["9"] == 2


def test_a_node_that_dies_while_its_actors_start_is_not_taken_for_a_broken_environment(
    tmp_path: Path, cluster: Any, nodes: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    doomed, log, latch = [nodes(num_cpus=6)], tmp_path / "log", tmp_path / "latch"
    judged: list[bool] = []  # of each start that failed, whether it was laid to a node that went
    original = Nodes.may_have_failed
    monkeypatch.setattr(
        Nodes, "may_have_failed", lambda self, since: judged.append(original(self, since)) or judged[-1]
    )

    def kill(_: Any) -> None:
        if doomed and len(toy.read_log(log, "starts")) >= 6:
            cluster.remove_node(doomed.pop(), allow_graceful=False)
            nodes(num_cpus=2)
        if len(judged) >= 6:  # not before: two quick actors would do all the jobs before the other deaths are heard of
            latch.touch()

    port = toy.port(tmp_path / "store")._replace(read=toy.Late(log, latch))
    resources = Resources(address="auto", max_attempts=1, flush_seconds=0.2, start_timeout_s=120)
    summary = run(toy.make(range(40), log), port, resources, report=kill)
    once(tmp_path, 40)
    assert judged[:6] == [True] * 6
    assert (summary.done, summary.failed) == (40, 0) and summary.restarts >= 6


@pytest.mark.parametrize(("notice", "runs"), [(30.0, 1), (1.0, 2)])
def test_an_actor_that_is_told_to_end_finishes_its_job_if_it_can_and_else_hands_it_back(
    tmp_path: Path, nodes: Callable[..., Any], notice: float, runs: int
) -> None:
    nodes()
    jobs = toy.make(range(5), tmp_path / "log", sleep=0.12)
    jobs.insert(2, toy.make([9], tmp_path / "log", do="told to end", sleep=3)[0])
    resources = Resources(address="auto", actors=1, max_attempts=1, notice_seconds=notice)
    summary = run(jobs, toy.port(tmp_path / "store"), resources)

    records = once(tmp_path, 6)
    assert Counter(toy.read_log(tmp_path / "log", "run"))["9"] == runs
    assert summary.handed_back == runs - 1 and summary.restarts == 1
    actors = {record["timing"]["actor"] for record in records}
    assert actors == {"actor-0", "actor-1"}, "an actor that was told to end did more, or was not replaced"


def test_jobs_go_where_labels_and_custom_resources_send_them(tmp_path: Path, nodes: Callable[..., Any]) -> None:
    spot = nodes(labels={"market": "spot"})
    kept = nodes(labels={"market": "on-demand"}, resources={"scratch": 1})
    log = tmp_path / "log"
    jobs = [
        *toy.make(range(10), log, where=True, sleep=0.1),
        *toy.make(range(20, 30), log, toy.PLAIN, where=True, sleep=0.1),
    ]
    placed = {
        "toy": ActorResources(labels={"market": "!on-demand"}, cpus=0.5),
        "plain": ActorResources(labels={"market": "on-demand"}, custom={"scratch": 1}, cpus=0.5),
    }
    port, asked = toy.port(tmp_path / "store"), []

    def append(records: Any) -> None:
        port.append(records)
        asked.append(autoscaler_request())

    resources = Resources(address="auto", actors=7, tasks=placed, flush_seconds=0.2)
    run(jobs, port._replace(append=append), resources)
    records = once(tmp_path, 20)
    by_task = {task: set(ran_on([r for r in records if r["task"] == task])) for task in placed}
    assert by_task == {"toy": {spot.node_id}, "plain": {kept.node_id}}

    # an autoscaler was asked for room for as many actors as are wanted, though the nodes have it for four alone
    plain, toys = {"CPU": 0.5, "scratch": 1}, {"CPU": 0.5}
    assert (
        sorted(asked[0], key=len) == [toys] * 4 + [plain] * 3 or sorted(asked[0], key=len) == [toys] * 3 + [plain] * 4
    )
    assert autoscaler_request() == []
