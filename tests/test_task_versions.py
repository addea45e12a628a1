"""A task's version is held to its code."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("task_versions", HERE / "task_versions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["task_versions"] = module
    spec.loader.exec_module(module)
    return module


versions = load()


@pytest.fixture(scope="module")
def today() -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = versions.today()
    return found


@pytest.mark.parametrize("name", sorted(versions.tasks()))
def test_code_that_changed_has_a_new_version_or_an_entry_that_says_results_are_the_same(
    name: str, today: dict[str, dict[str, object]]
) -> None:
    recorded = json.loads(versions.RECORD.read_text()).get(name)
    assert recorded is not None, f"task {name} is new: python -m tests.task_versions --write"
    now = today[name]
    assert now == recorded, (
        f"task {name}: its code changed. If its results do, raise version {now['version']} of the Task in its stage; "
        "then, either way, python -m tests.task_versions --write"
    )


def test_a_changed_line_of_an_imported_module_changes_the_hash(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    task = versions.tasks()["measure"]
    before = versions.code_hash(task)
    root = tmp_path / "root"
    for path in versions._closure({task.entry.partition(":")[0]}).values():
        copy = root / path.relative_to(versions.ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text())
    monkeypatch.setattr(versions, "ROOT", root)
    assert versions.code_hash(task) == before
    cosine = root / "tsfmscope/tasks/geometry/cosine.py"
    cosine.write_text(cosine.read_text() + "\n# a comment changes nothing\n")
    assert versions.code_hash(task) == before
    cosine.write_text(cosine.read_text() + "\nEXTRA = 1\n")
    assert versions.code_hash(task) != before
