"""Wheel and sdist: what they hold, and that the wheel runs in an empty environment, in an empty folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import uv

ROOT = Path(__file__).parents[1]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
PARTS = {
    "tsfmscope/checkpoints/chronos-bolt-mini/model.safetensors",
    "tsfmscope/models/bundled.yaml",
    "tsfmscope/models/skill.csv",
    "tsfmscope/series/catalog.yaml",
    "tsfmscope/report/page/layout.html.j2",
}
FOREIGN = ("tasks.py", "stages/commands/__init__.py", "store/__init__.py")
FOREIGN_NAMES = {"tasks.py", "stages", "store"}
NOT_OURS = {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV", "TSFMSCOPE_DATA", "RAY_ADDRESS"}


def call(*command: str | Path, at: Path, code: int = 0) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in NOT_OURS}
    environment.setdefault("UV_FIND_LINKS", os.environ.get("PIP_FIND_LINKS", ""))  # as the Makefile does
    done = subprocess.run(
        command, cwd=at, capture_output=True, text=True, check=False, env=environment | {"COLUMNS": "200"}
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel that was built from nothing but it."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(folder), "-t"]
    call(*build, "sdist", at=ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    call(*build, "wheel", at=folder / sdist.name.removesuffix(".tar.gz"))
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def tracked(*under: str) -> set[str]:
    found = call("git", "ls-files", "--cached", "--others", "--exclude-standard", *under, at=ROOT).splitlines()
    return {name for name in found if (ROOT / name).is_file() and name != ".venv"}


@pytest.mark.slow
def test_the_wheel_is_the_library_alone(built: tuple[Path, Path]) -> None:
    names = set(zipfile.ZipFile(built[1]).namelist())
    assert names >= tracked("tsfmscope") >= PARTS
    assert {name.partition("/")[0] for name in names} == {"tsfmscope", f"tsfmscope-{VERSION}.dist-info"}
    assert not [name for name in names if name.split("/")[1] in ("stages", "tasks", "store")]


@pytest.mark.slow
def test_the_sdist_is_the_checkout(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names - {"PKG-INFO"} == tracked()


def check_core(program: Path, here: Path) -> None:
    """What needs no extra runs; what needs one is a line that names it."""
    checks = {check["name"]: check for check in json.loads(call(program, "doctor", "--json", at=here))}
    assert "missing" not in {check["state"] for check in checks.values()}
    assert {checks[name]["state"] for name in ("extra pipeline", "extra report")} == {"note"}
    assert checks["extra pipeline"]["fix"] == "pip install 'tsfmscope[pipeline]'"
    for command in (
        ("inspect", "chronos-bolt-mini", "co2"),
        ("compress", "chronos-bolt-mini", "core", "--to", "0.5", "--data", "nile", "--context", "64"),
        ("export", "core", "core-dense", "--dense"),
    ):
        call(program, *command, at=here)
    for name in ("core", "core-dense"):
        shutil.rmtree(here / name)
    without_report = call(program, "inspect", "chronos-bolt-mini", "nile", "--out", "look.html", at=here, code=1)
    assert "pip install 'tsfmscope[report]'" in without_report


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_wheel_runs_in_an_empty_environment_and_an_empty_folder(built: tuple[Path, Path], tmp_path: Path) -> None:
    python, here = tmp_path / "venv" / "bin" / "python", tmp_path / "here"
    # Names that a user may well have; the library imports none of them.
    for name in FOREIGN:
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text("raise ImportError('a file of the user')\n")
    tool = (uv.find_uv_bin(), "--quiet", "--no-config")  # without the checkout's overrides, as pip is without
    call(*tool, "venv", "--python", sys.executable, tmp_path / "venv", at=here)
    install = (*tool, "pip", "install", "--python", python, "--constraint", ROOT / "constraints.txt")
    call(*install, built[1], at=here)
    program = python.with_name("tsfmscope")
    assert call(program, "--version", at=here) == f"tsfmscope {VERSION}\n"
    check_core(program, here)
    call(*install, f"{built[1]}[pipeline,baselines,report,moirai]", at=here)
    assert "pip install --no-deps uni2ts" in call(program, "inspect", "moirai-mini", "nile", at=here, code=1)
    call(*install, "--no-deps", "uni2ts", at=here)

    found = {one["name"]: one["state"] for one in json.loads(call(program, "doctor", "--json", at=here))}
    assert found["family moirai"] == found["packages"] == "ok"
    assert "missing" not in found.values()
    inspect = ("inspect", "moirai-mini", "nile", "--json")
    assert call(program, *inspect, at=here) == call(sys.executable, "-m", "tsfmscope", *inspect, at=ROOT)
    (vector,) = json.loads(call(program, "embed", "chronos-bolt-mini", "nile", "--json", at=here))
    assert len(vector["vector"]) == 64
    call(program, "inspect", "chronos-bolt-mini", "nile", "--out", "look.html", at=here)
    assert "No such command 'plan'" in call(program, "plan", at=here, code=2)
    assert {path.name for path in here.iterdir()} == FOREIGN_NAMES | {"look.html"}
