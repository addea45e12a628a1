"""A new file that is written once, in order, past the page cache where the file system can, and hashed on its way."""

from __future__ import annotations

import errno
import fcntl
import io
import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING

from blake3 import blake3

if TYPE_CHECKING:
    from typing_extensions import Buffer

STAGE = 2**20  # bytes a write: the copy is still in the processor's cache when it is hashed
ALIGNED = 4096  # bytes: what O_DIRECT asks of memory, offset and length; no device's blocks are larger
PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # a fork gets a copy of its own; the default would be shared with it
REFUSED = (errno.EINVAL, errno.EOPNOTSUPP)  # what a file system answers that has no O_DIRECT

_stages: list[mmap.mmap] = []  # lent to one file at a time and kept: taking such memory anew costs more than the copy


class DirectFile(io.RawIOBase):
    """A file-like object for `pyarrow.ipc.new_file`; `size` and `fingerprint` (BLAKE3, hex) once it is closed.

    The bytes go past the page cache, which would be paid twice: the memory for it, which a virtual machine must first
    get back from its host (0.3 GB/s where that happened, 4 where not), and the wait of the driver, alone for all
    workers, when it forces the file to the disk. What is not a whole number of blocks at the end, and all where
    O_DIRECT is refused, goes through the cache.
    """

    def __init__(self, path: Path) -> None:
        """Make the file. FileExistsError where there is one."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        self._handle = os.open(path, flags, 0o666)
        self._direct = _set_direct(self._handle, True)
        self._stage = _stages.pop() if _stages else mmap.mmap(-1, STAGE, flags=PRIVATE)
        self._view = memoryview(self._stage)
        self._hash, self._filled = blake3(), 0
        self.size, self.fingerprint = 0, ""

    def writable(self) -> bool:
        """Yes."""
        return True

    def write(self, data: Buffer) -> int:
        """Take all of the bytes."""
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            count = min(STAGE - self._filled, len(view) - done)
            self._view[self._filled : self._filled + count] = view[done : done + count]
            self._filled += count
            done += count
            if self._filled == STAGE:
                self._drain()
        return done

    def close(self) -> None:
        """Write what is left, and let go of the file."""
        if self.closed:
            return
        try:
            self._drain()
            self.fingerprint = self._hash.hexdigest()
        finally:
            os.close(self._handle)
            self._view.release()
            _stages.append(self._stage)
            super().close()

    def _drain(self) -> None:
        self._hash.update(self._view[: self._filled])
        whole = self._filled - self._filled % ALIGNED
        self._write(0, whole)
        if whole < self._filled:
            if self._direct:
                self._direct = not _set_direct(self._handle, False)
            self._write(whole, self._filled)
        self.size += self._filled
        self._filled = 0

    def _write(self, start: int, stop: int) -> None:
        while start < stop:
            try:
                start += os.write(self._handle, self._view[start:stop])
            except OSError as error:
                if not self._direct or error.errno not in REFUSED:
                    raise
                _set_direct(self._handle, False)
                self._direct = False


def _set_direct(handle: int, on: bool) -> bool:
    """Turn O_DIRECT on or off; whether that could be done."""
    flag = getattr(os, "O_DIRECT", 0)  # Linux alone has it
    if not flag:
        return False
    flags = fcntl.fcntl(handle, fcntl.F_GETFL)
    try:
        fcntl.fcntl(handle, fcntl.F_SETFL, flags | flag if on else flags & ~flag)
    except OSError as error:
        if error.errno not in REFUSED:
            raise
        return False
    return True
