"""Jobs in an environment of their own beside jobs in ours, on a real Ray; what becomes of one that cannot be made."""

from __future__ import annotations

import json
import time
from importlib.metadata import version
from pathlib import Path

import pytest
import toy

from tasks.job import Job
from tasks.sweep.cluster import Resources
from tasks.sweep.engine import run
from tasks.sweep.environments import READY, Environment, EnvironmentBuilder
from tasks.sweep.placement import ActorResources
from tsfmscope.errors import EnvironmentFailed

OTHER = "1.16.0"  # of six, which the main stack holds in another version


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def jobs(group: str, numbers: range) -> list[Job]:
    return [Job(toy.WORK, {"n": n, "log": "log", "version": "six"}, group=group) for n in numbers]


def test_a_job_sees_its_own_version_the_job_beside_it_ours_and_one_without_an_environment_fails_with_why(
    folder: Path,
) -> None:
    assert version("six") != OTHER
    own, broken = Environment("older", (f"six=={OTHER}",)), Environment("broken", ("six<0",))
    resources = Resources(actors=2, local_cpus=2, environments={"theirs": own, "nobody's": broken})
    planned = [*jobs("ours", range(3)), *jobs("theirs", range(3, 6)), *jobs("nobody's", range(6, 10))]
    summary = run(planned, toy.port(folder / "store"), resources)
    assert (summary.done, dict(summary.failures)) == (6, {"EnvironmentFailed": 4})

    records = {json.loads(record["spec"])["n"]: record for record in toy.read_records(folder / "store")}
    rows = [records[n]["rows"][0] for n in range(6)]
    assert [row["version"] for row in rows] == [version("six")] * 3 + [OTHER] * 3
    assert [row["environment"] for row in rows] == [""] * 3 + [own.digest] * 3
    actors = [records[n]["timing"]["actor"] for n in range(6)]
    assert set(actors[:3]).isdisjoint(actors[3:])
    assert f"six=={OTHER}\n" in (own.folder / "pins.txt").read_text()
    assert {path.name for path in own.code.iterdir()} == {"tsfmscope"}
    began = time.monotonic()
    EnvironmentBuilder().build(own)  # it is there
    assert time.monotonic() - began < 1

    errors = [records[n]["error"] for n in range(6, 10)]
    assert all("fix environments.broken.packages" in one["message"] and one["transient"] for one in errors)
    assert all("six<0" in one["message"] for one in errors)
    assert not broken.folder.exists()


def test_making_one_ends_in_time_and_says_what_to_raise() -> None:
    own = Environment("slow", (f"six=={OTHER}",), timeout_s=0.01)
    with pytest.raises(
        EnvironmentFailed, match=r"slow: the build took more than 0.01 s; raise environments.slow.timeout_s"
    ):
        EnvironmentBuilder().build(own)
    assert not (own.folder / READY).exists()


def test_a_machine_without_uv_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr("sys.executable", str(folder / "python"))
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(EnvironmentFailed, match="install the extra `environments`"):
        EnvironmentBuilder().build(Environment("any", ("six",)))


BACKEND = """
import pathlib
pathlib.Path(__file__).with_name("ran").touch()
def build_wheel(*_, **__):
    raise SystemExit
"""


@pytest.mark.parametrize("package", ["evil @ {}", "{}"])
def test_nothing_is_built_unless_that_is_allowed(folder: Path, package: str) -> None:
    project = folder / "evil"
    project.mkdir()
    table = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    (project / "pyproject.toml").write_text(table + '[project]\nname = "evil"\nversion = "1"\n')
    (project / "backend.py").write_text(BACKEND)
    packages = (package.format(project.as_uri() if "@" in package else project),)
    with pytest.raises(EnvironmentFailed, match="Building source distributions is disabled"):
        EnvironmentBuilder().build(Environment("wheels", packages))
    assert not (project / "ran").exists()
    with pytest.raises(EnvironmentFailed):
        EnvironmentBuilder().build(Environment("builds", packages, allow_builds=True))
    assert (project / "ran").exists(), "the backend would not have run in any case"


def test_the_packages_make_the_digest_and_their_order_does_not() -> None:
    digests = [Environment("a", packages).digest for packages in (("x", "y"), ("y", "x"), ("x", "y>1"))]
    assert digests[0] == digests[1] != digests[2]
    assert Environment("b", ("x", "y")).digest == digests[0]
    assert Environment("a", ("x", "y"), ("--prerelease=allow",)).digest != digests[0]
    assert Environment("a", ("x", "y"), allow_builds=True).digest != digests[0]


def test_the_environment_of_a_group_makes_a_kind_of_actor_of_its_own_and_leaves_the_key() -> None:
    own = Environment("older", (f"six=={OTHER}",))
    resources = Resources(cpus=2, environments={"theirs": own})
    ours, theirs = jobs("ours", range(1))[0], jobs("theirs", range(1))[0]
    assert resources.for_job(ours) == ActorResources(cpus=2)
    assert resources.for_job(theirs) == ActorResources(cpus=2, environment=own)
    assert ours.key == theirs.key
    assert "environment older" in str(resources.for_job(theirs))


def test_what_is_being_made_when_a_sweep_ends_is_left_undone_at_once() -> None:
    builder, own = EnvironmentBuilder(), Environment("older", (f"six=={OTHER}",))
    assert not builder.is_ready(own)
    began = time.monotonic()
    builder.close()
    assert time.monotonic() - began < 6
    assert not (own.folder / READY).exists()
    assert builder.failure(own) is None
