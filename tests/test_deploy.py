"""The cluster files of deploy/: Ray checks the launcher's file; KubeRay's pins the Ray of the environment."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[1]
PINNED = dict(re.findall(r"^(\S+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
SHARED = "/shared/tsfmscope"


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / "deploy" / name).read_text()))


def launcher(**changed: Any) -> dict[str, Any]:
    from ray.autoscaler._private.util import prepare_config

    prepared: dict[str, Any] = prepare_config(documents("ray-cluster.yaml")[0] | changed)
    return prepared


def test_ray_takes_the_launchers_file() -> None:
    from ray.autoscaler._private.util import validate_config

    validate_config(launcher())
    with pytest.raises(jsonschema.ValidationError, match="worker_start_commands"):
        validate_config(launcher(worker_start_commands=[]))


def test_every_node_of_the_launcher_has_the_token_and_the_shared_environment() -> None:
    config = launcher()
    assert config["file_mounts"] == {"~/.ray/auth_token": "~/.ray/auth_token"}
    for commands in (config["head_start_ray_commands"], config["worker_start_ray_commands"]):
        (start,) = (command for command in commands if "ray start" in command)
        assert f"RAY_AUTH_MODE=token {SHARED}/.venv/bin/ray start" in start


def pods(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    cluster = job["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        yield group["template"]["spec"]


def test_every_pod_of_kuberay_mounts_the_claim_and_runs_the_pinned_ray() -> None:
    claim, job = documents("kuberay.yaml")
    assert (claim["kind"], claim["spec"]["accessModes"]) == ("PersistentVolumeClaim", ["ReadWriteMany"])
    assert job["spec"]["rayClusterSpec"]["rayVersion"] == PINNED["ray"]
    assert job["spec"]["rayClusterSpec"]["authOptions"] == {"mode": "token"}
    for pod in pods(job):
        (container,) = pod["containers"]
        assert container["image"] == f"rayproject/ray:{PINNED['ray']}-py311"
        claims = {volume["name"]: volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"]}
        (mount,) = container["volumeMounts"]
        assert claims[mount["name"]] == claim["metadata"]["name"] and SHARED.startswith(f"{mount['mountPath']}/")


def test_kuberays_entrypoint_is_bash_that_parses_and_its_job_has_time_to_stop() -> None:
    from tasks.sweep.cluster import PYTHON_VARIABLE

    _, job = documents("kuberay.yaml")
    shell, option, script = shlex.split(job["spec"]["entrypoint"])
    assert (shell, option) == ("bash", "-c")
    subprocess.run(["bash", "-n", "-c", script], check=True)
    assert script.startswith(f"cd {SHARED} &&") and f"{PYTHON_VARIABLE}=" in script and script.endswith("dvc repro")
    variables = yaml.safe_load(job["spec"]["runtimeEnvYAML"])["env_vars"]
    assert variables == {"RAY_JOB_STOP_WAIT_TIME_S": "30"}


def test_rayignore_keeps_data_out_of_an_upload_and_lets_code_in(tmp_path: Path) -> None:
    from ray._private.runtime_env.packaging import create_package

    shutil.copy2(ROOT / ".rayignore", tmp_path)
    for name in (
        "data/rows.parquet",
        ".venv/bin/python",
        ".dvc/cache/ab",
        "tsfmscope/series/data/kept.py",
        "params.yaml",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    package = tmp_path.parent / f"{tmp_path.name}.zip"
    create_package(str(tmp_path), package, include_gitignore=False)
    with zipfile.ZipFile(package) as upload:
        files = {name for name in upload.namelist() if not name.endswith("/")}
    assert files == {".rayignore", "tsfmscope/series/data/kept.py", "params.yaml"}
