"""`make submit` to a head node that asks for a token and a second node that has nothing but the shared folder.

docs/cluster.md says the same line by line.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stages import PARAMS
from tests.e2e.checkout import BIN, ROOT, Checkout
from tests.e2e.cluster import SECOND, Nodes, head, poorer_python

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
JOBS = 156  # of geometry on the smoke profile


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with head("--num-cpus=1") as started:
        yield started


@pytest.fixture(scope="module")
def shared(smoke: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """The checkout and its environment in one folder, which all nodes see."""
    made = smoke.copy(tmp_path_factory.mktemp("submit") / "shared")
    (made.folder / ".venv").symlink_to(sys.prefix)
    return made


def change(block: dict[str, Any]) -> None:
    """Change a parameter of geometry, and require two CPUs for each job, which the head has not got."""
    block["geometry"]["k_max"] = 3
    block["resources"] = {"cpus_per_actor": 2}


def submit(
    shared: Checkout, nodes: Nodes, *variables: str, ok: bool = True, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `make submit` with these variables of make."""
    target = ("make", "--old-file=.venv/.ready", "submit", f"ADDRESS={nodes.address}", *variables)
    return shared.run(*target, ok=ok, **nodes.token, **environment)


def test_a_folder_and_a_command_may_contain_quotes_and_nothing_else_runs(nodes: Nodes, tmp_path: Path) -> None:
    folder = tmp_path / 'it\'s "here"; touch a'
    (folder / ".venv").mkdir(parents=True)
    variables = (f"FOLDER={folder}", 'COMMAND=touch "it\'s done"', 'NAME=x"; touch b; "', f"ADDRESS={nodes.address}")
    submit = ["make", f"--directory={ROOT}", "--old-file=.venv/.ready", "submit", *variables]
    environment = {**os.environ, **nodes.token, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    deadline = time.monotonic() + 120
    # The job server starts after the head node.
    while time.monotonic() < deadline:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", nodes.dashboard)) == 0:
                break
        time.sleep(0.5)
    done = subprocess.run(submit, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(path.name for path in folder.iterdir()) == [".venv", "it's done"]
    assert not [path for path in (tmp_path / "b", ROOT / "b", tmp_path / "a", ROOT / "a") if path.exists()]


@pytest.mark.long
def test_results_and_lock_are_in_the_shared_folder_after_a_submitted_repro(
    nodes: Nodes, shared: Checkout, tmp_path: Path
) -> None:
    """The node that runs the jobs has an empty folder and a Python without torch."""
    python = poorer_python(tmp_path / "python")
    lacking = subprocess.run([python, "-c", "import ray, torch"], capture_output=True, text=True, check=False)
    assert "No module named 'torch'" in lacking.stderr
    (tmp_path / "empty").mkdir()
    nodes.add(python, tmp_path / "empty", SECOND, "--num-cpus=2")
    shared.params(change)
    elsewhere = {"RAY_ADDRESS": "127.0.0.1:1"}  # Ray's own client would prefer it to the address that it gets

    done = submit(shared, nodes, "NAME=first", "COMMAND=dvc repro tables", **elsewhere)

    assert [f"Running stage '{stage}'" in done.stdout for stage in ("geometry", "tables", "tokens")] == [1, 1, 0]
    assert f"geometry: {JOBS} jobs, {JOBS} done" in done.stdout
    assert shared.sql("select node, count(*) as n from timings where stage = 'geometry' group by all") == [
        {"node": SECOND, "n": JOBS}
    ]
    assert list((tmp_path / "empty").iterdir()) == []
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
