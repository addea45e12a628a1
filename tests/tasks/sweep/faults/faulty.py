"""Jobs with faults in the real store, with an execution log outside it, and a driver of them.

Lines of the log: `load GROUP PID` and `run KEY PID`.
"""

from __future__ import annotations

import datetime
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from store.stage_store import StageStore
from store.status import Status, write_status
from tasks.job import Job, Result, StoreCallbacks, Task
from tasks.sweep import engine
from tasks.sweep.actor import Outcome
from tasks.sweep.cluster import Resources
from tasks.sweep.progress import Progress
from tasks.sweep.records import record

STEPS = 3  # rows of a job
WAIT_S = 300
LEARN = Task("learn", 1, "faulty:entry", "faulty:loader", table="training")
DUMP = Task("dump", 1, "faulty:entry", table="dumps")


def log(path: str | Path, line: str) -> None:
    """Append one line, also while other processes append."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


def loader(job: Job) -> str:
    log(job.spec["log"], f"load {job.group} {os.getpid()}")
    if job.spec.get("clock"):
        turn_back()
    return job.group


def entry(job: Job, data: Any, model: str | None) -> Result:
    spec = job.spec
    log(spec["log"], f"run {job.key} {os.getpid()}")
    if spec.get("do") == "hang":
        time.sleep(600)
    if spec.get("do") == "leak":
        leak(spec["megabytes"])
    if latch := spec.get("latch"):
        wait_for(Path(latch))
    time.sleep(spec.get("sleep", 0))
    rows = training_rows(spec["n"])
    if job.task.name == DUMP.name:
        rows = [{"model": "m", "dataset": "d", "condition": spec["condition"], "kind": "tokens", "n_windows": 1}]
    return Result(rows, dump=tables(spec["n"], spec.get("kilobytes", 3)) if job.task.name == DUMP.name else None)


def wait_for(latch: Path) -> None:
    """Wait until a file exists."""
    deadline = time.monotonic() + WAIT_S
    while not latch.exists():
        if time.monotonic() > deadline:
            raise ValueError(f"{latch} did not come in {WAIT_S} s")
        time.sleep(0.02)


def training_rows(n: int) -> list[dict[str, Any]]:
    """Return the rows of job n."""
    return [{"model": "m", "step": step, "loss": 1 / (1 + n + step), "learning_rate": 0.1} for step in range(STEPS)]


def make_record(job: Job) -> dict[str, Any]:
    """Return the record of a job, as the engine makes it."""
    times = {"seconds": 0.1, "load_seconds": 0.0, "actor": "actor-0", "node": "n", "device": "cpu"}
    return record(job, Outcome(training_rows(job.spec["n"]), None, {**times, "started": 0.0, "tokens_per_s": None}), 1)


def leak(megabytes: int) -> None:
    """Take memory until Ray ends this process."""
    held = []
    for _ in range(megabytes // 64):
        held.append(b"x" * 2**26)  # written to, so that it is there
        time.sleep(0.05)
    time.sleep(600)


def tables(n: int, kilobytes: int) -> Iterator[pa.Table]:
    """A dump of three row groups."""
    import numpy as np

    rng = np.random.default_rng(n)
    for _ in range(3):
        yield pa.table({"x": rng.standard_normal(kilobytes * 128 // 3)})


def turn_back() -> None:
    """Let the wall clock of this process run backwards, a minute each second."""
    wall, began = time.time(), time.monotonic()

    class Backwards(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
            return datetime.datetime.fromtimestamp(time.time(), tz)

    time.time = lambda: wall - 60 * (time.monotonic() - began)
    for name, module in list(sys.modules.items()):
        if name.startswith("tsfmscope.") and getattr(module, "datetime", None) is datetime.datetime:
            module.datetime = Backwards  # type: ignore[attr-defined]


def make(kind: str, numbers: Sequence[int], log_path: str, *, groups: int = 1, **spec: Any) -> list[Job]:
    """Make one job per number: "learn" has rows, in groups g0, g1 ... of consecutive jobs; "dump" has a file."""
    if kind == "dump":
        path = {"model": "m", "dataset": "d"}
        return [Job(DUMP, {"n": n, **path, "condition": f"c{n}", "log": log_path, **spec}) for n in numbers]
    name = spec.pop("group", "g")
    return [
        Job(LEARN, {"n": n, "log": log_path, **spec}, group=f"{name}{index * groups // len(numbers)}")
        for index, n in enumerate(numbers)
    ]


def make_jobs(calls: Sequence[Mapping[str, Any]]) -> list[Job]:
    """Return the jobs of several calls of `make`."""
    return [job for call in calls for job in make(**call)]


def expected_rows(jobs: Sequence[Job]) -> dict[str, int]:
    """Return key -> number of rows, if nothing fails."""
    return {job.key: 1 if job.task.name == DUMP.name else STEPS for job in jobs}


def open_store(root: Path) -> StageStore:
    """Open the store of a sweep under a folder."""
    return StageStore(root / "data", tables=["training", "dumps"], companion=root / "timings", stage="faults")


def read_nothing(job: Job) -> None:
    """Read nothing."""


def port(out: StageStore) -> StoreCallbacks:
    return StoreCallbacks(out.missing, out.append, out.check, read_nothing, out.write_dump)


def drive(root: Path, jobs: Sequence[Job], resources: Resources, events: Path) -> None:
    """Run the jobs as a stage does, and log each phase that begins to `events`."""

    def phase(name: str) -> None:
        log(events, name)

    phase("plan")
    with open_store(root) as out:
        plain = port(out)

        def missing(keys: Sequence[str]) -> Sequence[str]:
            found = plain.missing(keys)
            phase("start")
            return found

        def append(records: Any) -> None:
            phase("flush")
            plain.append(records)
            phase("work")

        def report(now: Progress) -> None:
            counts = {"planned": now.planned, "done": now.done, "failed": now.failed, "running": now.running}
            write_status(Status("faults", **counts), folder=out.status, interval=0.1)

        engine.run(jobs, plain._replace(missing=missing, append=append), resources, report=report)
        phase("finish")
        out.finish([job.key for job in jobs])
