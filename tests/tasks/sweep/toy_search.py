"""Trials that write down each step, and keep their state as a training does; run as a script, a driver of a search."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import MappingProxyType
from typing import Any

import toy

from tasks.job import Job, Result, Task, report
from tasks.sweep.cluster import Resources
from tasks.sweep.halving import Halving
from tasks.sweep.tune import FinishedTrial, search

STEPS, INTERVAL = 20, 5  # of a trial; between saved states
TRIAL = Task("trial", 1, "toy_search:train")
LEVELS = (1.0, 2.0, 3.0)  # losses of the trials, in the order in which they begin
HALVING = Halving(most=STEPS, grace=INTERVAL, reduction=2)


def train(job: Job, data: None, model: None) -> Result:
    """Each step is logged outside the store; the state says how many were done when it was last saved."""
    spec, state = job.spec, Path(job.spec["folder"], job.key)
    if spec["do"] == "raise":
        raise ZeroDivisionError("poisoned")
    done = int(state.read_text()) if state.exists() else 0
    for step in range(INTERVAL, done + 1, INTERVAL):
        report({"step": step, "loss": spec["level"] / step})
    for step in range(done + 1, STEPS + 1):
        time.sleep(spec["seconds"])
        toy.log(spec["log"], f"step {spec['level']} {step}")
        if step % INTERVAL == 0:
            state.write_text(str(step))
            late = spec["do"] == "late" and step == STEPS
            report({"step": step, "loss": spec["level"] / step + 10 * late})
    return Result([{"step": STEPS, "loss": spec["level"] / STEPS}])


def jobs(folder: Path, seconds: float, levels: Any = LEVELS, **changes: Any) -> list[Job]:
    spec = {"n": 0, "folder": str(folder), "log": str(folder / "log"), "seconds": seconds, "do": None}
    return [Job(TRIAL, {**spec, "level": level, **changes}) for level in levels]


def run(
    folder: Path, asked: list[Job], actors: int = 2, stored_rows: Any = MappingProxyType({}), **more: Any
) -> list[FinishedTrial]:
    resources = Resources(actors=actors, local_cpus=2, max_attempts=1)
    return search(asked, toy.port(folder / "store"), resources, HALVING, folder / "search", stored_rows, **more)


def main(folder: Path, actors: int, levels: list[float]) -> None:
    ended = run(folder, jobs(folder, 0.1, levels), actors)
    print(json.dumps({one.job.spec["level"]: one.outcome is not None for one in ended}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), [float(level) for level in sys.argv[3:]])
