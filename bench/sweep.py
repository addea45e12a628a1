"""The sweep of jobs that do nothing: what engine and store cost a job, beside what others ask for the same.

    python -m bench.sweep [--quick] [--jobs 100000] [--planned 1000000]

A job answers one row. `ours` is all that a stage does: jobs planned, their keys looked up in the store, the jobs run on
two actors, rows and timings flushed to Parquet, parts merged at the end. Its clock runs from the first job's start to
the end of the merge; `whole` counts the start of Ray and of the actors too, which the others have behind them when
theirs begins. `ray, at once` sends every call to two warm actors and asks for all answers in one ray.get; `ray, 8 in
flight` keeps so many calls an actor with ray.wait, as a driver does that takes answers as they come. `joblib` is its
default, loky, which sends calls in batches; `ray tune` runs jobs as trials of one report on reused actors; `dvc`
reproduces a matrix stage of so many `true`. None of these plans or stores a row.
`resume` opens the store of a finished run and finds every job done; `resume, killed` finds them in a thousand parts, as
a driver leaves them that was killed after as many flushes. `plan` opens a store of so many finished jobs and asks for
as many, a tenth of them new, until all are planned; `plan, new` asks an empty store. Their memory is the process's peak
above what it held before it opened the store. Each contestant is a process of its own, and each line is the median of
three where that is quick. The last line is JSON: overhead_vs_actor_call (ours over the faster of both bare Rays, of
seconds a job), plan_s (of `plan`), resume_s (of `resume, killed`), driver_mb (the most of both plans).
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

from bench.spectra import Memory
from bench.sweep_peers import ACTORS, PEERS, ROW
from stages.sweeping import Planned, nothing, run_and_finish
from store.out import Out
from store.parts import ROWS_PER_FILE, Parts
from tasks.sweep.backlog import Backlog
from tasks.sweep.cluster import Resources, connect
from tasks.sweep.jobs import Job, Task

FULL, QUICK = {"jobs": 100_000, "planned": 1_000_000}, {"jobs": 10_000, "planned": 100_000}
FEWER = {"ray, 8 in flight": 5, "ray tune": 1000, "dvc": 1000}  # slow ones get so many times fewer jobs
FLUSHES = 1000
NEW = 0.1  # of the planned jobs
TASK = Task("nothing", 1, "bench.sweep_peers:entry", table="training")
TIMING = {"seconds": 0.0, "load_seconds": 0.0, "actor": "a", "node": "n", "device": "cpu", "started": 0.0}


class Found(NamedTuple):
    """What one process measured, in seconds; whole: from the process's first step to its last."""

    seconds: float
    whole: float
    mb: float = 0.0
    note: str = ""


def spec(n: int) -> dict[str, Any]:
    """As wide as one of geometry."""
    cell = {"model": "m", "base_model": None, "rank": None, "dataset": "d", "condition": "c512", "context": 512}
    return {**cell, "noise": 0.0, "stack": "encoder", "layer": n % 24, "normed": False, "seed": n}


def plan(count: int, first: int = 0) -> Iterator[Planned]:
    """So many jobs, asked for by a study or two."""
    for n in range(first, first + count):
        yield Planned(Job(TASK, spec(n)), ("one", "two") if n % 2 else ("one",))


def opened(folder: Path) -> Out:
    """A store of these rows."""
    return Out(folder / "out", tables=["training"], companion=folder / "timings", stage="sweep")


def files(folder: Path) -> int:
    """Parquet files under a folder."""
    return sum(1 for _ in folder.rglob("*.parquet"))


def ours(folder: Path, count: int) -> Found:
    """Open, plan, run, merge."""
    began = time.time()
    with connect(Resources(local_cpus=ACTORS)):
        with opened(folder) as out:
            run_and_finish(out, plan(count), Resources(actors=ACTORS), nothing)
        now = time.time()
        started = out.timings.read()["started"].cast(pa.int64()).to_numpy()
    return Found(now - started.min() / 1e6, now - began, note=f"{files(folder)} files")


def resume(folder: Path, count: int) -> Found:
    """The sweep over a store that has every job."""
    before, began = files(folder), time.time()
    with opened(folder) as out:
        summary = run_and_finish(out, plan(count), Resources(actors=ACTORS), nothing)
    assert (summary.reused, summary.done) == (count, 0)
    seconds = time.time() - began
    return Found(seconds, seconds, note=f"{before} files, then {files(folder)}")


def fill(folder: Path, count: int) -> Found:
    """A store as a finished run of so many jobs leaves it."""
    began, out = time.time(), opened(folder)
    keys = np.sort(np.array([one.job.key for one in plan(count)]))
    for parts, row in ((out.tables["training"], ROW), (out.timings, {"stage": "sweep", **TIMING, "started": 0})):
        parts.replace(_repeated(parts, row, keys))
    return Found(time.time() - began, time.time() - began)


