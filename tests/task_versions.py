"""Recorded versions of tasks, and defaults of their specs, so that a default does not change a key's meaning unseen.

A field that equals its default is no part of a job's key. So a changed default gives other results under the same key,
unless the version of its task is raised. `python -m tests.task_versions --write` records today's versions and defaults.
That results of a task changed is shown by the recorded tables of the profiles: `tests/golden.py`.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import tasks as package
from stages import STAGES
from tasks.job import Task
from tasks.parts import Spec
from tsfmscope.strict import Strict, optional_fields

RECORD = Path(__file__).with_name("task_versions.json")


def tasks() -> dict[str, Task]:
    """Return every task that a stage, or the command `corpus`, plans, by name."""
    names = [stage.name for stage in STAGES if stage.sweeps] + [
        "planning.training",
        "planning.dataset_skill",
        "planning.checkpoints",
        "commands.corpora",
    ]
    modules = [importlib.import_module(f"stages.{name}") for name in names]
    values = [value for module in modules for value in vars(module).values() if isinstance(value, Task)]
    return {task.name: task for task in values}


def specs() -> set[type[Spec]]:
    """Return every class of tasks from which a job's spec is made."""
    modules = pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
    values = [value for module in modules for value in vars(importlib.import_module(module.name)).values()]
    return {value for value in values if isinstance(value, type) and issubclass(value, Spec)}


def defaults() -> dict[str, Any]:
    """Return the default of each field that keys contain only where it differs, by `Class.field`.

    The class is the one that declares the field: a spec, a part of several, or options.
    """
    kinds = {kind for spec in specs() for kind in nested(spec)}
    return {
        f"{kind.__name__}.{name}": field.default
        for kind in sorted(kinds, key=lambda kind: kind.__name__)
        for name, field in optional_fields(kind).items()
        if name in kind.__annotations__ and field.default_factory is None
    }


def nested(kind: Any) -> Iterator[type[Strict]]:
    """Yield the classes that a type consists of: itself, its base classes, and those of its fields."""
    if isinstance(kind, type) and issubclass(kind, Strict):
        yield from (base for base in kind.__mro__ if issubclass(base, Strict))
        for field in kind.model_fields.values():
            yield from nested(field.annotation)
    for part in get_args(kind):
        yield from nested(part)


def today() -> dict[str, dict[str, Any]]:
    """Return the record as today's code has it, in the types of JSON."""
    versions = {name: task.version for name, task in sorted(tasks().items())}
    record: dict[str, dict[str, Any]] = json.loads(json.dumps({"versions": versions, "defaults": defaults()}))
    return record


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m tests.task_versions --write")
    RECORD.write_text(json.dumps(today(), indent=2, sort_keys=True) + "\n")
