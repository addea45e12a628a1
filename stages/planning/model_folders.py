"""Folders of models that jobs make.

A job works in a folder named by its key, which is renamed when the job is finished. A folder with the name of
a model is therefore always whole.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

from stages import DATA
from tasks.job import Job
from tsfmscope.errors import ModelError
from tsfmscope.files import read_text
from tsfmscope.models.common.checkpoint_folder import RECIPE, SUMS, verify_sums, write_sums

# Folders of jobs that are not finished, by key.
WORK = Path(DATA, ".work")
# Damaged folders and files that were moved out of the store.
DAMAGED = Path(DATA, ".status", "damaged")
# Bytes of a recipe file; the largest of ours has a thousandth of that.
LARGEST_RECIPE = 2**22


def work_folder(job: Job) -> Path:
    """Return the folder in which a job works; absolute, since workers may run in other folders."""
    return (WORK / job.key).absolute()


def recipe(folder: Path) -> dict[str, Any] | None:
    """Return the content of a whole folder's recipe file, including the job's `key`.

    Returns None for a folder that is not whole. Raises ModelError if the file cannot be read or does not
    contain an object.
    """
    path = folder / RECIPE
    if not path.exists():
        return None
    try:
        content = json.loads(read_text(path, LARGEST_RECIPE))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path}: cannot be read ({error}); delete it, or make the folder again") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path}: got {type(content).__name__}, expected an object; delete it, or make it again")
    return content


def key_of(folder: Path) -> str | None:
    """Return the key of the job that made a folder; None if it is incomplete or missing."""
    content = recipe(folder)
    return str(content["key"]) if content else None


def quarantine_damaged(folder: Path, stage: str) -> None:
    """Move a folder whose files differ from their checksums out of the store.

    Its job then runs again. A folder of an earlier version, which has no checksums, gets them. A folder that
    is not whole is left alone.
    """
    if not (folder / RECIPE).is_file():
        return
    try:
        verify_sums(folder)
    except ModelError as error:
        target, n = DAMAGED / stage / folder.name, 1
        while target.exists():
            target, n = target.with_name(f"{folder.name}-{n}"), n + 1
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(folder, target)
        fault = str(error).partition("; restore")[0]
        print(f"{stage}: {fault}; the folder is set aside as {target} and made again", flush=True)
    else:
        if not (folder / SUMS).is_file():
            write_sums(folder)


def publish(folder: Path, job: Job) -> bool:
    """Rename the work folder of a job to `folder` if it is finished.

    Returns whether `folder` now contains what this job made. A former content of `folder` is deleted.
    """
    work = WORK / job.key
    if key_of(work) == job.key:
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        work.rename(folder)
    return key_of(folder) == job.key


def prune(models: Path, names: Collection[str]) -> None:
    """Delete the folders in `models` whose names are not in `names`."""
    for folder in models.glob("*"):
        if folder.name not in names:
            shutil.rmtree(folder)