def fill_parts(folder: Path, count: int) -> Found:
    """A store as a killed run leaves it."""
    began = time.time()
    with opened(folder) as out:
        for jobs in np.array_split(np.array([one.job.key for one in plan(count)]), FLUSHES):
            out.append([_record(key) for key in jobs.tolist()])
    return Found(time.time() - began, time.time() - began)


def planning(folder: Path, count: int) -> Found:
    """Ask for so many jobs; none is run."""
    stored = files(folder) > 0
    memory, began = Memory(), time.time()
    with opened(folder) as out:
        open_s = time.time() - began
        first = round(count * NEW) if stored else 0
        backlog = Backlog((one.job for one in plan(count, first)), out.missing, Resources().chunk)
        while not backlog.complete:
            backlog.plan_ahead()
        seconds = time.time() - began
    assert (backlog.planned, len(backlog)) == (count, first or count)
    return Found(seconds, seconds, memory.peak_mb, f"{open_s:.2f} s of it to open, {len(backlog)} to run")


def _record(key: str) -> dict[str, Any]:
    answer = {"key": key, "task": TASK.name, "spec": "{}", "table": TASK.table, "rows": [ROW], "error": None}
    return answer | {"timing": TIMING}


def _repeated(parts: Parts, row: dict[str, Any], keys: np.ndarray) -> Iterator[pa.Table]:
    for start in range(0, len(keys), ROWS_PER_FILE):
        some = keys[start : start + ROWS_PER_FILE]
        columns = [
            pa.array(some, pa.string())
            if field.name == parts.key
            else pa.repeat(pa.scalar(row.get(field.name), field.type), len(some))
            for field in parts.schema
        ]
        yield pa.Table.from_arrays(columns, schema=parts.schema)


SIDES: dict[str, Callable[[Path, int], Found]] = {
    "ours": ours,
    "resume": resume,
    "resume, killed": resume,
    "plan": planning,
    "plan, new": planning,
    **{name: lambda folder, count, peer=peer: Found(*peer(folder, count)) for name, peer in PEERS.items()},
}
FILLED = {"resume": fill, "resume, killed": fill_parts, "plan": fill}


def measured(name: str, count: int, times: int = 1) -> Found:
    """The median of processes of their own; its line of the table is printed."""
    found = []
    for _ in range(times):
        with tempfile.TemporaryDirectory() as folder:
            for step in ["--fill", "--side"] if name in FILLED else ["--side"]:
                command = [sys.executable, "-m", "bench.sweep", step, name, "--jobs", str(count), "--folder", folder]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            found.append(Found(*json.loads(done.stdout.splitlines()[-1])))
    one = sorted(found)[len(found) // 2]
    each, rate = 1e6 * one.seconds / count, count / one.seconds
    print(f"{name:18s} {count:8d} {one.seconds:9.2f} {one.whole:9.2f} {each:11.1f} {rate:9.0f} {one.mb:6.0f}", end=" ")
    print(one.note, flush=True)
    return one


def main() -> None:
    """Run the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer jobs; under a minute")
    parser.add_argument("--jobs", type=int, help="that are run")
    parser.add_argument("--planned", type=int, help="jobs of the plan, and of its store")
    for hidden in ("--side", "--fill", "--folder"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.side or asked.fill:
        work = SIDES[asked.side] if asked.side else FILLED[asked.fill]
        print(json.dumps(work(Path(asked.folder), asked.jobs)))
        return
    size = QUICK if asked.quick else FULL
    jobs, planned, times = asked.jobs or size["jobs"], asked.planned or size["planned"], 1 if asked.quick else 3
    print(f"{'':18s} {'jobs':>8s} {'s':>9s} {'whole s':>9s} {'us a job':>11s} {'jobs/s':>9s} {'MB':>6s}")
    bare, found = [], {}
    for name in ("ours", "ray, at once", "ray, 8 in flight", "joblib", "ray tune", "dvc"):
        fewer = max(10, jobs // FEWER.get(name, 1))
        found[name] = measured(name, fewer, times if name in ("ours", "ray, at once", "ray, 8 in flight") else 1)
        bare += [found[name].seconds / fewer] if name in ("ray, at once", "ray, 8 in flight") else []
    resumed = [measured(name, jobs) for name in ("resume", "resume, killed")]
    plans = [measured(name, planned) for name in ("plan", "plan, new")]
    print(json.dumps({
        "overhead_vs_actor_call": round(found["ours"].seconds / jobs / min(bare), 2),
        "plan_s": round(plans[0].seconds, 2),
        "resume_s": round(resumed[1].seconds, 2),
        "driver_mb": round(max(one.mb for one in plans)),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
