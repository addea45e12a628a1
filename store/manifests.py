"""The manifest that stands in a stage's out where its rows and dumps lie elsewhere; DVC versions it, readers follow it.

{"store": URI, "keys": {count, blake3}, "tables": {TABLE: [{bytes, rows, fingerprint}]}}

Dumps are rows of the table `dumps`, with their checksums. The manifest says what is there and not under which names,
so that the same content gives the same manifest whatever came before.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from store.objects import SCHEME, Remote

File: TypeAlias = Path | Remote
NAME = "manifest.json"
FOLDER = "file:///"  # a folder that all nodes mount


def address(uri: str) -> File:
    """What s3://BUCKET/PREFIX or file:///FOLDER names. ValueError of any other."""
    if uri.startswith(SCHEME):
        return Remote.parse(uri)
    if uri.startswith(FOLDER) and len(uri) > len(FOLDER):
        return Path(unquote(urlsplit(uri).path))
    raise ValueError(f"store {uri!r}: expected s3://BUCKET/PREFIX or file:///FOLDER")


def read(out: Path) -> dict[str, Any] | None:
    """The manifest of a stage's out; None where its rows lie in the out itself."""
    try:
        found = json.loads((out / NAME).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return found if isinstance(found, dict) and "store" in found else None


def locate(path: Path) -> File:
    """Where a file of an out lies: there, or in the store that the out's manifest names."""
    if path.exists():
        return path
    for folder in path.parents:
        if found := read(folder):
            at = address(found["store"])
            return at / path.relative_to(folder).as_posix()
    return path
