"""One driver a store that several machines reach: a conditional write with holder, heartbeat and lease.

Each taking raises the epoch. Ages are by the store's own clock, so that no driver's clock matters. A driver that
stalled past its lease may be taken over; what it still writes belongs to an epoch that no longer counts
(`store.shelf`), so the lease decides who works, and the epochs that no row stands twice.
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

from store.cells import SharedFile
from store.errors import PlaceError, StoreBusy, StoreError
from store.objects import Remote

logger = logging.getLogger(__name__)
SECONDS = 60.0  # a driver that was not heard of for so long may be taken over
BEATS = 4  # heartbeats a lease


class Lease:
    """The lease of one stage's store; held from `acquire` to `release`, or until it runs out."""

    def __init__(self, store: Remote | Path, stage: str, *, seconds: float = SECONDS) -> None:
        self.store, self.stage, self.seconds = store, stage, seconds
        self.at = store / "lease.json" if isinstance(store, Remote) else SharedFile(store / ".status" / "lease.json")
        self.epoch = 0
        self.token = secrets.token_hex(8)
        self._holder = {**machine(), "pid": os.getpid(), "token": self.token}
        self._etag: str | None = None
        self._beats = 0
        self._renewed = 0.0  # when the last heartbeat that was answered began
        self._renewing = threading.Lock()
        self._lost = ""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self) -> None:
        """Take the lease, or raise StoreBusy with its holder. PlaceError where the store ignores conditions."""
        held, etag = self._held()
        if held and not held.get("released") and (left := self._left(held)) > 0:
            who = f"pid {held.get('pid')} on {held.get('host')} since {held.get('since')}"
            raise StoreBusy(
                f"{self.stage}: another driver holds the store {self.store}: {who}; wait for it, or end it "
                f"(its lease runs out in {left:.0f} s if it is dead)"
            )
        self.epoch = int(held.get("epoch", 0)) + 1
        self._holder["since"] = datetime.now(UTC).isoformat("T", "seconds")
        self._renewed = _clock()
        self._etag = self.at.swap(self._body(), etag)
        if self._etag is None:
            raise StoreBusy(f"{self.stage}: another driver took the store {self.store} at this moment; try again later")
        if self.at.swap(b"{}", '"0"') is not None:
            raise PlaceError(f"{self.store}: this store ignores If-Match, so that two drivers could write at once")
        self._stop.clear()
        self._thread = threading.Thread(target=self._beat, name=f"lease of {self.stage}", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise StoreBusy where another driver has taken the store over.

        After a stall for longer than the lease, that is asked of the store; PlaceError or OSError where it is silent.
        """
        if self._thread and not self._lost and _clock() - self._renewed > self.seconds:
            self._renew()
        if self._lost:
            raise StoreBusy(self._lost)

    def release(self) -> None:
        """Give the lease back; the object stays, since its epoch must not begin anew."""
        if self._thread is None:
            return
        self._stop.set()
        self._thread.join()
        self._thread = None
        if not self._lost:
            try:
                self._renew(released=True)
            except (StoreError, OSError) as error:  # it runs out by itself
                logger.warning("%s: could not give back the lease: %s", self.stage, error)

    def _held(self) -> tuple[dict[str, Any], str | None]:
        try:
            body, etag = self.at.read()
        except FileNotFoundError:
            return {}, None
        try:
            held = json.loads(body)
        except ValueError:
            held = {}
        return (held if isinstance(held, dict) else {}), etag

    def _left(self, held: dict[str, Any]) -> float:
        """Seconds until a lease runs out, by the store's clock; none where its process is known to be dead."""
        here = machine()
        if here["boot"] and {name: held.get(name) for name in here} == here and not _alive(int(held["pid"])):
            return 0.0
        age = self.at.now() - self.at.look().modified
        return float(held.get("seconds", self.seconds)) - age

    def _body(self, *, released: bool = False) -> bytes:
        self._beats += 1
        facts = {"epoch": self.epoch, "seconds": self.seconds, "beat": self._beats, "released": released}
        return json.dumps(self._holder | facts, sort_keys=True).encode()

    def _beat(self) -> None:
        """Renew until told to stop. A store that does not answer is asked again; one that refuses is another's."""
        while not self._lost and not self._stop.wait(self.seconds / BEATS):
            try:
                self._renew()
            except (StoreError, OSError) as error:
                logger.warning("%s: no heartbeat: %s", self.stage, error)

    def _renew(self, *, released: bool = False) -> None:
        """One heartbeat. What stands there instead of the last one is one whose answers were lost, or another's."""
        with self._renewing:
            began = _clock()
            etag = self.at.swap(self._body(released=released), self._etag)
            if etag is None:
                held, now = self._held()
                if held.get("token") != self.token:
                    self._lost = f"{self.stage}: another driver has taken over {self.store}: this one was not heard of"
                    logger.error(self._lost)
                    return
                etag = self.at.swap(self._body(released=released), now)
                if etag is None:
                    raise PlaceError(f"{self.at}: could not be written, though the lease is held")
            self._etag, self._renewed = etag, began


def _clock() -> float:
    """Seconds; those of a suspended machine too, where the system counts them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def machine() -> dict[str, str]:
    """What tells whether a process id is one of ours: host, boot and namespace."""
    facts = {"host": socket.gethostname(), "boot": "", "namespace": ""}
    try:
        facts["boot"] = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        facts["namespace"] = os.readlink("/proc/self/ns/pid")
    except OSError:
        pass  # no /proc outside Linux: a host's name alone proves nothing, so a lease runs out by time alone
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
    """One letter; Z is a dead process that its parent has not looked at."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "?"
