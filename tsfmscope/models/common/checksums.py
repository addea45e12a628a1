"""Checksums of a checkpoint folder: written when its files are made, verified when they are loaded.

`checksums.sha256` has the format of sha256sum, so `sha256sum --check checksums.sha256` verifies a folder too.
A folder without that file, such as a user's own or one from a hub, is not verified.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tsfmscope.errors import ModelError
from tsfmscope.files import file_sum, read_bytes

SUMS = "checksums.sha256"
RECIPE = "recipe.json"
# Largest size of SUMS in bytes; a line has about a hundred.
LARGEST = 2**20
# Subfolder of a checkpoint: snapshots of its training, one checkpoint each.
SNAPSHOTS = "snapshots"


def write_recipe(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write recipe.json last, after checksums that cover it too.

    A folder that contains recipe.json is therefore complete.
    """
    text = json.dumps(facts, indent=2) + "\n"
    write_sums(folder, {RECIPE: hashlib.sha256(text.encode()).hexdigest()})
    (folder / RECIPE).write_text(text, encoding="utf-8")


def write_sums(folder: Path, coming: Mapping[str, str] | None = None) -> None:
    """Write the checksums of all files of a folder.

    coming: name -> checksum of files that are written next.
    """
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != SUMS)
    sums = {path.relative_to(folder).as_posix(): file_sum(path) for path in paths} | dict(coming or {})
    (folder / SUMS).write_text("".join(f"{sums[name]}  {name}\n" for name in sorted(sums)), encoding="utf-8")


def verify_sums(folder: Path) -> None:
    """Raise ModelError unless all files of a checkpoint folder match their recorded checksums.

    Nothing is verified where nothing is recorded. The checksums of a snapshot are recorded in the folder of
    the checkpoint that it belongs to. A *.safetensors file without a recorded checksum is an error.
    """
    root = folder.parent.parent if folder.parent.name == SNAPSHOTS else folder
    if not os.path.lexists(root / SUMS):
        return
    recorded = _read_checksums(root / SUMS)
    for path in sorted(folder.rglob("*.safetensors")):
        if path.relative_to(root).as_posix() not in recorded:
            raise _make_damage_error(root / SUMS, f"a line for {path.relative_to(root)}", "none")
    for name, expected in recorded.items():
        path = root / name
        if not path.is_relative_to(folder):
            continue
        actual = file_sum(path) if path.is_file() else "no such file"
        if actual != expected:
            raise _make_damage_error(path, f"SHA-256 {expected}", actual)


def _read_checksums(path: Path) -> dict[str, str]:
    """Return name -> checksum of a checksum file; ModelError for a line that is not in sha256sum's format."""
    checksums = {}
    try:
        text = read_bytes(path, LARGEST).decode(errors="replace")
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}; restore the folder, or delete this file") from error
    for line in text.splitlines():
        expected, separator, name = line.partition("  ")
        if not separator or not name or Path(name).is_absolute() or ".." in Path(name).parts:
            raise _make_damage_error(path, "lines of a SHA-256, two spaces and a file's name", repr(line[:80]))
        checksums[name] = expected
    return checksums


def _make_damage_error(path: Path, expected: str, actual: str) -> ModelError:
    return ModelError(
        f"{path}: damaged: expected {expected}, found {actual}; restore the folder (`git checkout` or `dvc checkout`), "
        f"or delete its {SUMS} where the change is meant"
    )
