"""Nodes that die under a sweep."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faulty
import pytest
from launcher import Launcher
from matrix import Row, count_repeated, numbers, stored_keys, verdict
from processes import alive
from test_stopped_drivers import wait_until_stored

from tsfmscope.tasks.sweep.cluster import QUIET, environment, worker_environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_the_death_of_a_raylet_costs_no_job(
    tmp_path: Path, cluster: Any, launcher: Launcher, enter: Callable[[Row], None]
) -> None:
    node = cluster.add_node(num_cpus=1)
    log, latch = tmp_path / "log", tmp_path / "latch"
    each = {"kind": "learn", "log_path": str(log), "sleep": 0.1, "groups": 2}
    asked = [{**each, "numbers": list(range(40))}, {**each, "numbers": list(range(40, 120)), "latch": str(latch)}]
    driver = launcher.start(tmp_path, asked)
    wait_until_stored(driver, tmp_path, 30)
    while len({pid for _, pid in numbers(log, "run")}) < 3:  # an actor on each core, that of the node too
        assert alive(driver.pid), driver.errors.read_text()
        time.sleep(0.02)
    before = stored_keys(tmp_path)
    cluster.remove_node(node, allow_graceful=False)
    latch.touch()
    assert launcher.wait(driver) == 0, driver.errors.read_text()
    end = verdict(tmp_path, faulty.expected_rows(faulty.make_jobs(asked)))
    runs = [key for key, _ in numbers(log, "run")]
    again = len(runs) - len(set(runs))
    summary = driver.summary
    note = f"{summary['restarts']} actor lost with its node, {again} job run again, {len(before)} of 120 stored before"
    survived = int(not end.failures and int(summary["restarts"]) >= 1)
    doubled = end.doubled + sum(runs.count(key) > 1 for key in before)
    enter(Row("SIGKILL of a raylet (node death)", 1, survived, end.missing, doubled, note))


def test_a_driver_ends_with_the_raylet_that_it_is_connected_to_and_the_next_goes_on(
    tmp_path: Path, launcher: Launcher, tmp_path_factory: pytest.TempPathFactory, enter: Callable[[Row], None]
) -> None:
    from ray.cluster_utils import Cluster

    log, latch = tmp_path / "log", tmp_path / "latch"
    each = {"kind": "learn", "log_path": str(log), "sleep": 0.05}
    asked = [{**each, "numbers": list(range(40))}, {**each, "numbers": list(range(40, 100)), "latch": str(latch)}]
    with environment({**QUIET, **worker_environment(1)}):
        doomed = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
        drivers = Launcher(doomed.address, tmp_path_factory.mktemp("drivers"))
        try:
            driver = drivers.start(tmp_path, asked)
            wait_until_stored(driver, tmp_path, 20)
            doomed.head_node.kill_raylet()
            began = time.monotonic()
            code = drivers.wait(driver)
            seconds = time.monotonic() - began
            latch.touch()
        finally:
            drivers.close()
            doomed.shutdown()
    before, started = stored_keys(tmp_path), len(numbers(log, "run"))
    launcher.run(tmp_path, asked)
    again = [key for key, _ in numbers(log, "run")[started:]]
    end = verdict(tmp_path, faulty.expected_rows(faulty.make_jobs(asked)))
    note = f"the driver ended by itself after {seconds:.0f} s (exit {code}); {len(before)} of 100 jobs stayed stored"
    survived = int(code != 0 and seconds < 120 and not end.failures)
    doubled = end.doubled + count_repeated(sorted(before), again)
    enter(Row("SIGKILL of the driver's own raylet", 1, survived, end.missing, doubled, note))
