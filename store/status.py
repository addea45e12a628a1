"""Progress of a stage, in a small file that its driver writes and any process may read."""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from store.errors import StoreError
from store.files import FULL, READ_ONLY
from store.lock import is_held
from tsfmscope.files import TEMPORARY

FOLDER = Path("data/.status")


@dataclass(frozen=True)
class Status:
    """Numbers of jobs of one stage.

    done: jobs done in this run. reused: jobs of earlier runs. passed_over: reused jobs that failed in an
    earlier run and were not tried again. started, updated: seconds since the epoch.
    """

    stage: str
    planned: int
    done: int
    failed: int
    running: int
    reused: int = 0
    passed_over: int = 0
    started: float = field(default_factory=time.time)
    finished: bool = False
    pid: int = field(default_factory=os.getpid)
    host: str = field(default_factory=socket.gethostname)
    updated: float = field(default_factory=time.time)

    @property
    def remaining(self) -> int:
        """Number of jobs still to be done, including those that are running."""
        return max(0, self.planned - self.reused - self.done - self.failed)

    @property
    def rate(self) -> float | None:
        """Jobs per second since the start, or None before the first job has ended."""
        passed = self.updated - self.started
        return (self.done + self.failed) / passed if passed > 0 and self.done + self.failed else None

    @property
    def seconds_left(self) -> float | None:
        """Remaining seconds at the current rate, or None if there is no rate."""
        return self.remaining / self.rate if self.rate else None


def write_status(status: Status, *, folder: Path = FOLDER, interval: float = 1.0) -> bool:
    """Write the status of a stage, at most once in `interval` seconds (0: always).

    Return whether it was written.

    A full or read-only disk is not an error here, because no work depends on a status. Whatever stores the
    results reports it.
    """
    path = folder / f"{status.stage}.json"
    try:
        if 0 <= time.time() - path.stat().st_mtime < interval:
            return False
    except FileNotFoundError:
        folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(4)}"
    try:
        temporary.write_text(json.dumps(asdict(status)), encoding="utf-8")
        # Not forced to the disk, because a status has no value after a crash.
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        if error.errno not in FULL | READ_ONLY:
            raise
        return False
    return True


def read_statuses(folder: Path = FOLDER) -> list[tuple[Status, bool]]:
    """Read each stage's last status and whether its driver is alive (holds the lock), sorted by stage.

    Raises StoreError if a file is not a status of this version.
    """
    statuses = []
    for path in sorted(folder.glob("[!.]*.json")):
        try:
            status = Status(**json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise StoreError(f"{path}: not a status that this version writes ({error}); delete it") from error
        statuses.append((status, is_held(path.with_suffix(".lock"))))
    return statuses


def state(status: Status, *, alive: bool) -> str:
    """Return the state of a stage: running, finished, or interrupted."""
    if alive:
        return "running"
    return "finished" if status.finished else "interrupted"
