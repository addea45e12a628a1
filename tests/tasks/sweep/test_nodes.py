"""A sweep over several nodes, raylets with addresses of their own on this machine, into one folder."""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import toy
import toy_nodes

from stages.planning.sweeping import PlannedJob, read_nothing, run_and_finish
from store.stage_outputs import dump_files, read_rows
from store.stage_store import StageStore
from tasks.job import Job
from tasks.sweep.cluster import PYTHON_VARIABLE, Resources
from tasks.sweep.engine import run
from tasks.sweep.tune import Halving, search

pytestmark = pytest.mark.slow
NODES = toy_nodes.NODES
COUNT = 24


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with toy_nodes.raylets() as cluster:
        yield cluster


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A Python of a node that is not the driver's; it sets a variable."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nTOY_PYTHON="$0" exec {sys.executable} "$@"\n')
    path.chmod(0o755)
    monkeypatch.setenv(PYTHON_VARIABLE, str(path))
    return str(path)


def test_three_nodes_work_at_once_and_their_rows_and_dumps_are_in_the_folder(
    tmp_path: Path, cluster: Any, python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, here = tmp_path / "log", tmp_path / "driver"
    here.mkdir()
    monkeypatch.chdir(here)
    spec = {"log": str(log), "nodes": len(NODES), "model": "m", "dataset": "d"}
    planned = [PlannedJob(Job(toy_nodes.DUMP, {**spec, "n": n, "condition": f"c{n}"}), ["study"]) for n in range(COUNT)]
    opened = functools.partial(
        StageStore, tmp_path / "out", tables=["dumps"], companion=tmp_path / "timings", stage="meeting"
    )
    resources = Resources(address=cluster.address, flush_seconds=0.5)

    with opened() as out:
        summary = run_and_finish(out, planned, resources, read_nothing)
    assert (summary.done, summary.failed, summary.restarts) == (COUNT, 0, 0)
    rows = read_rows(tmp_path / "out", "dumps")
    assert sorted(rows["job_key"].to_pylist()) == sorted(one.job.key for one in planned)
    assert len(dump_files(tmp_path / "out", ".parquet")) == COUNT
    timings = read_rows(tmp_path / "timings", "timings").to_pylist()
    nodes = Counter(row["node"] for row in timings)
    assert set(nodes) == set(NODES) and nodes == Counter(toy.read_log(log, "at")), "each job ran once"
    assert len({(row["actor"], row["node"]) for row in timings}) == len(NODES)
    assert set(toy.read_log(log, "with")) == {f"{python} in {here}"}, "a worker is in the driver's folder"

    with opened() as out:
        again = run_and_finish(out, planned, resources, read_nothing)
    assert (again.reused, again.done) == (COUNT, 0)


def test_a_node_without_the_weights_leaves_their_jobs_to_the_others(tmp_path: Path, cluster: Any) -> None:
    store, log = tmp_path / "store", tmp_path / "log"
    requested = toy.make(range(30), log, groups=3, load=NODES[0], sleep=0.2)
    summary = run(requested, toy.port(store), Resources(address=cluster.address))
    assert (summary.done, summary.failed) == (30, 0)
    assert {record["timing"]["node"] for record in toy.read_records(store)} == set(NODES[1:])
    assert toy.read_log(log, "refused"), "its actor never tried"


def test_trials_of_a_search_run_on_every_node_with_the_same_python(tmp_path: Path, cluster: Any, python: str) -> None:
    spec = {"log": str(tmp_path / "log"), "nodes": len(NODES)}
    trials = [Job(toy_nodes.TRIAL, {**spec, "n": n}) for n in range(len(NODES))]
    where = Resources(address=cluster.address)
    ended = search(trials, toy.port(tmp_path / "store"), where, Halving(most=1, grace=1), tmp_path / "search")
    rows = [trial.outcome.rows[0] for trial in ended if trial.outcome and trial.outcome.rows]
    assert {row["node"] for row in rows} == set(NODES) and len(rows) == len(NODES)
    assert {row["python"] for row in rows} == {python}
