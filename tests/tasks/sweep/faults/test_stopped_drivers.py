"""Drivers that are asked to stop, that find another one at work, or whose clock runs backwards."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faulty
import pytest
from launcher import Driver, Launcher
from matrix import Row, count_repeated, numbers, rows_of, stored_keys, verdict
from processes import alive

from tsfmscope.store.stage_outputs import read_rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

JOBS = 100
FREE = 20  # that do not wait for the latch, where there is one


def sound(log: Path, **spec: Any) -> list[dict[str, Any]]:
    """Jobs that nothing ails."""
    return [{"kind": "learn", "numbers": list(range(JOBS)), "log_path": str(log), "sleep": 0.03, **spec}]


def waiting_job_calls(log: Path, latch: Path) -> list[dict[str, Any]]:
    """The same, of which all but the first wait for a file, so that their driver does not come to its end before."""
    one, other = list(range(FREE)), list(range(FREE, JOBS))
    return [sound(log, numbers=one)[0], sound(log, numbers=other, latch=str(latch))[0]]


def wait_until_stored(driver: Driver, root: Path, at_least: int) -> None:
    """Until the driver has stored something."""
    assert driver.wait_for("work"), driver.errors.read_text()
    deadline = time.monotonic() + 120
    while len(stored_keys(root)) < at_least:
        assert alive(driver.pid), driver.errors.read_text()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(("fault", "signum", "code"), [("SIGTERM", 15, 143), ("Ctrl-C", 2, 130)])
def test_a_driver_that_is_asked_to_stop_drains_flushes_and_says_how_to_go_on(
    tmp_path: Path, launcher: Launcher, fault: str, signum: int, code: int, enter: Callable[[Row], None]
) -> None:
    """Ctrl-C reaches all processes of the terminal: Ray's too, where it is the driver's own."""
    log, name, own = tmp_path / "log", signal.Signals(signum).name, fault == "Ctrl-C"
    latch = tmp_path / "latch"
    asked = waiting_job_calls(log, latch)
    driver = launcher.start(tmp_path, asked, own=own, drain_seconds=240, **({"local_cpus": 2} if own else {}))
    wait_until_stored(driver, tmp_path, 10)
    (os.killpg if own else os.kill)(driver.pid, signum)
    latch.touch()
    assert launcher.wait(driver) == code, driver.errors.read_text()
    before, ran = stored_keys(tmp_path), {key for key, _ in numbers(log, "run")}
    text = f"stopped by {name}: {len(before)} jobs stored, {JOBS - len(before)} left; run the same command again to go"
    said = text in driver.errors.read_text()
    assert 10 <= len(before) < JOBS

    started = len(numbers(log, "run"))
    launcher.run(tmp_path, asked)
    again = [key for key, _ in numbers(log, "run")[started:]]
    end = verdict(tmp_path, faulty.expected_rows(faulty.make_jobs(asked)))
    doubled = end.doubled + count_repeated(sorted(before), again)
    note = f"“{text} on”; all {len(before)} that had begun were stored"
    enter(Row(fault, 1, int(said and not end.failures), len(ran - before) + end.missing, doubled, note))


def test_a_second_driver_on_a_store_is_refused_with_the_reason(
    tmp_path: Path, launcher: Launcher, enter: Callable[[Row], None]
) -> None:
    log, latch = tmp_path / "log", tmp_path / "latch"
    asked = waiting_job_calls(log, latch)
    holder = launcher.start(tmp_path, asked)
    assert holder.wait_for("start"), holder.errors.read_text()
    second = launcher.start(tmp_path, asked)
    refused = launcher.wait(second) == 1 and "work" not in {name for name, _ in second.lines("phase")}
    reason = second.errors.read_text().strip().splitlines()[-1]
    assert f"another driver holds the store: pid {holder.pid} on " in reason and "wait for it, or end it" in reason
    latch.touch()
    assert launcher.wait(holder) == 0, holder.errors.read_text()
    end = verdict(tmp_path, faulty.expected_rows(faulty.make_jobs(asked)))
    more = sum(count - 1 for count in Counter(key for key, _ in numbers(log, "run")).values())
    note = "refused with pid, host and since when; the first went on undisturbed"
    enter(Row("two drivers on one store", 1, int(refused), end.missing, end.doubled + more, note))


def test_a_clock_that_runs_backwards_ends_nothing_early_and_stores_no_negative_time(
    tmp_path: Path, launcher: Launcher, enter: Callable[[Row], None]
) -> None:
    """A minute back each second, in the driver and in its workers; and a limit of time must still bite."""
    log = tmp_path / "log"
    hangs = {"kind": "learn", "numbers": [JOBS], "log_path": str(log), "do": "hang", "clock": True}
    asked = [*sound(log, clock=True), hangs]
    driver = launcher.start(tmp_path, asked, clock=True, job_timeout_s=2.0, max_attempts=1)
    wait_until_stored(driver, tmp_path, 10)
    os.kill(driver.pid, signal.SIGKILL)  # so that one such driver finds the parts of another, which are from its future
    launcher.wait(driver)
    before = stored_keys(tmp_path)
    while any(alive(int(pid)) for _, pid in numbers(log, "run")):
        time.sleep(0.02)
    started = len(numbers(log, "run"))
    launcher.run(tmp_path, asked, clock=True, job_timeout_s=2.0, max_attempts=1)

    jobs = faulty.make_jobs(asked)
    end = verdict(tmp_path, faulty.expected_rows(jobs))
    doubled = end.doubled + count_repeated(sorted(before), [key for key, _ in numbers(log, "run")[started:]])
    times = read_rows(tmp_path / "timings", "timings").to_pylist()
    runs = read_rows(tmp_path / "timings", "runs").to_pylist()
    assert len(times) == JOBS + 1 and len({row["started"] for row in times}) > 2
    backwards = max(row["started"] for row in times) - min(row["started"] for row in times)
    good = all(row["seconds"] >= 0 and row["load_seconds"] >= 0 for row in times) and runs[0]["seconds"] >= 0
    (failure,) = read_rows(tmp_path / "data", "failures").to_pylist()
    good = good and failure["error"] == "TimeoutError" and end.failures == {jobs[-1].key}
    note = f"job starts span {backwards.total_seconds():.0f} s of wall clock, backwards; a limit of 2 s still bit"
    assert rows_of(tmp_path, "training").total() == JOBS * faulty.STEPS
    enter(Row("the clock running backwards", 2, 2 * good, end.missing, doubled, note))
