"""Checksums of whole files of rows: a BLAKE3 in the Parquet footer that covers every other byte of the file.

The checksum is part of the file, so there is no second file that a killed process could leave behind or that
could be damaged instead. Page checksums are not enough, because they do not cover the footer and its
statistics, and because DuckDB does not compare them.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING

from blake3 import blake3

from store.errors import DamagedFile

if TYPE_CHECKING:
    import pyarrow.parquet as pq

# Key of the checksum in the footer's key-value metadata.
KEY = "file_blake3"
# Hex digits of a BLAKE3.
WIDTH = 64
# Placeholder for the checksum while it is computed.
BLANK = b"0" * WIDTH
# Bytes before the checksum in Thrift's compact encoding: the key, then the header of a text of 64 bytes.
BEFORE = KEY.encode() + bytes([0x18, WIDTH])

# (path, inode, mtime in ns, size) of each file that this process has verified.
_verified: set[tuple[str, int, int, int]] = set()


def reserve(writer: pq.ParquetWriter) -> None:
    """Add a placeholder for the checksum to the footer that the writer is about to write."""
    writer.add_key_value_metadata({KEY: BLANK.decode()})


def seal(path: Path) -> None:
    """Replace the placeholder of `reserve` by the checksum of the file; no other process may read it yet."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        offset = content.rfind(BEFORE) + len(BEFORE)
        assert content[offset : offset + WIDTH] == BLANK
        content[offset : offset + WIDTH] = _digest(content, offset).encode()


def verify(path: Path) -> None:
    """Raise DamagedFile unless every byte of a file of rows is as it was written.

    A process reads a file once, and again only if its inode, modification time or size has changed.
    """
    with path.open("rb") as file:
        actual = os.fstat(file.fileno())
        known = (str(path.absolute()), actual.st_ino, actual.st_mtime_ns, actual.st_size)
        if known in _verified:
            return
        if not actual.st_size:
            raise damaged(path, "an empty file")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            verify_content(content, path)
    _verified.add(known)


def verify_content(content: bytes | mmap.mmap, name: Path) -> None:
    """Raise DamagedFile unless the bytes of a file of rows are as they were written."""
    offset = content.rfind(BEFORE) + len(BEFORE)
    if offset < len(BEFORE):
        raise damaged(name, "no checksum, so it is damaged or was written by an earlier version")
    expected, actual = content[offset : offset + WIDTH], _digest(content, offset)
    if expected != actual.encode():
        raise damaged(name, f"BLAKE3 {actual}", f"BLAKE3 {expected.decode(errors='replace')}")


def _digest(content: bytes | mmap.mmap, offset: int) -> str:
    """Return the BLAKE3 (hex) of a file whose checksum at `offset` is replaced by zeros."""
    with memoryview(content) as view:
        digest = blake3(view[:offset])
        digest.update(BLANK)
        digest.update(view[offset + WIDTH :])
    return str(digest.hexdigest())


def damaged(name: Path, actual: str, expected: str = "a file of rows with its checksum") -> DamagedFile:
    """Return the exception that names a damaged file of an out and explains how to restore it."""
    return DamagedFile(
        f"{name}: damaged: expected {expected}, found {actual}; delete this file, then `dvc repro` writes it again"
    )
