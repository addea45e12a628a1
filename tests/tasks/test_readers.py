"""The spec of a job is read in tasks alone."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.task_versions import tasks

ROOT = Path(__file__).parents[2]
# Modules outside tasks/ that may read `.spec`, with the reason.
ALLOWED = {
    "store/dumps.py": "names of files, and the layer of a dump, are identity columns; the store may not import tasks"
}


def readers() -> set[str]:
    """Files with an attribute access `.spec` that is no call."""
    found = set()
    for folder in ("stages", "store", "tasks", "tsfmscope"):
        for path in ROOT.joinpath(folder).rglob("*.py"):
            text = path.read_text("utf-8")
            if ".spec" not in text:
                continue
            tree = ast.parse(text)
            calls = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
            for node in ast.walk(tree):
                if isinstance(node, ast.Attribute) and node.attr == "spec" and id(node) not in calls:
                    found.add(path.relative_to(ROOT).as_posix())
    return found


def test_only_entries_read_the_spec_of_a_job() -> None:
    outside = {name for name in readers() if not name.startswith("tasks/")}
    assert outside == set(ALLOWED)


def test_entries_and_loaders_lie_in_tasks() -> None:
    for task in tasks().values():
        for named in filter(None, (task.entry, task.loader)):
            assert named.startswith("tasks."), named
