"""Errors of the operating system as the one line that commands print."""

from __future__ import annotations

import errno
import os
import sys

HINTS = {
    errno.ENOSPC: "free some of that disk",
    errno.EROFS: "name another place, or make it writable",
    errno.EACCES: "name another place, or ask for the permission",
    errno.ELOOP: "a link leads to itself: replace it",
}


def describe(error: OSError) -> str:
    """Return one line with the file, the reason and what to do."""
    file_text = f"{error.filename}: " if error.filename else ""
    hint = HINTS.get(error.errno or 0, "check the path, or name another place")
    return f"{file_text}{error.strerror or error}; {hint}"


def drop_output() -> None:
    """Redirect standard output to the null device if it cannot be written.

    Without this, Python would fail on it again at exit.
    """
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
