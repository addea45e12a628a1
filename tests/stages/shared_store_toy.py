"""Jobs of a sweep into a shared folder: each writes a dump and answers its row; run as a script, a driver."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from stages.planning.sweeping import PlannedJob, read_nothing, run_and_finish
from store.stage_folders import shared_folders
from store.stage_store import StageStore
from tasks.job import Job, Result, Task
from tasks.sweep.cluster import Resources

WORK = Task("shared_store_toy", 1, "shared_store_toy:entry", table="dumps")
IDENTITY = {"model": "m", "dataset": "d", "context": 512, "noise": 0.0, "kind": "tokens", "n_windows": 1}


def entry(job: Job, data: Any, model: Any) -> Result:
    """A dump of a thousand rows; says so in the log once it is about to be written."""
    time.sleep(job.spec["sleep"])
    handle = os.open(job.spec["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{job.spec['condition']}\n".encode())
    os.close(handle)
    row = {**IDENTITY, "condition": job.spec["condition"]}
    return Result([row], dump=iter([pa.table({"x": [job.spec["n"]] * 1000})]))


def jobs(log: Path, count: int, sleep: float) -> list[PlannedJob]:
    specs = [
        {"model": "m", "dataset": "d", "condition": f"c{n:03d}", "n": n, "sleep": sleep, "log": str(log)}
        for n in range(count)
    ]
    return [PlannedJob(Job(WORK, spec), ["study"]) for spec in specs]


def main(shared: str, folder: str, count: str, sleep: str) -> None:
    """Drive all jobs; a part every half second."""
    data = Path(folder, "data")
    where = shared_folders(shared, "toy")
    with StageStore(
        data / "toy", tables=["dumps"], companion=data / "timings" / "toy", stage="toy", folders=where
    ) as out:
        planned = jobs(Path(folder, "log"), int(count), float(sleep))
        summary = run_and_finish(out, planned, Resources(actors=2, cpus=0.5, flush_seconds=0.5), read_nothing)
    print(f"done {summary.done} reused {summary.reused}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
