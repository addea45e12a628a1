"""Many jobs: what they leave behind, and what planning them takes of the driver's memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PLANNING = """
import sys
from pathlib import Path
from stages.planning.sweeping import JobLog, PlannedJob
from store.stage_store import StageStore
from tasks.sweep.job_queue import JobQueue
from tasks.sweep.cluster import Resources
from tasks.job import Job, Task

TASK, count, where, log = Task("t", 1, "m:f"), int(sys.argv[1]), Resources(), JobLog()

def plan():
    for n in range(count):
        spec = {"model": "chronos-t5-mini", "dataset": "traffic", "condition": "c512", "layer": n % 24, "seed": n}
        yield PlannedJob(Job(TASK, spec, {"data/embeddings/some-file.parquet": "0" * 64}), ("one", "two"))

with StageStore(Path("out"), tables=["training"], companion=Path("timings"), stage="s") as out:
    jobs = (one.job for one in log.record(plan()))
    queue = JobQueue(jobs, out.missing, 2000, lambda job: where.for_task(job.task.name))
    while not queue.is_complete:
        queue.plan_ahead()
assert len(queue) == queue.n_planned == len(log.keys) == count
lines = Path("/proc/self/status").read_text().splitlines()
print(next(line.split()[1] for line in lines if line.startswith("VmHWM:")))
"""


@pytest.mark.slow
def test_planning_a_million_jobs_costs_at_most_400_mb(tmp_path: Path) -> None:
    """The key, its entries in sets and lists, and the packed spec of a planned job stay in memory."""
    peaks = []
    for count in (20_000, 80_000):
        folder = tmp_path / str(count)
        folder.mkdir()
        command = [sys.executable, "-c", PLANNING, str(count)]
        environment = {"PYTHONPATH": str(Path(__file__).parents[3])}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
        peaks.append(1024 * int(done.stdout))
    # 320 bytes were measured.
    assert (peaks[1] - peaks[0]) / 60_000 < 400
