"""Conditional writes of a small file in a shared folder.

They rely on creating a file exclusively, which is atomic on all shared file systems. flock is not used,
because it holds between machines on NFS 4 but not on every shared file system.
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

from blake3 import blake3

from store import files

# Seconds. A claim is held only during a write, so an older claim belongs to a writer that died.
CLAIM_SECONDS = 30.0
# Seconds that a writer waits for another writer's claim.
PATIENCE = 5.0


class SharedFile:
    """Small file that several machines write, each only if the content is still what it read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._claim = path.with_name(f"{path.name}.claim")

    def __str__(self) -> str:
        return str(self.path)

    def read(self) -> tuple[bytes, str]:
        """Return all bytes and their BLAKE3 (hex)."""
        body = self.path.read_bytes()
        return body, blake3(body).hexdigest()

    def modified(self) -> float:
        """Return the time of the last write in seconds since the epoch, by the file server's clock."""
        return self.path.stat().st_mtime

    def now(self) -> float:
        """Return the seconds since the epoch by the file server's clock."""
        probe = self.path.with_name(f"{files.TEMPORARY}{os.getpid()}-{secrets.token_hex(4)}")
        try:
            probe.touch()
            return probe.stat().st_mtime
        finally:
            probe.unlink(missing_ok=True)

    def write_if_unchanged(self, body: bytes, digest: str | None) -> str | None:
        """Write the file only if its BLAKE3 is still `digest` (None: only if there is no file).

        Return the new BLAKE3. Return None if the content differs or another writer's claim did not end in time.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self._claimed():
            return None
        try:
            current = self.read()[1] if self.path.exists() else None
            if current != digest:
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
        """Remove a dead writer's claim; if several processes try, only one renames it."""
        try:
            seen = self._claim.stat()
            if self.now() - seen.st_mtime > CLAIM_SECONDS:
                renamed = self._claim.with_name(f"{files.TEMPORARY}{secrets.token_hex(4)}")
                self._claim.rename(renamed)
                moved = renamed.stat()
                if (moved.st_ino, moved.st_mtime_ns) == (seen.st_ino, seen.st_mtime_ns):
                    renamed.unlink()
                else:
                    # Another process was faster, and the renamed file is the claim of the next
                    # writer.
                    renamed.rename(self._claim)
        except FileNotFoundError:
            # The claim was released meanwhile.
            pass
