"""One sweep among whose sound jobs are all that a job can do to its worker; then one that leaks memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faulty
import psutil
import pytest
from launcher import Launcher
from matrix import Row, Verdict, numbers, rows_of, verdict

from tsfmscope.store.stage_outputs import read_rows
from tsfmscope.tasks.sweep.cluster import QUIET, environment, worker_environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SOUND = 60
TIMEOUT_S = 2.0
FAULTS = {  # what the jobs do, or their load: how many of them
    "kill": 3,
    "kill in load": 2,
    "raise": 3,
    "segfault": 2,
    "hang": 2,
    "gpu memory": 3,
}
FAILS = {  # error, text of its message, attempts, whether the next run tries again
    "raise": ("ZeroDivisionError", "is poisoned", 1, False),
    "segfault": ("ActorDiedError", "died", 2, True),
    "hang": ("TimeoutError", f"job took more than {TIMEOUT_S:g} s; raise resources.job_timeout_s", 2, True),
}
FIRST = {do: 1000 + 10 * n for n, do in enumerate(FAULTS)}  # number of its first job
NAMES = {
    "kill": "SIGKILL of a worker in a job",
    "kill in load": "SIGKILL of an actor while it loads",
    "raise": "a job that always raises",
    "segfault": "a job that segfaults",
    "hang": f"a job that hangs (limit {TIMEOUT_S:g} s)",
    "gpu memory": "GPU out of memory (simulated)",
}


@dataclass(frozen=True)
class Swept:
    """What the sweep left."""

    keys: dict[str, list[str]]  # what jobs do -> their keys
    verdict: Verdict
    rows: Counter[str]
    runs: Counter[str]
    failures: dict[str, dict[str, Any]]


def job_calls(log: Path) -> dict[str, list[dict[str, Any]]]:
    """Jobs by what they do, as arguments of `faulty.make`."""
    learn = {"kind": "learn", "log_path": str(log)}
    faulty = {
        do: [
            {**learn, "numbers": [FIRST[do] + n], "do": do, "group": f"load{n}-" if "load" in do else "g"}
            for n in range(count)
        ]
        for do, count in FAULTS.items()
    }
    return {**faulty, "sound": [{**learn, "numbers": list(range(SOUND)), "sleep": 0.02}]}


@pytest.fixture(scope="module")
def swept(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Swept:
    """One sweep of all of them."""
    folder = tmp_path_factory.mktemp("jobs")
    log = folder / "log"
    kinds = job_calls(log)
    calls = [*kinds["sound"], *(one for do in FAULTS for one in kinds[do])]
    launcher.run(folder, calls, max_attempts=2, job_timeout_s=TIMEOUT_S)
    keys = {do: [job.key for job in faulty.make_jobs(ones)] for do, ones in kinds.items()}
    failures = {row["key"]: row for row in read_rows(folder / "data", "failures").to_pylist()}
    return Swept(
        keys,
        verdict(folder, faulty.expected_rows(faulty.make_jobs(calls))),
        rows_of(folder, "training"),
        Counter(key for key, _ in numbers(log, "run")),
        failures,
    )


@pytest.mark.parametrize("do", FAULTS)
def test_a_faulty_job_costs_itself_only(swept: Swept, do: str, enter: Callable[[Row], None]) -> None:
    keys = swept.keys[do]
    if do in FAILS:
        kind, text, attempts, transient = FAILS[do]
        failed = [swept.failures.get(key, {}) for key in keys]
        good = sum(
            (row.get("error"), row.get("attempts"), row.get("transient")) == (kind, attempts, transient)
            and text in row["message"]
            for row in failed
        )
        note = f"recorded as {kind} after {attempts} attempt{'s' * (attempts > 1)}"
    else:
        good = sum(swept.rows[key] == faulty.STEPS for key in keys)
        note = "done at a later attempt" + ", with half the batch" * (do == "gpu memory")
    note += f"; {SOUND} other jobs done"
    sound = sum(swept.rows[key] == faulty.STEPS for key in swept.keys["sound"])
    enter(Row(NAMES[do], len(keys), good, SOUND - sound + swept.verdict.missing, swept.verdict.doubled, note))


def test_failures_are_those_that_must_be_and_sound_jobs_ran_once_unless_their_worker_died(swept: Swept) -> None:
    assert swept.verdict.failures == {key for do in FAILS for key in swept.keys[do]}
    again = [key for key in swept.keys["sound"] if swept.runs[key] > 1]
    assert len(again) <= 2 * sum(FAULTS[do] for do in ("kill", "segfault", "hang")), "more than what was in a queue"


HEADROOM_MB = 1500  # of the machine's memory, to the limit at which Ray ends a worker


def test_a_job_that_leaks_memory_until_ray_ends_its_worker(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, enter: Callable[[Row], None]
) -> None:
    """On a node of its own, whose limit lies a little above what the machine now uses."""
    from ray.cluster_utils import Cluster

    memory = psutil.virtual_memory()
    if memory.available < 3 * HEADROOM_MB * 2**20:
        pytest.skip(f"{memory.available >> 20} MB of memory are free, {3 * HEADROOM_MB} are needed to leak safely")
    share = (memory.total - memory.available + HEADROOM_MB * 2**20) / memory.total
    limits = {"RAY_memory_usage_threshold": f"{share:.4f}", "RAY_memory_monitor_refresh_ms": "100"}
    log = tmp_path / "log"
    calls = [
        {"kind": "learn", "numbers": [100], "log_path": str(log), "do": "leak", "megabytes": 3 * HEADROOM_MB},
        {"kind": "learn", "numbers": list(range(20)), "log_path": str(log), "sleep": 0.02},
    ]
    with environment({**QUIET, **worker_environment(1), **limits}):
        small = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
        try:
            drivers = Launcher(small.address, tmp_path_factory.mktemp("drivers"))
            try:
                drivers.run(tmp_path, calls, max_attempts=2)
            finally:
                drivers.close()
        finally:
            small.shutdown()
    jobs = faulty.make_jobs(calls)
    found = verdict(tmp_path, faulty.expected_rows(jobs))
    (failure,) = read_rows(tmp_path / "data", "failures").to_pylist()
    named = failure["key"] == jobs[0].key and "low on memory" in failure["message"].lower()
    lines = [line for line in failure["message"].splitlines() if "memory" in line.lower()]
    note = f"recorded as {failure['error']} after {failure['attempts']} attempts: “{lines[0].strip()[:80]} …”"
    enter(Row("a job that leaks memory until Ray ends it", 1, int(named), found.missing, found.doubled, note))
