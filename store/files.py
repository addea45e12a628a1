"""Atomic files: complete or absent, the same bytes for the same content, identified by their BLAKE3.

The footer of a file of rows has a checksum, a BLAKE3 of every other byte. It is part of the file, so there is no
second file that a killed process could leave behind or that could be damaged instead. Page checksums are not
enough, because they do not cover the footer and its statistics, and because DuckDB does not compare them.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from blake3 import blake3

from store.errors import DamagedFile, StaleInput, StoreFull
from store.schema import to_arrow
from tsfmscope.files import TEMPORARY, write_atomic

# Key of the checksum in the footer's key-value metadata.
CHECKSUM_KEY = "file_blake3"
# Hex digits of a BLAKE3.
CHECKSUM_WIDTH = 64
# Placeholder for the checksum while it is computed.
CHECKSUM_BLANK = b"0" * CHECKSUM_WIDTH
# Bytes before the checksum in Thrift's compact encoding: the key, then the header of a text of 64 bytes.
CHECKSUM_PREFIX = CHECKSUM_KEY.encode() + bytes([0x18, CHECKSUM_WIDTH])

# (path, inode, mtime in ns, size) of each file that this process has verified.
_verified: set[tuple[str, int, int, int]] = set()
ROWS_PER_GROUP = 16_384
ZSTD_LEVEL = 1
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
READ_ONLY = frozenset({errno.EROFS, errno.EACCES})
FREE = "Free some of that disk"
# Prefixes of inputs that are not files under the root.
NOT_FILES = ("hub:", "model:", "param:")
# (path, inode, mtime in ns, size) -> BLAKE3 of each file that this process has read.
_fingerprints: dict[tuple[str, int, int, int], str] = {}


def _reserve_checksum(writer: pq.ParquetWriter) -> None:
    """Add a placeholder for the checksum to the footer that the writer is about to write."""
    writer.add_key_value_metadata({CHECKSUM_KEY: CHECKSUM_BLANK.decode()})


def _write_checksum(path: Path) -> None:
    """Replace the placeholder of `_reserve_checksum` by the checksum of the file; no other process may read it yet."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        offset = content.rfind(CHECKSUM_PREFIX) + len(CHECKSUM_PREFIX)
        assert content[offset : offset + CHECKSUM_WIDTH] == CHECKSUM_BLANK
        content[offset : offset + CHECKSUM_WIDTH] = _digest(content, offset).encode()


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
    offset = content.rfind(CHECKSUM_PREFIX) + len(CHECKSUM_PREFIX)
    if offset < len(CHECKSUM_PREFIX):
        raise damaged(name, "no checksum, so it is damaged or was written by an earlier version")
    expected, actual = content[offset : offset + CHECKSUM_WIDTH], _digest(content, offset)
    if expected != actual.encode():
        raise damaged(name, f"BLAKE3 {actual}", f"BLAKE3 {expected.decode(errors='replace')}")


def _digest(content: bytes | mmap.mmap, offset: int) -> str:
    """Return the BLAKE3 (hex) of a file whose checksum at `offset` is replaced by zeros."""
    with memoryview(content) as view:
        digest = blake3(view[:offset])
        digest.update(CHECKSUM_BLANK)
        digest.update(view[offset + CHECKSUM_WIDTH :])
    return str(digest.hexdigest())


def damaged(name: Path, actual: str, expected: str = "a file of rows with its checksum") -> DamagedFile:
    """Return the exception that names a damaged file of an out and explains how to restore it."""
    return DamagedFile(
        f"{name}: damaged: expected {expected}, found {actual}; delete this file, then `dvc repro` writes it again"
    )


