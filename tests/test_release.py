"""What a release consists of beside the code: one version, changelog, citation, container file, workflows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}  # keepachangelog.com, 1.1.0
CONTAINER = ROOT / "deploy" / "Containerfile"


def run(command: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"NO_COLOR": "1"}
    return subprocess.run([BIN / command, *arguments], capture_output=True, text=True, check=False, env=environment)


def schema(name: str, *files: Path) -> subprocess.CompletedProcess[str]:
    """Of those that check-jsonschema carries; nothing is fetched."""
    return run("check-jsonschema", "--builtin-schema", f"vendor.{name}", *files)


def workflow(name: str) -> dict[Any, Any]:
    read: dict[Any, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text())
    return read


def test_citation_and_changelog_have_the_version_of_pyproject_and_one_date() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    released = re.findall(r"^## \[(\d\S*)\] - (\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert cited["version"] == PROJECT["project"]["version"] == released[0][0]
    assert str(cited["date-released"]) == released[0][1]


def test_the_changelog_has_no_headings_but_keep_a_changelogs() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    second = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert all(re.fullmatch(r"\[(Unreleased|\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d)\]?", one) for one in second)
    assert set(re.findall(r"^### (.*)$", text, re.MULTILINE)) <= KINDS


def test_the_citation_is_valid_and_a_wrong_one_is_not(tmp_path: Path) -> None:
    assert schema("citation-file-format", ROOT / "CITATION.cff").returncode == 0
    wrong = tmp_path / "CITATION.cff"
    wrong.write_text((ROOT / "CITATION.cff").read_text().replace("family-names", "surname"))
    assert schema("citation-file-format", wrong).returncode == 1


def test_workflows_are_of_githubs_schema_and_a_wrong_one_is_not(tmp_path: Path) -> None:
    done = schema("github-workflows", *WORKFLOWS)
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WORKFLOWS[0].read_text().replace("runs-on", "run-on"))
    assert schema("github-workflows", wrong).returncode == 1


def test_zizmor_finds_nothing_unsafe_in_the_workflows_and_something_where_an_action_is_not_pinned(
    tmp_path: Path,
) -> None:
    done = run("zizmor", "--offline", "--no-progress", *WORKFLOWS)
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(re.sub(r"@[0-9a-f]{40}.*", "@main", (ROOT / ".github/workflows/ci.yml").read_text()))
    assert "unpinned-uses" in run("zizmor", "--offline", "--no-progress", wrong).stdout


def test_ci_runs_ci_run_and_a_release_waits_for_it() -> None:
    steps = workflow("ci.yml")["jobs"]["run"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == ["bash .ci/run"]
    jobs = workflow("release.yml")["jobs"]
    assert jobs["ci"]["uses"] == "./.github/workflows/ci.yml"
    assert set(jobs["publish"]["needs"]) == {"ci", "build"}


@pytest.mark.parametrize("name", [path.name for path in WORKFLOWS])
def test_a_workflow_may_read_alone_but_for_the_job_that_publishes(name: str) -> None:
    found = workflow(name)
    assert found["permissions"] == {"contents": "read"}
    own = {job: block["permissions"] for job, block in found["jobs"].items() if "permissions" in block}
    own.pop("ci", None)
    assert own == ({"publish": {"id-token": "write"}} if name == "release.yml" else {})


def test_ci_has_the_python_of_the_checkout() -> None:
    for name in ("ci.yml", "release.yml"):
        steps = [step for job in workflow(name)["jobs"].values() for step in job.get("steps", ())]
        versions = {step["with"]["python-version"] for step in steps if "setup-python" in step.get("uses", "")}
        assert versions == {"3.11"}
    assert "--python 3.11 .venv" in (ROOT / "Makefile").read_text()
    assert "python:3.11-" in CONTAINER.read_text()


def test_hadolint_finds_nothing_in_the_container_file_and_something_in_a_wrong_one(tmp_path: Path) -> None:
    done = run("hadolint", CONTAINER)
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "Containerfile"
    wrong.write_text(CONTAINER.read_text().replace("USER 1000\n", "USER root\n"))
    assert "DL3002" in run("hadolint", wrong).stdout


def test_the_first_layer_of_the_container_installs_from_the_files_that_are_there_by_then(tmp_path: Path) -> None:
    """Only the path to the checkout is installed: a copy of a module would hide changes of the original."""
    here = tmp_path / "here"
    here.mkdir()
    first = CONTAINER.read_text().partition("RUN make setup")[0]
    for line in re.findall(r"^COPY --chown=scope:scope (.*) \S+$", first, re.MULTILINE):
        for name in line.split():
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
            copy(ROOT / name, here / name)
    build = "from hatchling.build import build_editable; print(build_editable('.'))"
    done = subprocess.run([sys.executable, "-c", build], cwd=here, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names = zipfile.ZipFile(here / done.stdout.split()[-1]).namelist()
    assert any(name.endswith(".pth") for name in names)
    assert not [name for name in names if name.endswith((".py", ".sql"))]


def test_what_the_container_file_copies_is_there_and_its_last_user_is_not_root() -> None:
    text = CONTAINER.read_text()
    for line in re.findall(r"^COPY --chown=scope:scope (.*) \S+$", text, re.MULTILINE):
        assert all((ROOT / name).exists() for name in line.split())
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE) == ["1000"]
    assert 'CMD ["make", "repro"]' in text
