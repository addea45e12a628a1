"""Files and folders: read if they are regular, written completely or not at all, named and checked before any work.

Of files that users name only regular ones are accepted: a pipe could block, and a device may have no end.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsfmscope.errors import ArgumentError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    import pandas as pd

# Function that writes a file of this path.
Writer = Callable[[Path], object]
# Suffixes of tables.
TABLES = (".csv", ".parquet")
# Prefix of files that are being written; readers ignore them.
TEMPORARY = ".tmp-"

KINDS = {
    stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}  # fmt: skip

# Bytes that are written and removed again: one block of most file systems, which does not fit on a full one.
PROBE = b"\0" * 4096


@contextlib.contextmanager
def write_atomic(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path next to `path`, which is renamed to it if the block ends without an error.

    Missing parent folders are made. An existing file is replaced, never written into. durable: whether to force the
    file and its folder to the disk; if False, the caller does so later with `sync`.
    """
    temporary = path.parent / f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(4)}-{path.name}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        if durable:
            sync(temporary)
        os.replace(temporary, path)
        if durable:
            sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Force a file or folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def table_writers(table: pd.DataFrame) -> dict[str, Writer]:
    """Return the writers of a table without its index, by suffix: TABLES."""
    return {
        ".csv": lambda path: table.to_csv(path, index=False),
        ".parquet": lambda path: table.to_parquet(path, index=False),
    }


def save_as(path: str | Path, writers: Mapping[str, Writer]) -> Path:
    """Write a file with the writer of its suffix, completely or not at all; return the path.

    Missing parent folders are made.

    Args:
        path: the file.
        writers: suffix -> function that writes a file of that suffix.

    Raises:
        ValueError: no writer has the suffix.
        OSError: the file cannot be written.
    """
    target = Path(path)
    if target.suffix not in writers:
        raise ValueError(f"{target}: expected a name that ends in {', '.join(writers)}")
    with write_atomic(target) as temporary:
        writers[target.suffix](temporary)
    return target


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


def read_packaged(path: Path | Traversable) -> Any:
    """Return the content of a YAML file of this project.

    libyaml, where PyYAML has it, takes a twentieth of the time.
    """
    import yaml

    return yaml.load(path.read_text("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))


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


def check_new(folder: Path) -> None:
    """Raise ArgumentError for a folder that is not empty or cannot be written."""
    try:
        occupied = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    except OSError as error:
        raise _unwritable(folder, error) from None
    if occupied:
        raise ArgumentError(f"{folder}: is there already, and not empty; name a new folder")
    check_writable(folder)


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield a path next to `folder` for the output, which is renamed to `folder` at the end.

    `check_new` must have accepted `folder`. After an error, nothing is left.
    """
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as work:
        made = Path(work, "folder")
        yield made
        # It is empty, since `check_new` has checked that.
        if folder.exists():
            folder.rmdir()
        made.rename(folder)


def check_writable(folder: Path) -> None:
    """Make the folder's parents and check that a file can be written.

    A temporary file is written in the folder, or in its parent if the folder does not exist. Raises
    ArgumentError if that fails.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(0, "is a file")
        with tempfile.TemporaryFile(dir=folder if folder.is_dir() else folder.parent) as probe:
            probe.write(PROBE)
            probe.flush()
    except OSError as error:
        raise _unwritable(folder, error) from None


def _unwritable(folder: Path, error: OSError) -> ArgumentError:
    return ArgumentError(f"{folder}: cannot be written ({error.strerror}); name another folder, or make room there")


def slug(text: str) -> str:
    """Return the text as a name that is valid for files and folders; it may be empty."""
    return re.sub(r"[^A-Za-z0-9._@=+-]", "-", text).lstrip("._@=+-")
