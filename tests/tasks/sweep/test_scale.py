"""Many jobs: what they leave behind, and what planning them takes of the driver's memory."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import toy

from stages.planning.sweeping import PlannedJob, read_nothing, run_and_finish
from store.stage_store import StageStore
from tasks.job import Job, Task
from tasks.sweep.cluster import Resources

TASK = Task("row", 1, "toy:row", table="training")
COUNT, POISONED = 3000, 13
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


def rows(folder: Path) -> list[dict]:
    return pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob("*.parquet"))]).to_pylist()


@pytest.mark.slow
def test_thousands_of_jobs_are_stored_once_in_few_files_and_found_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    plan = [PlannedJob(Job(TASK, {"n": n, "log": str(log)}), ("s",)) for n in range(COUNT)]
    data = tmp_path / "data"
    for reused in (0, COUNT):
        with StageStore(data / "sweep", tables=["training"], companion=data / "timings", stage="sweep") as out:
            where = Resources(local_cpus=2, max_attempts=1, flush_seconds=0.02)
            summary = run_and_finish(out, iter(plan), where, read_nothing)
        assert (summary.planned, summary.reused, summary.done) == (COUNT, reused, 0 if reused else COUNT - 1)
        if reused:
            break
        assert summary.failures == {"ActorDiedError": 1}
        (data / "sweep" / "failures" / "00000.parquet").rename(tmp_path / "failures.parquet")  # it is transient
        with StageStore(data / "sweep", tables=["training"], companion=data / "timings", stage="sweep") as out:
            row = {"model": "m", "step": POISONED, "loss": 0.0, "learning_rate": 0.0}
            out.adopt("training", plan[POISONED].job.key, [row])
    assert sorted(row["step"] for row in rows(data / "sweep" / "training")) == list(range(COUNT))
    keys = Counter(row["job_key"] for row in rows(data / "sweep" / "training"))
    assert keys == Counter(one.job.key for one in plan)
    assert {row["job_key"] for row in rows(data / "sweep" / "study_jobs")} == keys.keys()
    assert len(list(data.rglob("*.parquet"))) <= 10
    runs = Counter(toy.read_log(log, "run"))
    assert runs.keys() == {str(n) for n in range(COUNT)}
    assert runs.total() - COUNT < 0.2 * COUNT, "a death had more than the jobs in flight done again"


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
