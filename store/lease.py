"""Lease that gives one driver a folder that several machines can reach, by conditional writes and a heartbeat.

The age of a lease is measured by the file server's clock, so the clocks of the drivers do not matter. Another
driver may take over a folder if its driver stalled for longer than its lease. A stalled driver checks its
lease before it writes, but a write that has begun is not stopped.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from store.errors import LocationError, StoreBusy, StoreError
from store.shared_file import SharedFile

logger = logging.getLogger(__name__)
# Another driver may take over the folder after this time without a heartbeat.
SECONDS = 60.0
# Heartbeats per duration of a lease.
BEATS = 4


class Lease:
    """Lease of one stage's folder; held from `acquire` to `release`, or until it expires.

    seconds: time without a heartbeat after which the lease expires.
    """

    def __init__(self, folder: Path, stage: str, *, seconds: float = SECONDS) -> None:
        self.folder, self.stage, self.seconds = folder, stage, seconds
        self.file = SharedFile(folder / ".status" / "lease.json")
        self.token = secrets.token_hex(8)
        self._holder = {**machine(), "pid": os.getpid(), "token": self.token}
        self._digest: str | None = None
        self._beats = 0
        # Start of the last heartbeat that succeeded, in seconds of `_clock`.
        self._renewed = 0.0
        self._renewing = threading.Lock()
        self._lost = ""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self) -> None:
        """Take the lease, or raise StoreBusy with its holder."""
        current, digest = self._read_lease()
        if current and not current.get("released") and (left := self._seconds_left(current)) > 0:
            holder = f"pid {current.get('pid')} on {current.get('host')} since {current.get('since')}"
            raise StoreBusy(
                f"{self.stage}: another driver holds the store {self.folder}: {holder}; wait for it, or end it "
                f"(its lease runs out in {left:.0f} s if it is dead)"
            )
        self._holder["since"] = datetime.now(UTC).isoformat("T", "seconds")
        self._renewed = _clock()
        self._digest = self.file.write_if_unchanged(self._body(), digest)
        if self._digest is None:
            raise StoreBusy(
                f"{self.stage}: another driver took the store {self.folder} at this moment; try again later"
            )
        self._stop.clear()
        self._thread = threading.Thread(target=self._beat, name=f"lease of {self.stage}", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise StoreBusy if another driver has taken the folder over.

        If the last heartbeat is older than the lease, a new one is written first; LocationError or OSError if
        that fails.
        """
        if self._thread and not self._lost and _clock() - self._renewed > self.seconds:
            self._renew()
        if self._lost:
            raise StoreBusy(self._lost)

    def release(self) -> None:
        """Release the lease; its file stays."""
        if self._thread is None:
            return
        self._stop.set()
        self._thread.join()
        self._thread = None
        if not self._lost:
            try:
                self._renew(released=True)
            except (StoreError, OSError) as error:
                # No error, because the lease expires by itself.
                logger.warning("%s: could not release the lease: %s", self.stage, error)

    def _read_lease(self) -> tuple[dict[str, Any], str | None]:
        try:
            body, digest = self.file.read()
        except FileNotFoundError:
            return {}, None
        try:
            facts = json.loads(body)
        except ValueError:
            facts = {}
        return (facts if isinstance(facts, dict) else {}), digest

    def _seconds_left(self, lease: dict[str, Any]) -> float:
        """Return the seconds until a lease expires, by the file server's clock.

        The result is 0 if the lease's process is known to be dead.
        """
        here = machine()
        if here["boot"] and {name: lease.get(name) for name in here} == here and not _alive(int(lease["pid"])):
            return 0.0
        age = self.file.now() - self.file.modified()
        return float(lease.get("seconds", self.seconds)) - age

    def _body(self, *, released: bool = False) -> bytes:
        self._beats += 1
        facts = {"seconds": self.seconds, "beat": self._beats, "released": released}
        return json.dumps(self._holder | facts, sort_keys=True).encode()

    def _beat(self) -> None:
        """Renew the lease until it is released or lost.

        An error is logged, and the next heartbeat is tried as usual.
        """
        while not self._lost and not self._stop.wait(self.seconds / BEATS):
            try:
                self._renew()
            except (StoreError, OSError) as error:
                logger.warning("%s: no heartbeat: %s", self.stage, error)

    def _renew(self, *, released: bool = False) -> None:
        """Write one heartbeat.

        If the file has another content than this driver last wrote, it is either this driver's own, from a
        write that raised an error, or another driver's. In the first case, write again; in the second, set
        `_lost`. Raises LocationError if the second attempt fails too.
        """
        with self._renewing:
            began = _clock()
            digest = self.file.write_if_unchanged(self._body(released=released), self._digest)
            if digest is None:
                current, now = self._read_lease()
                if current.get("token") != self.token:
                    self._lost = (
                        f"{self.stage}: another driver has taken over {self.folder}, because this one sent no heartbeat"
                    )
                    logger.error(self._lost)
                    return
                digest = self.file.write_if_unchanged(self._body(released=released), now)
                if digest is None:
                    raise LocationError(f"{self.file}: could not be written, although this driver has the lease")
            self._digest, self._renewed = digest, began


def _clock() -> float:
    """Return monotonic seconds, including the time in which the machine was suspended (if counted)."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def machine() -> dict[str, str]:
    """Return host, boot id and process namespace of this machine.

    Together they show whether a process id is valid here.
    """
    facts = {"host": socket.gethostname(), "boot": "", "namespace": ""}
    try:
        facts["boot"] = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        facts["namespace"] = os.readlink("/proc/self/ns/pid")
    except OSError:
        # There is no /proc outside Linux. A host name alone proves nothing, so the lease then
        # expires by time only.
        pass
    return facts


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _state(pid) != "Z"


def _state(pid: int) -> str:
    """Return the state letter of a process, or "?" if unknown.

    Z is a zombie: dead, but not yet reaped by its parent.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "?"
