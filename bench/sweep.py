"""Overhead of the sweep: cost of engine and store per empty job, next to other schedulers.

    python -m bench.sweep [--quick] [--jobs 100000] [--planned 1000000]

A job returns one row. The lines of the table:
- `ours` does all that a stage does: it plans jobs, looks up their keys in the store, runs the jobs on two
  actors, flushes rows and timings to Parquet, and merges the parts at the end. Its time runs from the first
  job's start to the end of the merge; `whole` includes the start of Ray and of the actors.
- `ray, at once` sends every call to two warm actors and collects all results in one ray.get.
- `ray, 8 in flight` keeps 8 calls per actor running with ray.wait, like a driver that takes results as they
  come.
- `joblib` uses its default, loky, which sends calls in batches.
- `ray tune` runs jobs as trials of one report on reused actors.
- `dvc` reproduces a matrix stage with one `true` per job.
- `resume` opens the store of a finished run and finds every job done.
- `resume, killed` finds them in the parts of a driver that was killed after a thousand flushes.
- `plan` opens a store of a million finished jobs (with --quick, of fifty thousand) and plans jobs of which
  nine in ten are stored; `plan, new` does so with an empty store.

The other schedulers neither plan nor store a row, and their `s` begins after the start of their workers.
Memory is the process's peak above its size before it opened the store, Arrow's libraries included. Each line
is a process of its own.

The last line is JSON: overhead_vs_actor_call (seconds per job of ours over those of the faster of the two
bare Rays), plan_s (of the first `plan`), resume_s (of the slower), driver_mb (the most of the plans and of
the resumed run over as many jobs).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.memory import MIB, peak, resident_bytes
from bench.sweep_peers import ACTORS, PEERS, ROW, spec
from stages.planning.sweeping import JobLog, PlannedJob, read_nothing, run_and_finish
from store.stage_store import StageStore
from store.table_parts import ROWS_PER_FILE, TableParts
from tasks.job import Job, Task
from tasks.sweep import actor_pool
from tasks.sweep.cluster import Resources, connect
from tasks.sweep.job_queue import JobQueue

FULL, QUICK = {"jobs": 100_000, "planned": 1_000_000}, {"jobs": 5_000, "planned": 50_000}
# factors by which the slower ones get fewer jobs
FEWER = {"ours, a call each": 5, "ray, 8 in flight": 5, "ray tune": 2000, "dvc": 1000}
FLUSHES = 1000
# share of the planned jobs that are not stored
NEW = 0.1
TASK = Task("nothing", 1, "bench.sweep_peers:entry", table="training")
TIMING = {"seconds": 0.0, "load_seconds": 0.0, "actor": "a", "node": "n", "device": "cpu", "started": 0.0}


class Measurement(NamedTuple):
    """Measurements of one process.

    seconds: seconds of the jobs. whole: seconds from the process's first step to its last. mb: peak memory in
    MiB.
    """

    seconds: float
    whole: float
    mb: float = 0.0
    note: str = ""


def plan(count: int, first: int = 0) -> Iterator[PlannedJob]:
    """Yield `count` jobs, each requested by one or two studies."""
    for n in range(first, first + count):
        yield PlannedJob(Job(TASK, spec(n)), ("one", "two") if n % 2 else ("one",))


def open_out(folder: Path) -> StageStore:
    """Open a store for the jobs' rows and timings."""
    return StageStore(folder / "out", tables=["training"], companion=folder / "timings", stage="sweep")


def files(folder: Path) -> int:
    """Return the number of Parquet files under a folder."""
    return sum(1 for _ in folder.rglob("*.parquet"))


def run_ours(folder: Path, count: int) -> Measurement:
    """Open a store, plan jobs, run them and merge the parts."""
    began = time.time()
    with connect(Resources(local_cpus=ACTORS)):
        with open_out(folder) as out:
            run_and_finish(out, plan(count), Resources(actors=ACTORS), read_nothing)
        now = time.time()
        started = out.timings.read()["started"].cast(pa.int64()).to_numpy()
    return Measurement(now - started.min() / 1e6, now - began, note=f"{files(folder)} files")


def run_ours_single(folder: Path, count: int) -> Measurement:
    """Run `ours` with one call per job, as jobs of more than a twentieth of a second are run."""
    actor_pool.BATCH_JOBS = 1
    return run_ours(folder, count)


def resume(folder: Path, count: int) -> Measurement:
    """Run the sweep over a store that contains every job."""
    before, bytes_before, began, cpu = files(folder), resident_bytes(), time.time(), time.process_time()
    with open_out(folder) as out:
        summary = run_and_finish(out, plan(count), Resources(actors=ACTORS), read_nothing)
    assert (summary.reused, summary.done) == (count, 0)
    seconds = time.time() - began
    cpu = time.process_time() - cpu
    note = f"{cpu:.2f} s of CPU; {before} files, then {files(folder)}"
    return Measurement(seconds, seconds, (peak() - bytes_before) / MIB, note)


def fill(folder: Path, count: int) -> Measurement:
    """Make a store as a finished run of `count` jobs leaves it."""
    began, out = time.time(), open_out(folder)
    keys = np.sort(np.array([planned_job.job.key for planned_job in plan(count)]))
    for parts, row in ((out.tables["training"], ROW), (out.timings, {"stage": "sweep", **TIMING, "started": 0})):
        parts.replace(_repeat_row(parts, row, keys))
    return Measurement(time.time() - began, time.time() - began)


