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
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import tasks as package
from stages import STAGES
from tasks.job import Task
from tasks.spec import Spec

RECORD = Path(__file__).with_name("task_versions.json")


def tasks() -> dict[str, Task]:
    """Return every task that a stage, or the command `corpus`, plans, by name."""
    names = [stage.name for stage in STAGES if stage.sweeps] + [
        "planning.training_jobs",
        "planning.dataset_skill",
        "commands.corpora",
    ]
    modules = [importlib.import_module(f"stages.{name}") for name in names]
    values = [value for module in modules for value in vars(module).values() if isinstance(value, Task)]
    return {task.name: task for task in values}


def defaults() -> dict[str, Any]:
    """Return the default of each field of each spec, by `Spec.field`."""
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    specs = sorted(Spec.__subclasses__(), key=lambda spec: spec.__name__)
    # A test may define specs of its own.
    return {
        f"{spec.__name__}.{field.name}": field.default
        for spec in specs
        if spec.__module__.startswith(package.__name__)
        for field in fields(spec)
        if field.default is not MISSING
    }


def today() -> dict[str, dict[str, Any]]:
    """Return the record as today's code has it, in the types of JSON."""
    versions = {name: task.version for name, task in sorted(tasks().items())}
    record: dict[str, dict[str, Any]] = json.loads(json.dumps({"versions": versions, "defaults": defaults()}))
    return record


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m tests.task_versions --write")
    RECORD.write_text(json.dumps(today(), indent=2, sort_keys=True) + "\n")
