"""Checks, before any work is done, that a command can write its output folder."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tsfmscope.errors import ArgumentError

# Bytes that are written and removed again: one block of most file systems, which does not fit on a
# full one.
PROBE = b"\0" * 4096


def check_new(folder: Path) -> None:
    """Raise ArgumentError for a folder that is not empty or cannot be written."""
    try:
        occupied = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    except OSError as error:
        raise _unwritable(folder, error) from None
    if occupied:
        raise ArgumentError(f"{folder}: is there already, and not empty; name a new folder")
    check_writable(folder)


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield a path next to `folder` for the output, which is renamed to `folder` at the end.

    `check_new` must have accepted `folder`. After an error, nothing is left.
    """
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as work:
        made = Path(work, "folder")
        yield made
        # It is empty, since `check_new` has checked that.
        if folder.exists():
            folder.rmdir()
        made.rename(folder)


def check_writable(folder: Path) -> None:
    """Make the folder's parents and check that a file can be written.

    A temporary file is written in the folder, or in its parent if the folder does not exist. Raises
    ArgumentError if that fails.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(0, "is a file")
        with tempfile.TemporaryFile(dir=folder if folder.is_dir() else folder.parent) as probe:
            probe.write(PROBE)
            probe.flush()
    except OSError as error:
        raise _unwritable(folder, error) from None


def _unwritable(folder: Path, error: OSError) -> ArgumentError:
    return ArgumentError(f"{folder}: cannot be written ({error.strerror}); name another folder, or make room there")
