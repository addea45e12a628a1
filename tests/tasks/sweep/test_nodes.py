"""A sweep over several nodes, raylets with addresses of their own on this machine, into one shared folder."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import toy
import toy_nodes

from tsfmscope.tasks.job import Job
from tsfmscope.tasks.sweep.cluster import PYTHON_VARIABLE, Resources
from tsfmscope.tasks.sweep.engine import run
from tsfmscope.tasks.sweep.tune import Halving, search

pytestmark = pytest.mark.slow
NODES = toy_nodes.NODES
COUNT = 24


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with toy_nodes.raylets() as cluster:
        yield cluster


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A python of its own, as a node has it that runs Ray from another than the driver's; it leaves its mark."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nTOY_PYTHON="$0" exec {sys.executable} "$@"\n')
    path.chmod(0o755)
    monkeypatch.setenv(PYTHON_VARIABLE, str(path))
    return str(path)


def jobs(log: Path, count: int) -> list[Job]:
    return [Job(toy_nodes.WORK, {"n": n, "log": str(log), "nodes": len(NODES)}) for n in range(count)]


def test_three_nodes_work_at_once_and_their_rows_and_dumps_are_in_the_shared_folder(
    tmp_path: Path, cluster: Any, python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, log, here = tmp_path / "store", tmp_path / "log", tmp_path / "driver"
    here.mkdir()
    monkeypatch.chdir(here)

    summary = run(jobs(log, COUNT), toy.port(store), Resources(address=cluster.address, flush_seconds=0.5))

    assert (summary.done, summary.failed, summary.restarts) == (COUNT, 0, 0)
    records = toy.read_records(store)
    assert len({record["key"] for record in records}) == len(records) == COUNT
    rows = [record["rows"][0] for record in records]
    assert {row["folder"] for row in rows} == {str(here)}, "a worker is in the driver's folder"
    assert {row["python"] for row in rows} == {python}
    done = Counter(record["timing"]["node"] for record in records)
    assert set(done) == set(NODES) and done == Counter(row["node"] for row in rows)
    assert done == Counter(toy.read_log(log, "at")), "each job ran once"
    assert len({(record["timing"]["actor"], record["timing"]["node"]) for record in records}) == len(NODES)
    assert len({row["pid"] for row in rows}) == len(NODES), "dumps are written by the workers"
    for row in rows:
        assert Path(row["path"]).is_relative_to(store) and pq.read_metadata(row["path"]).num_rows == row["rows"]

    again = run(jobs(log, COUNT), toy.port(store), Resources(address=cluster.address))
    assert (again.reused, again.done) == (COUNT, 0)


def test_a_node_without_the_weights_leaves_their_jobs_to_the_others(tmp_path: Path, cluster: Any) -> None:
    store, log = tmp_path / "store", tmp_path / "log"
    asked = toy.make(range(60), log, groups=3, load=NODES[0], sleep=0.3)
    summary = run(asked, toy.port(store), Resources(address=cluster.address))
    assert (summary.done, summary.failed) == (60, 0)
    assert {record["timing"]["node"] for record in toy.read_records(store)} == set(NODES[1:])
    assert toy.read_log(log, "refused"), "its actor never tried"


def test_trials_of_a_search_run_on_every_node_with_the_same_python(tmp_path: Path, cluster: Any, python: str) -> None:
    asked = jobs(tmp_path / "log", len(NODES))
    where = Resources(address=cluster.address)
    ended = search(asked, toy.port(tmp_path / "store"), where, Halving(most=1, grace=1), tmp_path / "search")
    rows = [one.outcome.rows[0] for one in ended if one.outcome and one.outcome.rows]
    assert {row["node"] for row in rows} == set(NODES) and len(rows) == len(NODES)
    assert {row["python"] for row in rows} == {python}