@contextmanager
def atomic(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`.

    It is renamed to `path` when the block ends without an error.

    An existing file is replaced, never written into, because DVC's cache may be linked to it. durable: as in
    `write_atomic`. Raises StoreFull if the disk is full or not writable.
    """
    with translate_full_disk(path), write_atomic(path, durable=durable) as temporary:
        yield temporary


@contextmanager
def translate_full_disk(path: Path) -> Iterator[None]:
    """Raise StoreFull, with path and hint, if the block fails because the disk is full or not writable."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL | READ_ONLY or isinstance(error, StoreFull):
            raise
        folder = next(parent for parent in path.absolute().parents if parent.is_dir())
        hint = f"Make {folder} writable, or work in a copy of the project" if error.errno in READ_ONLY else FREE
        raise StoreFull(
            error.errno,
            f"cannot write {path}: {os.strerror(error.errno)}. {hint}, then run the same command again: "
            "it continues from the stored results",
        ) from error


def write_text(path: Path, text: str) -> None:
    """Write a small file atomically."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def remove_temporary(folder: Path) -> list[Path]:
    """Delete the temporary files that killed writers left under a folder, and return their paths."""
    left = [p for p in folder.rglob(f"{TEMPORARY}*") if p.is_file()]
    for path in left:
        path.unlink(missing_ok=True)
    return left


def parquet_writer(path: Any, schema: pa.Schema) -> pq.ParquetWriter:
    """Return a Parquet writer whose bytes depend on the tables alone: zstd, and dictionaries for text only.

    path: a path, or a file that is open for writing.

    Floating-point columns use the encoding BYTE_STREAM_SPLIT, which stores bytes of equal significance
    together. Files of series are then a fifth smaller, and are written and read faster (KernelSynth: 0.79 of
    the bytes and a third of the time of zstd 3).

    Files of hidden states, recognised by a fixed-size list column that is not nullable, are not compressed:
    zstd saved 16 % of their bytes and took 1.7 times as long to write. Their integer ids are stored as
    differences, which is smaller than zstd and takes half its time.
    """
    texts = [f.name for f in schema if pa.types.is_string(f.type) or pa.types.is_dictionary(f.type)]
    common = {"use_dictionary": texts, "write_page_checksum": True, "version": "2.6", "data_page_version": "1.0"}
    if any(pa.types.is_fixed_size_list(f.type) and not f.nullable for f in schema):
        ids = [f.name for f in schema if pa.types.is_integer(f.type)]
        # Nested columns get no statistics, because no reader needs the smallest value among the
        # states of a file.
        plain = [f.name for f in schema if not pa.types.is_nested(f.type)]
        encoding = dict.fromkeys(ids, "DELTA_BINARY_PACKED")
        return pq.ParquetWriter(
            path, schema, compression="none", column_encoding=encoding, write_statistics=plain, **common
        )
    return pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        compression_level=ZSTD_LEVEL,
        column_encoding={name: "BYTE_STREAM_SPLIT" for f in schema for name in _floats(f.name, f.type)},
        **common,
    )


def _floats(name: str, kind: pa.DataType) -> list[str]:
    """Return Parquet's name of a column of floats or of lists of floats, in a list.

    The result is empty for other types, also for deeper nesting.
    """
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        name, kind = f"{name}.list.element", kind.value_type
    return [name] if pa.types.is_floating(kind) else []


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a table atomically in row groups of ROWS_PER_GROUP, with the checksum of the file."""
    with atomic(path) as temporary:
        plain = table.replace_schema_metadata(None).combine_chunks()
        with parquet_writer(temporary, plain.schema) as writer:
            writer.write_table(plain, row_group_size=ROWS_PER_GROUP)
            _reserve_checksum(writer)
        _write_checksum(temporary)


def read_parquet(file: Path, *, columns: Sequence[str] | None = None, filters: pc.Expression | None = None) -> pa.Table:
    """Read one file of rows.

    Folder names are not read as partition columns. Raises DamagedFile if the checksum differs.
    """
    verify(file)
    return pq.read_table(file, columns=columns, filters=filters, partitioning=None).replace_schema_metadata(None)


def metadata(file: Path) -> pq.FileMetaData:
    """Return the footer of a Parquet file of rows. DamagedFile if the file's checksum differs."""
    verify(file)
    return pq.read_metadata(file)


def write_rows(path: Path, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows of a table of the schema atomically.

    No rows give a file without rows. Raises ValueError as `to_arrow` does.
    """
    write_parquet(path, to_arrow(name, rows))


def fingerprint(path: Path) -> str:
    """Return the BLAKE3 (hex) of a file or folder; it is four times as fast as SHA-256.

    The BLAKE3 of a folder is that of the sorted lines "relative-path BLAKE3" of its files, without temporary
    files. FileNotFoundError if there is nothing.
    """
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith(TEMPORARY))
        lines = sorted(f"{p.relative_to(path).as_posix()} {fingerprint(p)}\n" for p in files)
        return blake3("".join(lines).encode()).hexdigest()
    stat = path.stat()
    key = (str(path.absolute()), stat.st_ino, stat.st_mtime_ns, stat.st_size)
    if key not in _fingerprints:
        _fingerprints[key] = blake3().update_mmap(path).hexdigest()
    return _fingerprints[key]


def check(root: Path, inputs: Mapping[str, str]) -> None:
    """Raise StaleInput unless every input still has the fingerprint with which its job was planned.

    inputs: path relative to `root` -> BLAKE3 (hex). Inputs that are not files (NOT_FILES) are ignored.
    """
    for name, expected in inputs.items():
        if name.startswith(NOT_FILES):
            continue
        try:
            actual = fingerprint(root / name)
        except FileNotFoundError:
            actual = "nothing there"
        if actual != expected:
            raise StaleInput(
                f"input {name}: expected BLAKE3 {expected}, found {actual}; "
                "it changed after planning: run the stage again"
            )
