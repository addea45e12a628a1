"""A sweep over several nodes into the real store, in a shared folder."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import toy_nodes

from tsfmscope.stages.pipeline.sweeping import PlannedJob, read_nothing, run_and_finish
from tsfmscope.store.stage_folders import shared_folders
from tsfmscope.store.stage_outputs import dump_files, read_rows
from tsfmscope.store.stage_store import StageStore
from tsfmscope.tasks.job import Job, Task
from tsfmscope.tasks.sweep.cluster import Resources

pytestmark = pytest.mark.slow
DUMP = Task("meeting", 1, "toy_nodes:dump_entry", table="dumps")
COUNT = 24


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with toy_nodes.raylets() as cluster:
        yield cluster


def test_rows_and_dumps_of_three_nodes_are_in_the_store_and_found_again(tmp_path: Path, cluster: Any) -> None:
    spec = {"log": str(tmp_path / "log"), "nodes": len(toy_nodes.NODES), "model": "m", "dataset": "d"}
    planned = [PlannedJob(Job(DUMP, {**spec, "n": n, "condition": f"c{n}"}), ["study"]) for n in range(COUNT)]
    opened = functools.partial(
        StageStore, tmp_path / "out", tables=["dumps"], companion=tmp_path / "timings", stage="meeting"
    )
    where = Resources(address=cluster.address, flush_seconds=0.5)

    with opened(folders=shared_folders(tmp_path / "shared", "meeting")) as out:
        summary = run_and_finish(out, planned, where, read_nothing)
    assert (summary.done, summary.failed) == (COUNT, 0)
    rows = read_rows(tmp_path / "out", "dumps")
    assert sorted(rows["job_key"].to_pylist()) == sorted(one.job.key for one in planned)
    assert len(dump_files(tmp_path / "out", ".parquet")) == COUNT
    timings = read_rows(tmp_path / "timings", "timings")
    assert set(timings["node"].to_pylist()) == set(toy_nodes.NODES), "each node did some"

    with opened(folders=shared_folders(tmp_path / "shared", "meeting")) as out:
        again = run_and_finish(out, planned, where, read_nothing)
    assert (again.reused, again.done) == (COUNT, 0)
