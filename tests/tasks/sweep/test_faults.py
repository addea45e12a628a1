"""Drivers that are killed or told to stop, and a cluster of two nodes of which one dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import toy

from tasks.errors import SweepError
from tasks.sweep.cluster import Resources
from tasks.sweep.engine import Summary, run

pytestmark = pytest.mark.slow

COUNT = 120  # jobs of 0.05 s on two actors

ROOT = Path(__file__).parents[3]


@contextmanager
def driver(store: Path, log: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, toy.__file__, str(store), str(log), str(COUNT)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}  # the driver is a file: its own folder is all it would find
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_until_stored(store: Path, at_least: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 240
    while len(toy.stored(store)) < at_least:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "nothing was stored in 240 s"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill_with_its_workers(process: subprocess.Popen[str], title: str = "ray::Worker") -> None:
    """SIGKILL; then wait for Ray's workers, which end with their raylet, after some 3 s. Its agents linger for 65 s."""
    children = psutil.Process(process.pid).children(recursive=True)
    workers = [child.pid for child in children if child.cmdline()[:1] and title in child.cmdline()[0]]
    assert workers
    process.kill()
    deadline = time.monotonic() + 60
    while any(alive(pid) for pid in workers):
        assert time.monotonic() < deadline, "workers outlive their driver by a minute"
        time.sleep(0.1)


def finish(store: Path, log: Path) -> str:
    with driver(store, log) as second:
        out, err = second.communicate(timeout=240)
    assert second.returncode == 0, err
    return out


def test_after_sigkill_a_rerun_finishes_and_repeats_no_stored_job(tmp_path: Path) -> None:
    store, log = tmp_path / "store", tmp_path / "log"
    store.mkdir()
    with driver(store, log) as first:
        wait_until_stored(store, COUNT // 4, first)
        kill_with_its_workers(first)
    before = [record["spec"] for record in toy.stored(store)]
    assert COUNT // 4 <= len(before) < COUNT
    ran_before = len(toy.logged(log, "run"))

    out = finish(store, log)

    assert f"planned={COUNT}, reused={len(before)}, done={COUNT - len(before)}, failed=0" in out
    records = toy.stored(store)
    assert len(records) == len({record["key"] for record in records}) == COUNT
    again = set(toy.logged(log, "run")[ran_before:])
    assert len(again) == len(toy.logged(log, "run")) - ran_before == COUNT - len(before)
    assert not again & {str(json.loads(spec)["n"]) for spec in before}, "a stored job was run again"


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)])
def test_a_stop_signal_drains_flushes_and_says_what_is_left(tmp_path: Path, signum: int, code: int) -> None:
    store, log = tmp_path / "store", tmp_path / "log"
    store.mkdir()
    with driver(store, log) as process:
        wait_until_stored(store, 10, process)
        process.send_signal(signum)
        _, err = process.communicate(timeout=120)

    stored = toy.stored(store)
    assert process.returncode == code, err
    name, left = signal.Signals(signum).name, COUNT - len(stored)
    assert f"stopped by {name}: {len(stored)} jobs stored, {left} left; run the same command again to go on" in err
    assert Counter(toy.logged(log, "run")).keys() == {str(json.loads(r["spec"])["n"]) for r in stored}
    assert 10 <= len(stored) < COUNT


@pytest.fixture
def cluster() -> Iterator[Any]:
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def test_a_sweep_uses_two_nodes_and_survives_the_death_of_one(tmp_path: Path, cluster: Any) -> None:
    node = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    store, log = tmp_path / "store", tmp_path / "log"
    jobs = toy.make(range(80), log, groups=2, sleep=0.15)
    port, removed = toy.port(store), []

    def append(records: Any) -> None:
        port.append(records)
        if len(toy.stored(store)) >= 30 and not removed:
            removed.append(node)
            cluster.remove_node(node, allow_graceful=False)

    resources = Resources(address=cluster.address, flush_seconds=0.5)
    summary: Summary = run(jobs, port._replace(append=append), resources)

    assert (summary.done, summary.failed) == (80, 0) and summary.restarts >= 1 and removed
    records = toy.stored(store)
    assert len({record["key"] for record in records}) == len(records) == 80
    assert len({record["timing"]["actor"] for record in records}) >= 2


def test_an_address_without_a_cluster_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match=r"127.0.0.1:1.*no Ray cluster answers.*ray start --head"):
        run(toy.make([1], tmp_path / "log"), toy.port(tmp_path), Resources(address="127.0.0.1:1"))


def test_without_an_address_a_cluster_on_this_machine_is_left_alone(tmp_path: Path, cluster: Any) -> None:
    assert cluster.address  # Ray would join it by itself, and refuse the size of our object store
    summary = run(toy.make(range(3), tmp_path / "log"), toy.port(tmp_path / "store"), Resources(actors=1))
    assert (summary.done, summary.failed) == (3, 0)
