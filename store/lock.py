"""Lock that gives one driver a store: an flock on a file that names its holder."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tsfmscope.store import files
from tsfmscope.store.errors import StoreBusy

# Seconds of retrying, because `tsfmscope status` holds a shared lock for a moment when it
# checks.
PATIENCE = 0.5


class Lock:
    """Lock of one stage's store; held from `acquire` to `release`, or to the end of the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises StoreBusy, with pid, host and start time of the holder, if another process holds it, and
        StoreFull if the lock file cannot be written.
        """
        with files.translate_full_disk(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        deadline = time.monotonic() + PATIENCE
        while not _try(handle, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                os.close(handle)
                holder = read_holder(self.path)
                raise StoreBusy(
                    f"{self.path.stem}: another driver holds the store: pid {holder.get('pid', '?')} on "
                    f"{holder.get('host', '?')} since {holder.get('since', '?')}; wait for it, or end it"
                )
            time.sleep(0.05)
        holder = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now(UTC).isoformat("T", "seconds"),
        }
        self._handle = handle
        try:
            with files.translate_full_disk(self.path):
                os.ftruncate(handle, 0)
                os.pwrite(handle, json.dumps(holder).encode(), 0)
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        """Release the lock. The file stays, because deleting it could allow two drivers to hold the lock."""
        if self._handle is not None:
            os.ftruncate(self._handle, 0)
            os.close(self._handle)
            self._handle = None


def read_holder(path: Path) -> dict[str, Any]:
    """Return pid, host and start time (`since`) of the last holder; an empty dictionary if there is none."""
    try:
        holder = json.loads(path.read_text() or "{}")
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return holder if isinstance(holder, dict) else {}


def is_held(path: Path) -> bool:
    """Return whether a living process holds the lock."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return not _try(handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)


def _try(handle: int, operation: int) -> bool:
    try:
        fcntl.flock(handle, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
