"""SIGKILL of the driver, at random moments of its life: the next one goes on, loses nothing stored, repeats none."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import faulty
import pytest
from launcher import Driver, Launcher
from matrix import Row, count_repeated, numbers, rows_of, stored_keys, verdict
from processes import alive

from tsfmscope.store import files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

KILLS = int(os.environ.get("TSFMSCOPE_KILLS", "10"))
SEED = int(os.environ.get("TSFMSCOPE_KILL_SEED", "7"))
PHASES = (("plan", "start"), ("work", "flush"), ("finish",))  # in one life; within brackets in any order
FLUSH_S = 0.3
LATE_S = 1.0  # a turn of the driver's loop on a busy machine


@dataclass
class Campaign:
    """Drivers of the same jobs that are killed, over one store after another."""

    launcher: Launcher
    chance: random.Random
    log: Path
    asked: list[dict[str, Any]]
    lengths: dict[str, float] = field(default_factory=dict)
    moments: list[str] = field(default_factory=list)
    survived: int = 0
    lost: int = 0
    doubled: int = 0
    unflushed: int = 0  # most jobs that had run and were not stored at a kill

    def measure(self, root: Path) -> None:
        """How long each phase of an undisturbed life takes."""
        driver = self.launcher.run(root, self.asked)
        starts = {phase: driver.times(phase) for phase in ("plan", "start", "flush", "work", "finish", "done")}
        begins = [starts["plan"][0], starts["start"][0], starts["flush"][0], starts["finish"][0], starts["done"][0]]
        names = ("plan", "start", "work", "finish")
        self.lengths = {name: end - begin for name, begin, end in zip(names, begins, begins[1:], strict=False)}
        self.lengths["flush"] = starts["work"][0] - starts["flush"][0]

    def life(self, root: Path) -> None:
        """Kill drivers in each phase, then let one come to its end, and hold the store against what it must be."""
        offset, lawful, kills = len(numbers(self.log, "run")), Counter[str](), 0
        for bracket in PHASES:
            for phase in self.chance.sample(bracket, len(bracket)):
                if len(self.moments) < KILLS:
                    kills += self._kill(root, phase, lawful)
        self.launcher.run(root, self.asked)
        ran = Counter(key for key, _ in numbers(self.log, "run")[offset:])
        keys = faulty.expected_rows(faulty.make_jobs(self.asked))
        end = verdict(root, keys)
        more = sum(ran[key] > 1 + lawful[key] for key in keys)
        self.doubled += end.doubled + more
        self.lost += end.missing
        self.survived += kills * (not (end.missing or end.doubled or end.failures or more))

    def _kill(self, root: Path, phase: str, lawful: Counter[str]) -> bool:
        before, offset, ended = stored_keys(root), len(numbers(self.log, "run")), len(numbers(self.log, "end"))
        driver = self.launcher.start(root, self.asked)
        if driver.wait_for("flush" if phase == "work" else phase):
            time.sleep(self.chance.random() * self.lengths[phase])
        with contextlib.suppress(ProcessLookupError):
            os.kill(driver.pid, signal.SIGKILL)
        if self.launcher.wait(driver) == 0:
            return False  # it was quicker than the kill
        ran = self._wait_for_keys(offset)
        rows = rows_of(root, "training") + rows_of(root, "dumps")  # every visible file is whole, or this raises
        self.doubled += sum(count > faulty.STEPS for count in rows.values()) + count_repeated(sorted(before), ran)
        now = stored_keys(root) | (before if (root / "data/training/.next/commit").exists() else set())
        self.lost += len(before - now) if phase != "finish" else 0
        if phase != "finish":
            self.lost += max(0, finished_in_time(driver) - len(now - before))
            lawful.update(ran - now)
            self.unflushed = max(self.unflushed, len({key for key, *_ in numbers(self.log, "end")[ended:]} - now))
        self.moments.append(driver.last_phase)
        return True

    def _wait_for_keys(self, offset: int) -> set[str]:
        """Keys that ran since, when the workers of the dead driver are gone; they outlive it for an instant."""
        deadline = time.monotonic() + 60
        while any(alive(int(pid)) for _, pid in numbers(self.log, "run")[offset:]):
            assert time.monotonic() < deadline, "workers outlive their driver by a minute"
            time.sleep(0.02)
        return {key for key, _ in numbers(self.log, "run")[offset:]}


def finished_in_time(driver: Driver) -> int:
    """How many jobs had finished longer before the driver's last sign of life than the flush interval."""
    tells = [(int(count), float(moment)) for count, moment in driver.lines("tell")]
    return max((count for count, moment in tells if moment < tells[-1][1] - FLUSH_S - LATE_S), default=0)


def test_a_driver_killed_at_random_moments(
    tmp_path: Path, launcher: Launcher, enter: Callable[[Row], None], capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    asked = [
        {"kind": "learn", "numbers": list(range(90)), "log_path": str(log), "groups": 2, "sleep": 0.03},
        {"kind": "dump", "numbers": list(range(10)), "log_path": str(log), "sleep": 0.03},
    ]
    campaign = Campaign(launcher, random.Random(SEED), log, asked)
    campaign.measure(tmp_path / "undisturbed")
    began = time.monotonic()
    for root in roots(tmp_path):
        if len(campaign.moments) >= KILLS:
            break
        campaign.life(root)
        assert files.fingerprint(root / "data") == files.fingerprint(tmp_path / "undisturbed/data")
        assert not list(root.rglob(".tmp-*"))
    hit = ", ".join(f"{count} in {phase}" for phase, count in Counter(campaign.moments).items())
    note = (
        f"seed {SEED}: {hit}; up to {campaign.unflushed} of 100 jobs of 30 ms had run and were not yet stored "
        f"(flush {FLUSH_S} s); {(time.monotonic() - began) / KILLS:.1f} s a kill; same bytes as undisturbed"
    )
    enter(
        Row(
            "SIGKILL of the driver, random moment",
            len(campaign.moments),
            campaign.survived,
            campaign.lost,
            campaign.doubled,
            note,
        )
    )


def roots(folder: Path) -> Iterator[Path]:
    """A store after another; more than enough."""
    for n in range(KILLS):
        (folder / f"life{n}").mkdir()
        yield folder / f"life{n}"
