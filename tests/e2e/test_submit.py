"""`make submit` to a head node that asks for a token and a second node that has nothing but the shared folder.

docs/cluster.md says the same line by line.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.checkout import Checkout
from tests.e2e.cluster import SECOND, Nodes, head, poorer_python
from tsfmscope.stages import PARAMS

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
    asked = (f"ADDRESS={nodes.address}", "NAME=first", "COMMAND=dvc repro tables")
    elsewhere = {"RAY_ADDRESS": "127.0.0.1:1"}  # Ray's own client would prefer it to the address that it gets

    done = shared.run("make", "--old-file=.venv/.ready", "submit", *asked, **nodes.token, **elsewhere)

    assert f"submitted first to {nodes.address}" in done.stdout
    assert [f"Running stage '{stage}'" in done.stdout for stage in ("geometry", "tables", "tokens")] == [1, 1, 0]
    assert f"geometry: {JOBS} jobs, {JOBS} done" in done.stdout
    assert shared.sql("select node, count(*) as n from timings where stage = 'geometry' group by all") == [
        {"node": SECOND, "n": JOBS}
    ]
    assert list((tmp_path / "empty").iterdir()) == []
    lock = yaml.safe_load((shared.folder / "dvc.lock").read_text())["stages"]
    assert lock["geometry"]["params"][PARAMS]["geometry"]["k_max"] == 3
    assert "up to date" in shared.run("dvc", "status", "geometry", "tables", "--no-updates").stdout

    again = ("python", "-m", "tsfmscope", "submit", "--address", nodes.address, "--name", "first", "--", "true")
    refused = shared.run(*again, ok=False, **nodes.token)
    assert refused.returncode == 1 and "Traceback" not in refused.stderr
    assert "refused the job: ValueError: Job with submission_id first already exists" in refused.stderr


ENDS = [  # options, command, exit status, what is said
    ((), ("dvc", "repro", "no-such-stage"), 255, "no-such-stage"),
    ((), ("bash", "-c", "kill -9 $$"), 137, "exit status 137"),
    (("--folder", "/no/such folder"), ("true",), 66, "lacks the folder /no/such folder"),
]


@pytest.mark.parametrize(("options", "command", "status", "said"), ENDS)
def test_a_job_that_fails_passes_its_exit_status_on(
    nodes: Nodes, shared: Checkout, options: tuple[str, ...], command: tuple[str, ...], status: int, said: str
) -> None:
    submit = ("python", "-m", "tsfmscope", "submit", "--address", nodes.address, *options, "--", *command)
    done = shared.run(*submit, ok=False, **nodes.token)
    assert done.returncode == status
    assert said in done.stdout + done.stderr


def test_a_stopped_job_has_time_to_end_well_and_is_no_success(nodes: Nodes, shared: Checkout) -> None:
    drain = "trap 'sleep 5; touch drained; exit 0' TERM; touch started; while :; do sleep 0.1; done"  # ray gives it 3 s
    submit = ("python", "-m", "tsfmscope", "submit", "--address", nodes.address, "--name", "long", "--")
    command, environment = [*submit, "bash", "-c", drain], shared.environment(**nodes.token)
    with subprocess.Popen(command, cwd=shared.folder, env=environment) as following:
        while not (shared.folder / "started").exists():
            assert following.poll() is None
            time.sleep(0.1)
        shared.run("ray", "job", "stop", "--address", nodes.address, "long", **nodes.token)
    assert following.returncode == 143
    assert (shared.folder / "drained").exists()


def test_without_the_token_the_user_is_told_what_to_do(nodes: Nodes, shared: Checkout, tmp_path: Path) -> None:
    submit = ("python", "-m", "tsfmscope", "submit", "--address", nodes.address)
    done = shared.run(*submit, ok=False, HOME=str(tmp_path))
    assert done.returncode == 1
    assert "~/.ray/auth_token" in done.stderr and "RAY_AUTH_MODE=token" in done.stderr
    assert "Traceback" not in done.stderr
