"""A small disk that fills up: the run stops and says what to do; once there is space again it goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faulty
import pytest
from launcher import Launcher
from results import check_store, executed, stored_keys

from store.errors import StoreFull
from tests.small_disk import mount_small_disk

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SPACE = 2**20  # bytes of the disk
ADVICE = "No space left on device. Free some of that disk, then run the same command again"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of a mebibyte."""
    with mount_small_disk(tmp_path / "small", SPACE) as folder:
        yield folder


def fill(disk: Path, leave: int) -> Path:
    """A file that leaves so many bytes."""
    ballast = disk / "ballast"
    left = os.statvfs(disk)
    ballast.write_bytes(b"x" * (left.f_bavail * left.f_frsize - leave))
    return ballast


@pytest.mark.parametrize(
    ("call", "leave"),
    [
        ({"kind": "learn", "numbers": list(range(300)), "sleep": 0.005}, 100_000),
        ({"kind": "dump", "numbers": list(range(12)), "kilobytes": 60, "sleep": 0.3}, 300_000),
    ],
    ids=["a part", "an activation file of a worker"],
)
def test_a_full_disk_stops_the_run_which_continues_when_there_is_space(
    tmp_path: Path, small: Path, launcher: Launcher, call: dict[str, Any], leave: int
) -> None:
    log = tmp_path / "log"
    calls = [{**call, "log_path": str(log)}]
    ballast = fill(small, leave)
    driver = launcher.start(small, calls, flush_seconds=0.1, max_in_flight=4)
    assert launcher.wait(driver) == 1, driver.errors.read_text()
    output = driver.errors.read_text()
    assert ADVICE in output and f"cannot write {small}/" in output and "Traceback" not in output
    before, start = stored_keys(small), len(executed(log))
    assert 0 < len(before) < len(call["numbers"])

    ballast.unlink()
    launcher.run(small, calls)
    assert not before & set(executed(log, start))
    assert check_store(small, calls) == set()


def test_a_full_disk_at_the_end_of_a_run_leaves_every_row(tmp_path: Path, small: Path) -> None:
    calls = [{"kind": "learn", "numbers": list(range(200)), "log_path": str(tmp_path / "log")}]
    jobs = faulty.make_jobs(calls)
    with faulty.open_store(small) as out:
        for start in range(0, len(jobs), 50):
            out.append([faulty.make_record(job) for job in jobs[start : start + 50]])
        ballast = fill(small, 4096)
        with pytest.raises(StoreFull, match=ADVICE):
            out.finish([job.key for job in jobs])
    ballast.unlink()
    with faulty.open_store(small) as out:
        assert out.missing([job.key for job in jobs]) == []
        out.finish([job.key for job in jobs])
    assert check_store(small, calls) == set()
