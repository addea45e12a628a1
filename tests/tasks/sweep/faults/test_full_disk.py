"""A small disk that fills up: the run stops and says what to do; once there is space again it goes on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import faulty
import pytest
from launcher import Launcher
from matrix import Row, count_repeated, numbers, stored_keys, verdict

from tsfmscope.store.errors import StoreFull

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SPACE = 2**20  # bytes of the disk
ADVICE = "No space left on device. Free some of that disk, then run the same command again"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of a mebibyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SPACE}", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a small disk needs the right to mount one: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(disk: Path, leave: int) -> Path:
    """A file that leaves so many bytes."""
    ballast = disk / "ballast"
    left = os.statvfs(disk)
    ballast.write_bytes(b"x" * (left.f_bavail * left.f_frsize - leave))
    return ballast


CASES = {  # what is full: jobs, bytes left
    "disk full under a part": ({"kind": "learn", "numbers": list(range(300)), "sleep": 0.005}, 100_000),
    "disk full under a worker's dump": (
        {"kind": "dump", "numbers": list(range(12)), "kilobytes": 60, "sleep": 0.3},
        300_000,
    ),
}


@pytest.mark.parametrize("what", CASES)
def test_a_full_disk_stops_the_run_which_goes_on_when_there_is_space(
    tmp_path: Path, small: Path, launcher: Launcher, what: str, enter: Callable[[Row], None]
) -> None:
    one, leave = CASES[what]
    log = tmp_path / "log"
    asked: list[dict[str, Any]] = [{**one, "log_path": str(log)}]
    ballast = fill(small, leave)
    driver = launcher.start(small, asked, flush_seconds=0.1, max_in_flight=4)
    assert launcher.wait(driver) == 1, driver.errors.read_text()
    said = driver.errors.read_text()
    kind = ADVICE in said and f"cannot write {small}/" in said and "Traceback" not in said
    before = stored_keys(small)
    assert 0 < len(before) < len(one["numbers"])

    ballast.unlink()
    started = len(numbers(log, "run"))
    launcher.run(small, asked)
    end = verdict(small, faulty.expected_rows(faulty.make_jobs(asked)))
    doubled = end.doubled + count_repeated(sorted(before), [key for key, _ in numbers(log, "run")[started:]])
    note = f"stopped with the path and “{ADVICE}”; {len(before)} jobs stayed stored, the others ran again"
    enter(Row(what, 1, int(kind and not end.failures), end.missing, doubled, note))


def test_a_full_disk_at_the_end_of_a_run_leaves_every_row(
    tmp_path: Path, small: Path, enter: Callable[[Row], None]
) -> None:
    asked = [{"kind": "learn", "numbers": list(range(200)), "log_path": str(tmp_path / "log")}]
    jobs = faulty.make_jobs(asked)
    with faulty.open_store(small) as out:
        for start in range(0, len(jobs), 50):
            out.append([faulty.make_record(job) for job in jobs[start : start + 50]])
        ballast = fill(small, 4096)
        with pytest.raises(StoreFull, match=ADVICE):
            out.finish([job.key for job in jobs])
    ballast.unlink()
    with faulty.open_store(small) as out:
        lost = len(out.missing([job.key for job in jobs]))
        out.finish([job.key for job in jobs])
    end = verdict(small, faulty.expected_rows(jobs))
    note = "the compaction stopped with the path and what to do; nothing had to run again"
    enter(Row("disk full while parts are merged", 1, int(not end.failures), lost + end.missing, end.doubled, note))
