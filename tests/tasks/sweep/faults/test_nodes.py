"""A node on which Ray ends a worker that needs too much memory, and a driver whose own raylet dies."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from launcher import Launcher
from results import check_store, executed, stored_keys
from test_stopped_drivers import wait_until_stored

from store.stage_outputs import read_rows
from tasks.sweep.cluster import QUIET, environment, worker_environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HEADROOM_MB = 1500  # of the machine's memory, to the limit at which Ray ends a worker


@contextmanager
def own_cluster(folder: Path, **variables: str) -> Iterator[tuple[object, Launcher]]:
    """A cluster whose only node may be damaged, and a launcher of its drivers."""
    from ray.cluster_utils import Cluster

    with environment({**QUIET, **worker_environment(1), **variables}):
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
        launcher = Launcher(cluster.address, folder)
        try:
            yield cluster, launcher
        finally:
            launcher.close()
            cluster.shutdown()


def test_a_driver_ends_with_the_raylet_that_it_is_connected_to_and_the_next_continues(
    tmp_path: Path, launcher: Launcher
) -> None:
    log, latch = tmp_path / "log", tmp_path / "latch"
    free = {"kind": "learn", "numbers": list(range(40)), "log_path": str(log), "sleep": 0.05}
    calls = [free, {**free, "numbers": list(range(40, 60)), "latch": str(latch)}]
    (tmp_path / "drivers").mkdir()
    with own_cluster(tmp_path / "drivers") as (cluster, drivers):
        driver = drivers.start(tmp_path, calls)
        wait_until_stored(driver, tmp_path, 20)
        cluster.head_node.kill_raylet()
        began = time.monotonic()
        assert drivers.wait(driver) != 0
        assert time.monotonic() - began < 120
        latch.touch()
    before, start = stored_keys(tmp_path), len(executed(log))
    launcher.run(tmp_path, calls)
    assert len(before) >= 20 and not before & set(executed(log, start))
    assert check_store(tmp_path, calls) == set()


def test_a_job_that_leaks_memory_until_ray_ends_its_worker_is_one_failure(tmp_path: Path) -> None:
    """The limit of the node is a little above what the machine now uses."""
    memory = psutil.virtual_memory()
    if memory.available < 3 * HEADROOM_MB * 2**20:
        pytest.skip(f"{memory.available >> 20} MB of memory are free, {3 * HEADROOM_MB} are needed to leak safely")
    share = (memory.total - memory.available + HEADROOM_MB * 2**20) / memory.total
    limits = {"RAY_memory_usage_threshold": f"{share:.4f}", "RAY_memory_monitor_refresh_ms": "100"}
    sound = {"kind": "learn", "numbers": list(range(20)), "log_path": str(tmp_path / "log"), "sleep": 0.02}
    calls = [{**sound, "numbers": [100], "do": "leak", "megabytes": 3 * HEADROOM_MB}, sound]
    (tmp_path / "drivers").mkdir()
    with own_cluster(tmp_path / "drivers", **limits) as (_, drivers):
        drivers.run(tmp_path, calls, max_attempts=2)
    (failure,) = read_rows(tmp_path / "data", "failures").to_pylist()
    assert check_store(tmp_path, calls) == {failure["key"]}
    assert "low on memory" in failure["message"].lower()
