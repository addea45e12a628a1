"""What a release consists of beside the code: one version, valid metadata, container file and workflows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = {path.name: path for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))}
CONTAINER = ROOT / "deploy" / "Containerfile"
COPIED = re.compile(r"^COPY --chown=scope:scope (.*) \S+$", re.MULTILINE)


def test_citation_and_changelog_have_the_version_of_pyproject_and_one_date() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    released = re.findall(r"^## \[(\d\S*)\] - (\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert cited["version"] == PROJECT["project"]["version"] == released[0][0]
    assert str(cited["date-released"]) == released[0][1]


@pytest.mark.parametrize(
    "command",
    [
        ["check-jsonschema", "--builtin-schema", "vendor.citation-file-format", ROOT / "CITATION.cff"],
        ["check-jsonschema", "--builtin-schema", "vendor.github-workflows", *WORKFLOWS.values()],
        ["zizmor", "--offline", "--no-progress", *WORKFLOWS.values()],
        ["hadolint", CONTAINER],
    ],
    ids=["citation", "workflows", "safety of workflows", "container"],
)
def test_a_linter_finds_nothing(command: list[str | Path]) -> None:
    """All of them work offline; the schemas are those that check-jsonschema carries."""
    environment = os.environ | {"NO_COLOR": "1"}
    done = subprocess.run([BIN / command[0], *command[1:]], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout


def test_ci_runs_ci_run_with_the_python_of_the_checkout_and_a_release_waits_for_it() -> None:
    ci, release = (yaml.safe_load(WORKFLOWS[name].read_text())["jobs"] for name in ("ci.yml", "release.yml"))
    assert [step["run"] for step in ci["run"]["steps"] if "run" in step] == ["bash .ci/run"]
    assert release["ci"]["uses"] == "./.github/workflows/ci.yml"
    assert set(release["publish"]["needs"]) == {"ci", "build"}
    steps = [step for job in [*ci.values(), *release.values()] for step in job.get("steps", ())]
    pythons = {step["with"]["python-version"] for step in steps if "setup-python" in step.get("uses", "")}
    assert pythons == {"3.11"}
    assert "--python 3.11 .venv" in (ROOT / "Makefile").read_text()
    assert "python:3.11-" in CONTAINER.read_text()


def test_the_first_layer_of_the_container_installs_from_the_files_that_are_there_by_then(tmp_path: Path) -> None:
    """Only the path to the checkout is installed: a copy of a module would hide changes of the original."""
    text = CONTAINER.read_text()
    assert all((ROOT / name).exists() for line in COPIED.findall(text) for name in line.split())
    here = tmp_path / "here"
    here.mkdir()
    for name in (name for line in COPIED.findall(text.partition("RUN make setup")[0]) for name in line.split()):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, here / name)
    build = "from hatchling.build import build_editable; print(build_editable('.'))"
    done = subprocess.run([sys.executable, "-c", build], cwd=here, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names = zipfile.ZipFile(here / done.stdout.split()[-1]).namelist()
    assert any(name.endswith(".pth") for name in names)
    assert not [name for name in names if name.endswith((".py", ".sql"))]
