"""Folders of models that jobs make: worked on under the job's key, then renamed: a folder of a name is whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

from stages import DATA
from tasks.sweep.jobs import Job

WORK = Path(DATA, ".work")  # what a job has made so far, by its key
RECIPE = "recipe.json"  # comes last into a folder, with the job's key


def work_folder(job: Job) -> Path:
    """Where a job works; absolute, since workers may run elsewhere."""
    return (WORK / job.key).absolute()


def recipe(folder: Path) -> dict[str, Any] | None:
    """What a whole folder says of its making, the job's `key` with it; None of any other."""
    path = folder / RECIPE
    return dict(json.loads(path.read_text())) if path.exists() else None


def key_of(folder: Path) -> str | None:
    """Key of the job that made a folder; None where it is not whole, or not there."""
    found = recipe(folder)
    return str(found["key"]) if found else None


def settle(folder: Path, job: Job) -> bool:
    """Move what the job has finished to its folder in the out; whether it is there."""
    work = WORK / job.key
    if key_of(work) == job.key:
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        work.rename(folder)
    return key_of(folder) == job.key


def drop_others(models: Path, names: Collection[str]) -> None:
    """Delete the folders that are no longer asked for."""
    for folder in models.glob("*"):
        if folder.name not in names:
            shutil.rmtree(folder)
