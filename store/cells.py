"""A small file of a shared folder that is written only where nobody else has: what a conditional PUT is there.

flock holds between machines on NFS 4 and not on every shared file system, so it is not relied on here: creating a file
exclusively is atomic on all of them.
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

from blake3 import blake3

from store import files
from store.objects import Found

CLAIM_SECONDS = 30.0  # a claim is held for the instant of a write; an older one is a dead writer's
PATIENCE = 5.0  # seconds that a writer waits for another's claim


class SharedFile:
    """Like `objects.Remote`, as far as a lease needs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._claim = path.with_name(f"{path.name}.claim")

    def __str__(self) -> str:
        return str(self.path)

    def read(self) -> tuple[bytes, str]:
        """All bytes and what tells them from others."""
        body = self.path.read_bytes()
        return body, blake3(body).hexdigest()

    def look(self) -> Found:
        """Size, and when it was written by the file server's clock."""
        stat = self.path.stat()
        return Found(str(self.path), stat.st_size, self.read()[1], stat.st_mtime)

    def now(self) -> float:
        """Seconds since the epoch by the file server's clock."""
        probe = self.path.with_name(f"{files.TEMPORARY}{os.getpid()}-{secrets.token_hex(4)}")
        try:
            probe.touch()
            return probe.stat().st_mtime
        finally:
            probe.unlink(missing_ok=True)

    def swap(self, body: bytes, etag: str | None) -> str | None:
        """Write only where it is still what it was (None: not there); what tells it from others, None if lost."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self._claimed():
            return None
        try:
            held = self.read()[1] if self.path.exists() else None
            if held != etag:
                return None
            with files.atomic(self.path) as temporary:
                temporary.write_bytes(body)
            return blake3(body).hexdigest()
        finally:
            self._claim.unlink(missing_ok=True)

    def _claimed(self) -> bool:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                os.close(os.open(self._claim, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                return True
            except FileExistsError:
                self._break_claim()
                time.sleep(0.05)
        return False

    def _break_claim(self) -> None:
        """Take a dead writer's claim away; of several that try, one renames it."""
        try:
            seen = self._claim.stat()
            if self.now() - seen.st_mtime > CLAIM_SECONDS:
                aside = self._claim.with_name(f"{files.TEMPORARY}{secrets.token_hex(4)}")
                self._claim.rename(aside)
                moved = aside.stat()
                if (moved.st_ino, moved.st_mtime_ns) == (seen.st_ino, seen.st_mtime_ns):
                    aside.unlink()
                else:  # somebody was faster, and this is the claim of whoever came next
                    aside.rename(self._claim)
        except FileNotFoundError:
            pass  # it was given back meanwhile
