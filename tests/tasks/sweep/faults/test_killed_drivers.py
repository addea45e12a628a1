"""SIGKILL of the driver in each phase of a sweep: the next driver continues, loses nothing stored, repeats nothing."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from launcher import Launcher
from processes import alive
from results import check_store, executed, logged, stored_keys

from store import files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

DELAYS_S = {"plan": 0.0, "start": 0.3, "flush": 0.0, "work": 0.3, "finish": 0.0}  # phase -> time of the kill in it


def wait_for_workers(log: Path) -> None:
    """Wait until the workers of a dead driver have ended; they outlive it for an instant."""
    deadline = time.monotonic() + 120
    while any(alive(int(pid)) for _, pid in logged(log, "run")):
        assert time.monotonic() < deadline, "workers outlive their driver by two minutes"
        time.sleep(0.02)


def test_a_driver_killed_in_each_phase_loses_and_repeats_nothing(tmp_path: Path, launcher: Launcher) -> None:
    root, log = tmp_path / "killed", tmp_path / "log"
    root.mkdir()
    calls = [
        {"kind": "learn", "numbers": list(range(60)), "log_path": str(log), "groups": 2, "sleep": 0.03},
        {"kind": "dump", "numbers": list(range(10)), "log_path": str(log), "sleep": 0.03},
    ]
    launcher.run(tmp_path / "undisturbed", calls)
    for phase, delay in DELAYS_S.items():
        before, start = stored_keys(root), len(executed(log))
        driver = launcher.start(root, calls)
        assert driver.wait_for(phase), driver.errors.read_text()
        time.sleep(delay)
        os.kill(driver.pid, signal.SIGKILL)
        assert launcher.wait(driver) == -signal.SIGKILL, driver.errors.read_text()
        wait_for_workers(log)
        ran = executed(log, start)
        assert not before & set(ran) and len(ran) == len(set(ran))
        if phase != "finish":  # which may have taken away the old files of a table, and not yet named the new ones
            assert before <= stored_keys(root)
        if phase == "work":
            assert 0 < len(stored_keys(root)) < 70

    start = len(executed(log))
    launcher.run(root, calls)
    assert executed(log, start) == [], "all jobs were stored when the last driver was killed"
    assert check_store(root, calls) == set()
    assert not list(root.rglob(".tmp-*"))
    assert files.fingerprint(root / "data") == files.fingerprint(tmp_path / "undisturbed/data")
