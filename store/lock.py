"""One driver a store: an flock on a file that says who holds it."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from store import files
from store.errors import StoreBusy

PATIENCE = 0.5  # seconds; `python -m store status` holds a shared lock for an instant when it looks


class Lock:
    """The lock of one stage's store; held from `acquire` to `release`, or to the end of the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def acquire(self) -> None:
        """Take the lock, or raise StoreBusy with pid, host and since when of its holder, or StoreFull."""
        with files.space(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        deadline = time.monotonic() + PATIENCE
        while not _try(handle, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                os.close(handle)
                who = read_holder(self.path)
                raise StoreBusy(
                    f"{self.path.stem}: another driver holds the store: pid {who.get('pid', '?')} on "
                    f"{who.get('host', '?')} since {who.get('since', '?')}; wait for it, or end it"
                )
            time.sleep(0.05)
        who = {"pid": os.getpid(), "host": socket.gethostname(), "since": datetime.now(UTC).isoformat("T", "seconds")}
        self._handle = handle
        try:
            with files.space(self.path):
                os.ftruncate(handle, 0)
                os.pwrite(handle, json.dumps(who).encode(), 0)
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        """Give the lock back; the file stays, since deleting it could let two drivers in."""
        if self._handle is not None:
            os.ftruncate(self._handle, 0)
            os.close(self._handle)
            self._handle = None


def read_holder(path: Path) -> dict[str, Any]:
    """pid, host and since when of whoever wrote the lock last, or nothing."""
    try:
        holder = json.loads(path.read_text() or "{}")
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return holder if isinstance(holder, dict) else {}


def is_held(path: Path) -> bool:
    """Whether a living process holds the lock."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return not _try(handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)


def _try(handle: int, how: int) -> bool:
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
