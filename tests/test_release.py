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
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = {path.name: path for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))}
CONTAINER = ROOT / "deploy" / "Containerfile"
# Id of a vulnerability that input of others reaches -> package, first version without it.
FIXED = {
    "CVE-2026-4372": ("transformers", "5.3.0"), "CVE-2026-5241": ("transformers", "5.5.0"),
    "CVE-2026-24747": ("torch", "2.10.0"), "CVE-2026-27489": ("onnx", "1.21.0"), "CVE-2026-34445": ("onnx", "1.21.0"),
    "microsoft/onnxruntime#26776": ("onnxruntime", "1.24.1"), "CVE-2026-58659": ("lightning", "2.6.6"),
    "CVE-2026-68508": ("hydra-core", "1.3.4"),
}  # fmt: skip
COPIED = re.compile(r"^COPY --chown=scope:scope (.*) \S+$", re.MULTILINE)


def test_citation_and_changelog_have_the_version_of_pyproject_and_one_date() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    released = re.findall(r"^## \[(\d\S*)\] - (\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert cited["version"] == PROJECT["project"]["version"] == released[0][0]
    assert str(cited["date-released"]) == released[0][1]


def requirements() -> dict[str, list[SpecifierSet]]:
    """Return package -> its bounds, once for each list of pyproject.toml that names it, and its pin."""
    project = PROJECT["project"]
    lists = [
        project["dependencies"],
        *project["optional-dependencies"].values(),
        *PROJECT["dependency-groups"].values(),
    ]
    lists += [PROJECT["tool"]["uv"]["override-dependencies"], (ROOT / "constraints.txt").read_text().splitlines()]
    bounds: dict[str, list[SpecifierSet]] = {}
    for text in (text for texts in lists for text in texts if isinstance(text, str)):
        bounds.setdefault(canonicalize_name(Requirement(text).name), []).append(Requirement(text).specifier)
    return bounds


@pytest.mark.parametrize("hole", FIXED)
def test_no_bound_admits_a_version_with_a_known_vulnerability(hole: str) -> None:
    package, fixed = FIXED[hole]
    bounds = requirements()[package]
    assert len(bounds) > 1
    for bound in bounds:
        at_least = [Version(part.version) for part in bound if part.operator in (">=", "==")]
        assert at_least, f"{package}{bound}"
        assert max(at_least) >= Version(fixed), f"{package}{bound}: {hole} is fixed in {fixed}"


@pytest.mark.parametrize("command", [
    ["check-jsonschema", "--builtin-schema", "vendor.citation-file-format", ROOT / "CITATION.cff"],
    ["check-jsonschema", "--builtin-schema", "vendor.github-workflows", *WORKFLOWS.values()],
    ["zizmor", "--offline", "--no-progress", *WORKFLOWS.values()],
    ["hadolint", CONTAINER],
], ids=["citation", "workflows", "safety of workflows", "container"])  # fmt: skip
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