def fill_parts(folder: Path, count: int) -> Measurement:
    """Make a store as a killed run of `count` jobs leaves it, with FLUSHES parts."""
    began = time.time()
    with open_out(folder) as out:
        for jobs in np.array_split(np.array([planned_job.job.key for planned_job in plan(count)]), FLUSHES):
            out.append([_record(key) for key in jobs.tolist()])
    return Measurement(time.time() - began, time.time() - began)


def planning(folder: Path, count: int) -> Measurement:
    """Plan `count` jobs, of which nine tenths or none are stored; run nothing."""
    n_stored = sum(pq.read_metadata(path).num_rows for path in folder.glob("out/training/*.parquet"))
    before, began, cpu = resident_bytes(), time.time(), time.process_time()
    with open_out(folder) as out:
        open_s = time.process_time() - cpu
        first = n_stored - round(count * (1 - NEW)) if n_stored else 0
        log, resources = JobLog(), Resources()
        jobs = (planned_job.job for planned_job in log.record(plan(count, first)))
        queue = JobQueue(jobs, out.missing, resources.chunk, lambda job: resources.for_task(job.task.name))
        while not queue.is_complete:
            queue.plan_ahead()
        seconds, cpu = time.time() - began, time.process_time() - cpu
    assert (queue.n_planned, len(queue)) == (count, round(count * NEW) if n_stored else count)
    return Measurement(
        seconds, seconds, (peak() - before) / MIB, f"{cpu:.2f} s of CPU, {open_s:.2f} to open; {len(queue)} to run"
    )


def _record(key: str) -> dict[str, Any]:
    answer = {"key": key, "task": TASK.name, "spec": "{}", "table": TASK.table, "rows": [ROW], "error": None}
    return answer | {"timing": TIMING}


def _repeat_row(parts: TableParts, row: dict[str, Any], keys: np.ndarray) -> Iterator[pa.Table]:
    for start in range(0, len(keys), ROWS_PER_FILE):
        chunk = keys[start : start + ROWS_PER_FILE]
        columns = [
            pa.array(chunk, pa.string())
            if field.name == parts.key
            else pa.repeat(pa.scalar(row.get(field.name), field.type), len(chunk))
            for field in parts.schema
        ]
        yield pa.Table.from_arrays(columns, schema=parts.schema)


SIDES: dict[str, Callable[[Path, int], Measurement]] = {
    "ours": run_ours,
    "ours, a call each": run_ours_single,
    "resume": resume,
    "resume, killed": resume,
    "plan": planning,
    "plan, new": planning,
    **{name: lambda folder, count, peer=peer: Measurement(*peer(folder, count)) for name, peer in PEERS.items()},
}
FILLED = {"resume": fill, "resume, killed": fill_parts, "plan": fill}


def measure(name: str, count: int, *, n_stored: int | None = None) -> Measurement:
    """Measure in a process of its own, and print its line of the table.

    n_stored: number of jobs in the store before; by default as many as are run.
    """
    with tempfile.TemporaryDirectory() as folder:
        fill = [("--fill", n_stored or count)] if name in FILLED else []
        for step, jobs in [*fill, ("--side", count)]:
            command = [sys.executable, "-m", "bench.sweep", step, name, "--jobs", str(jobs), "--folder", folder]
            process = subprocess.run(command, capture_output=True, text=True, check=False)
            if process.returncode:
                raise SystemExit(f"{name}: {process.stderr}")
    measurement = Measurement(*json.loads(process.stdout.splitlines()[-1]))
    seconds, whole, mb, _ = measurement
    each, rate = 1e6 * seconds / count, count / seconds
    print(f"{name:18s} {count:8d} {seconds:9.2f} {whole:9.2f} {each:10.1f} {rate:9.0f} {mb:5.0f}", end="  ")
    print(measurement.note, flush=True)
    return measurement


def main() -> None:
    """Run the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer jobs; under a minute")
    parser.add_argument("--jobs", type=int, help="number of jobs that are run")
    parser.add_argument("--planned", type=int, help="jobs of the large plan, and of the store that it is compared with")
    for hidden in ("--side", "--fill", "--folder"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side or options.fill:
        work = SIDES[options.side] if options.side else FILLED[options.fill]
        print(json.dumps(work(Path(options.folder), options.jobs)))
        return
    size = QUICK if options.quick else FULL
    jobs, n_planned = options.jobs or size["jobs"], options.planned or size["planned"]
    print(f"{'':18s} {'jobs':>8s} {'s':>9s} {'whole s':>9s} {'us a job':>10s} {'jobs/s':>9s} {'MB':>5s}")
    each = {}
    for name in ("ours", "ours, a call each", *PEERS):
        fewer = max(5, jobs // FEWER.get(name, 1))
        each[name] = measure(name, fewer).seconds / fewer
    resumed = [measure(name, jobs) for name in ("resume", "resume, killed")]
    large = measure("resume", n_planned)
    plans = [measure("plan", jobs, n_stored=n_planned), measure("plan", n_planned), measure("plan, new", n_planned)]
    print(json.dumps({
        "overhead_vs_actor_call": round(each["ours"] / min(each["ray, at once"], each["ray, 8 in flight"]), 2),
        "plan_s": round(plans[0].seconds, 2),
        "resume_s": round(max(measurement.seconds for measurement in resumed), 2),
        "driver_mb": round(max(measurement.mb for measurement in (large, *plans))),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
