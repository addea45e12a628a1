"""Readers and checksums of files that users name.

Only regular files are accepted: a pipe could block, and a device may have no end.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import stat
from io import BufferedReader
from pathlib import Path

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def check_regular(path: Path, largest: int | None = None) -> int:
    """Return the size of a regular file in bytes; links are followed.

    Raises:
        OSError: the path is anything else, or has more bytes than `largest`. Its `strerror` states what was
            expected and found.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        kind = KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise OSError(errno.EINVAL, f"expected a regular file, got {kind}", str(path))
    if largest is not None and status.st_size > largest:
        raise OSError(errno.EFBIG, f"expected at most {largest} bytes, got {status.st_size}", str(path))
    return status.st_size


def open_regular(path: Path, largest: int | None = None) -> BufferedReader:
    """Open a regular file for reading bytes. Raises OSError as `check_regular` does."""
    check_regular(path, largest)
    # If a pipe has replaced the file in the meantime, opening it must not wait for a writer.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "expected a regular file, got something else", str(path))
    return os.fdopen(handle, "rb")


def read_bytes(path: Path, largest: int) -> bytes:
    """Read a regular file of at most `largest` bytes. Raises OSError as `check_regular` does."""
    with open_regular(path, largest) as file:
        data = file.read(largest + 1)
    if len(data) > largest:
        raise OSError(errno.EFBIG, f"expected at most {largest} bytes, got more", str(path))
    return data


def read_text(path: Path, largest: int) -> str:
    """Read a regular file of at most `largest` bytes as UTF-8. Raises OSError, UnicodeDecodeError."""
    return read_bytes(path, largest).decode("utf-8")


def file_sum(path: Path) -> str:
    """Return the SHA-256 (hex) of a file.

    A process reads a file again only after its inode, its modification time or its size has changed.
    """
    return _sum_of(path, "sha256", b"")


def git_sum(path: Path) -> str:
    """Return git's SHA-1 (hex) of a file, by which a hub names small files. It is read as for `file_sum`."""
    return _sum_of(path, "sha1", b"blob %d\0" % path.stat().st_size)


def _sum_of(path: Path, algorithm: str, prefix: bytes) -> str:
    status = path.stat()
    return _file_sum(path.absolute(), algorithm, prefix, status.st_ino, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=4096)
def _file_sum(path: Path, algorithm: str, prefix: bytes, *_: int) -> str:
    start = hashlib.new(algorithm, prefix)
    with open_regular(path) as stream:
        return hashlib.file_digest(stream, start.copy).hexdigest()
