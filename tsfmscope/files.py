"""Files that are written completely or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Prefix of files that are being written; readers ignore them.
TEMPORARY = ".tmp-"


@contextmanager
def write_atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`, which is renamed to it if the block ends without an error.

    Missing parent folders are made. An existing file is replaced, never written into. The file and its folder are
    forced to the disk.
    """
    temporary = path.parent / f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(4)}-{path.name}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Force a file or folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
