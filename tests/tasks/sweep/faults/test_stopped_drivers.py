"""Drivers that are asked to stop, or whose clock runs backwards."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from launcher import Driver, Launcher
from processes import alive
from results import check_store, count_rows, executed, stored_keys

from store.stage_outputs import read_rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

JOBS, FREE = 60, 20  # all jobs, and those that do not wait for the latch


def wait_until_stored(driver: Driver, root: Path, at_least: int) -> None:
    """Wait until the driver has stored so many jobs."""
    assert driver.wait_for("work"), driver.errors.read_text()
    deadline = time.monotonic() + 120
    while len(stored_keys(root)) < at_least:
        assert alive(driver.pid), driver.errors.read_text()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_driver_that_is_asked_to_stop_stores_what_began_and_names_the_next_step(
    tmp_path: Path, launcher: Launcher, signum: signal.Signals, code: int
) -> None:
    """Ctrl-C reaches all processes of a terminal: also those of the driver's own Ray."""
    log, latch, own = tmp_path / "log", tmp_path / "latch", signum == signal.SIGINT
    free = {"kind": "learn", "numbers": list(range(FREE)), "log_path": str(log), "sleep": 0.03}
    calls = [free, {**free, "numbers": list(range(FREE, JOBS)), "latch": str(latch)}]
    driver = launcher.start(tmp_path, calls, own=own, drain_seconds=240, **({"local_cpus": 2} if own else {}))
    wait_until_stored(driver, tmp_path, 10)
    (os.killpg if own else os.kill)(driver.pid, signum)
    latch.touch()
    assert launcher.wait(driver) == code, driver.errors.read_text()
    before, started = stored_keys(tmp_path), executed(log)
    assert 10 <= len(before) < JOBS and before == set(started)
    message = f"stopped by {signum.name}: {len(before)} jobs stored, {JOBS - len(before)} left; run the same command"
    assert message in driver.errors.read_text()

    launcher.run(tmp_path, calls)
    assert not before & set(executed(log, len(started)))
    assert check_store(tmp_path, calls) == set()


def test_a_clock_that_runs_backwards_ends_nothing_early_and_stores_no_negative_time(
    tmp_path: Path, launcher: Launcher
) -> None:
    """The wall clock of the driver and its workers goes back a minute each second; a limit of time still applies."""
    sound = {"kind": "learn", "numbers": list(range(JOBS)), "log_path": str(tmp_path / "log"), "clock": True}
    calls = [{**sound, "sleep": 0.03}, {**sound, "numbers": [JOBS], "do": "hang"}]
    launcher.run(tmp_path, calls, clock=True, job_timeout_s=2.0, max_attempts=1)

    assert len(check_store(tmp_path, calls)) == 1
    assert sorted(executed(tmp_path / "log")) == sorted(set(executed(tmp_path / "log")))
    (failure,) = read_rows(tmp_path / "data", "failures").to_pylist()
    assert failure["error"] == "TimeoutError"
    assert count_rows(tmp_path, "training").total() == 3 * JOBS
    timings, runs = (read_rows(tmp_path / "timings", name).to_pylist() for name in ("timings", "runs"))
    assert len(timings) == JOBS + 1 and len({row["started"] for row in timings}) > 2
    assert all(row["seconds"] >= 0 and row["load_seconds"] >= 0 for row in timings) and runs[0]["seconds"] >= 0
