"""Manifests of outs whose rows and dumps are in a shared folder; DVC versions them, and readers follow them.

{"store": FOLDER, "keys": {count, blake3}, "tables": {TABLE: [{bytes, rows, fingerprint}]}, "blake3": HEX}

The entry `blake3` is the BLAKE3 of all other entries.

Dumps are rows of the table `dumps`, with their checksums. The manifest lists the contents without file names,
so that the same content gives the same manifest, whatever the history of the folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from blake3 import blake3

from store.errors import DamagedFile

NAME = "manifest.json"


def text_of(facts: Mapping[str, Any]) -> str:
    """Return the text of a manifest, with the BLAKE3 of its content."""
    return json.dumps({**facts, "blake3": _digest(facts)}, indent=1, sort_keys=True) + "\n"


def read(out: Path) -> dict[str, Any] | None:
    """Read the manifest of a stage's out; None if the rows lie in the out itself.

    Raises DamagedFile if the manifest is not as it was written.
    """
    path = out / NAME
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    # Another program's file of that name is ignored.
    if b'"store"' not in content and b'"blake3"' not in content:
        return None
    try:
        facts: dict[str, Any] = json.loads(content)
        sound = facts.pop("blake3", None) == _digest(facts)
    except (ValueError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise DamagedFile(
            f"{path}: damaged: expected a manifest with its checksum, found another text; delete this file, then "
            "`dvc repro` writes it again"
        )
    return facts


def _digest(facts: Mapping[str, Any]) -> str:
    return str(blake3(json.dumps(facts, sort_keys=True).encode()).hexdigest())


def locate(path: Path) -> Path:
    """Return where a file of an out lies.

    That is the path itself if it exists, else its counterpart in the folder that the out's manifest names. If
    no folder above the path has a manifest, return the path unchanged.
    """
    if path.exists():
        return path
    for folder in path.parents:
        if manifest := read(folder):
            return Path(manifest["store"]) / path.relative_to(folder)
    return path
