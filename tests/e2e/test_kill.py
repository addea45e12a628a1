"""Kill the driver at any moment: the next run goes on, loses no stored job, repeats none, and no row stands twice."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.e2e.checkout import Checkout

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

# Counts what the workers do outside the store: each measured layer appends its key.
LOGGED = """
import os
from tsfmscope.tasks.entries import geometry as real

_entry = real.entry


def entry(job, data, model):
    result = _entry(job, data, model)
    handle = os.open(os.environ["EXECUTION_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, (job.key + "\\n").encode())
    os.close(handle)
    return result
"""

HOLD = """
import sys
from tsfmscope.stages.pipeline.sweeping import open_store

with open_store("geometry"):
    print("held", flush=True)
    sys.stdin.read()
"""


def stored(made: Checkout) -> list[str]:
    files = sorted((made.folder / "data/geometry/geometry").glob("[!.]*.parquet"))
    return [key for file in files for key in pq.read_table(file)["job_key"].to_pylist()]


@pytest.mark.parametrize("when", [0.4])  # of the jobs; tests/tasks/sweep/faults has many more moments
def test_a_killed_driver_loses_nothing_that_was_stored(smoke: Checkout, tmp_path: Path, when: float) -> None:
    made = smoke.copy(tmp_path / "repository")
    (made.folder / "tasks/entries/logged.py").write_text(LOGGED)
    stage = made.folder / "stages/geometry.py"
    stage.write_text(
        stage.read_text().replace("tsfmscope.tasks.entries.geometry:entry", "tsfmscope.tasks.entries.logged:entry")
    )
    raised, times = re.subn(r"measures\.VERSION", "1000", stage.read_text())
    assert times == 1
    stage.write_text(raised)
    made.params(lambda block: block.setdefault("resources", {}).update({"flush_s": 0.3}))
    log = tmp_path / "executions.log"
    environment = made.environment(EXECUTION_LOG=str(log))
    driver = subprocess.Popen(
        ["python", "-m", "tsfmscope.stages", "geometry"], cwd=made.folder, env=environment, start_new_session=True
    )
    deadline = time.monotonic() + 240
    old = set(stored(made))
    while len(set(stored_safely(made)) - old) < when * 156 and driver.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05 + random.random() / 20)
    assert driver.poll() is None, "the driver ended before it could be killed"
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    time.sleep(1)
    before = set(stored_safely(made)) - old
    ran_before = Counter(log.read_text().split())
    assert 0 < len(before) < 156

    made.run("python", "-m", "tsfmscope.stages", "geometry", EXECUTION_LOG=str(log))
    keys = stored(made)
    assert len(keys) == len(set(keys)) == 156
    ran_after = Counter(log.read_text().split()) - ran_before
    assert not before & set(ran_after), "a stored job was repeated"
    assert before | set(ran_after) == set(keys)
    assert not list((made.folder / "data").rglob(".tmp-*"))


def stored_safely(made: Checkout) -> list[str]:
    """`stored` while files come and go."""
    try:
        return stored(made)
    except FileNotFoundError:
        return stored_safely(made)


def test_a_second_driver_is_refused_with_the_reason(smoke: Checkout, tmp_path: Path) -> None:
    made = smoke.copy(tmp_path / "repository")
    holder = subprocess.Popen(
        ["python", "-c", HOLD],
        cwd=made.folder,
        env=made.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline().strip() == "held"
    refused = made.run("python", "-m", "tsfmscope.stages", "geometry", ok=False)
    holder.communicate("")
    assert refused.returncode == 1
    assert f"pid {holder.pid}" in refused.stderr
