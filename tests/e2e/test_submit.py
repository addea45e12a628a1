"""`make submit` for real: a head node that asks for a token, then a second node that has nothing but the shared folder.

docs/cluster.md says the same line by line.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from tests.e2e.checkout import Checkout
from tests.e2e.cluster import HEAD, SECOND, Nodes, head, poorer_python
from tsfmscope.stages import PARAMS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
JOBS = 156  # of geometry on the smoke profile


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with head("--num-cpus=1") as started:
        yield started


@pytest.fixture
def shared(smoke: Checkout, tmp_path: Path) -> Checkout:
    """The checkout in a folder that all nodes see, as every folder of this machine is; its environment beside it."""
    made = smoke.copy(tmp_path / "shared")
    (made.folder / ".venv").symlink_to(sys.prefix)
    return made


def change(made: Checkout, k_max: int, **resources: Any) -> None:
    """Make geometry and what depends on it out of date; resources are tracked by no stage."""

    def write(block: dict[str, Any]) -> None:
        block["geometry"]["k_max"] = k_max
        block["resources"] = resources

    made.params(write)


def submit(
    shared: Checkout, nodes: Nodes, *variables: str, ok: bool = True, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `make submit` with these variables of make."""
    target = ("make", "--old-file=.venv/.ready", "submit", f"ADDRESS={nodes.address}", *variables)
    return shared.run(*target, ok=ok, **nodes.token, **environment)


def nodes_of(made: Checkout, stage: str) -> Counter[str]:
    return Counter(pq.read_table(made.folder / f"data/timings/{stage}/timings")["node"].to_pylist())


def test_results_and_lock_are_in_the_shared_folder_after_a_submitted_repro(nodes: Nodes, shared: Checkout) -> None:
    change(shared, 3)
    elsewhere = {"RAY_ADDRESS": "127.0.0.1:1"}  # Ray's own client prefers it to the given address

    done = submit(shared, nodes, "NAME=first", "COMMAND=dvc repro tables", **elsewhere)

    assert [f"Running stage '{stage}'" in done.stdout for stage in ("geometry", "tables", "tokens")] == [1, 1, 0]
    assert f"geometry: {JOBS} jobs, {JOBS} done" in done.stdout
    assert nodes_of(shared, "geometry") == {HEAD: JOBS}
    lock = yaml.safe_load((shared.folder / "dvc.lock").read_text())["stages"]
    assert lock["geometry"]["params"][PARAMS]["geometry"]["k_max"] == 3
    assert "up to date" in shared.run("dvc", "status", "geometry", "tables", "--no-updates").stdout

    failed = submit(shared, nodes, "COMMAND=dvc repro no-such-stage", ok=False)
    assert failed.returncode != 0 and "no-such-stage" in failed.stdout + failed.stderr


def test_a_stopped_job_has_time_to_store_its_results(nodes: Nodes, shared: Checkout) -> None:
    (shared.folder / "drain.sh").write_text(
        "trap 'sleep 5; touch drained; exit 0' TERM; touch started; while :; do sleep 0.1; done"  # ray gives it 3 s
    )
    target = ("make", "--old-file=.venv/.ready", "submit", f"ADDRESS={nodes.address}", "NAME=long")
    environment = shared.environment(**nodes.token)
    with subprocess.Popen([*target, "COMMAND=bash drain.sh"], cwd=shared.folder, env=environment) as following:
        while not (shared.folder / "started").exists():
            assert following.poll() is None
            time.sleep(0.1)
        shared.run("ray", "job", "stop", "--address", nodes.address, "long", **nodes.token)
    assert (shared.folder / "drained").exists()


def test_a_second_node_from_an_empty_folder_finds_code_and_environment_in_the_shared_one(
    nodes: Nodes, shared: Checkout, tmp_path: Path
) -> None:
    python = poorer_python(tmp_path / "python")
    lacking = subprocess.run([python, "-c", "import ray, torch"], capture_output=True, text=True, check=False)
    assert "No module named 'torch'" in lacking.stderr
    (tmp_path / "empty").mkdir()
    nodes.add(python, tmp_path / "empty", SECOND, "--num-cpus=2")
    change(shared, 2, cpus_per_actor=2)  # the head has one, so that every job is the second node's

    done = submit(shared, nodes, "COMMAND=dvc repro geometry")

    assert f"geometry: {JOBS} jobs, {JOBS} done" in done.stdout
    assert nodes_of(shared, "geometry") == {SECOND: JOBS}
    assert list((tmp_path / "empty").iterdir()) == []
