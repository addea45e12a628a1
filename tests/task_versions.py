"""Hash of each task's code, so that a change of code without a word on its results is noticed.

`python -m tests.task_versions --write` records the code of today: after a version was raised, or to say that the
results of the tasks are what they were.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import json
import sys
from pathlib import Path

from tsfmscope.stages import STAGES
from tsfmscope.tasks.job import Task

ROOT = Path(__file__).resolve().parents[1]
RECORD = Path(__file__).with_name("task_versions.json")


def tasks() -> dict[str, Task]:
    """Every task that a stage, or the command `corpus`, plans, by name."""
    names = [stage.name for stage in STAGES if stage.sweeps] + [
        "pipeline.training_jobs",
        "pipeline.dataset_skill",
        "cli.corpora",
    ]
    modules = [importlib.import_module(f"tsfmscope.stages.{name}") for name in names]
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Task)]
    return {task.name: task for task in found}


def code_hash(task: Task) -> str:
    """SHA-256 over the syntax trees, docstrings left out, of the entry's and loader's modules and what they import."""
    entries = [task.entry] + ([task.loader] if task.loader else [])
    modules = _closure({entry.partition(":")[0] for entry in entries})
    trees = {name: _tree(path.read_text()) for name, path in modules.items()}
    return hashlib.sha256("\n".join(f"{name} {trees[name]}" for name in sorted(trees)).encode()).hexdigest()


def today() -> dict[str, dict[str, object]]:
    """The record as the code of today has it."""
    return {name: {"version": task.version, "code": code_hash(task)} for name, task in sorted(tasks().items())}


def _closure(names: set[str]) -> dict[str, Path]:
    """Modules under tasks/ that these import, directly or not, themselves among them; the sweep's own code apart."""
    found: dict[str, Path] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        path = _path(name)
        if (
            name in found
            or path is None
            or (name.startswith("tsfmscope.tasks.sweep") and name != "tsfmscope.tasks.job")
        ):
            continue
        found[name] = path
        waiting += _imported_names(path.read_text())
    return found


# Most tasks import the same modules.
@functools.cache
def _imported_names(text: str) -> tuple[str, ...]:
    """Names under tsfmscope.tasks that a module's text imports, and what may be a name in a module."""
    names: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tsfmscope.tasks"):
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names if alias.name.startswith("tsfmscope.tasks")]
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("tsfmscope.tasks.")
        ):
            names.append(node.value.partition(":")[0])  # the registry's map of strings
    return tuple(names)


def _path(name: str) -> Path | None:
    base = ROOT.joinpath(*name.split("."))
    return next((p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file()), None)


@functools.cache
def _tree(text: str) -> str:
    tree = ast.parse(text)
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node):
            node.body = node.body[1:]
    return ast.dump(tree)


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m tests.task_versions --write")
    RECORD.write_text(json.dumps(today(), indent=2, sort_keys=True) + "\n")
