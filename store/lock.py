"""Lock that gives one driver a store: a file lock, whose file names its holder."""

from __future__ import annotations

import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from store import files
from store.errors import StoreBusy

# Seconds of retrying, because `tsfmscope status` holds the lock for a moment when it checks.
PATIENCE = 0.5


class Lock:
    """Lock of one stage's store; held from `acquire` to `release`, or to the end of the object or the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path, thread_local=False)

    def acquire(self) -> None:
        """Take the lock.

        Raises StoreBusy, with pid, host and start time of the holder, if another process holds it, and
        StoreFull if the lock file cannot be written.
        """
        since = datetime.now(UTC).isoformat("T", "seconds")
        try:
            with files.translate_full_disk(self.path):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._lock.acquire(timeout=PATIENCE)
                self.path.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}))
        except Timeout:
            holder = read_holder(self.path)
            raise StoreBusy(
                f"{self.path.stem}: another driver holds the store: pid {holder.get('pid', '?')} on "
                f"{holder.get('host', '?')} since {holder.get('since', '?')}; wait for it, or end it"
            ) from None
        except OSError:
            self._lock.release()
            raise

    def release(self) -> None:
        """Release the lock. The file stays, because deleting it could allow two drivers to hold the lock."""
        if self._lock.is_locked:
            self.path.write_text("")
            self._lock.release()


def read_holder(path: Path) -> dict[str, Any]:
    """Return pid, host and start time (`since`) of the last holder; an empty dictionary if there is none."""
    try:
        holder = json.loads(path.read_text() or "{}")
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return holder if isinstance(holder, dict) else {}


def is_held(path: Path) -> bool:
    """Return whether a living process holds the lock.

    In a folder that this process may only read, it is held if its file names a holder.
    """
    if not path.exists():
        return False
    try:
        with FileLock(path, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:
        return bool(read_holder(path))
