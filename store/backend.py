"""Storage backends for a stage's rows and dump files.

They are stored in folders of a file system, or in an object store (store/object_store.py).
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import pyarrow as pa

from tsfmscope.store import files
from tsfmscope.store.lease import Lease
from tsfmscope.store.lock import Lock
from tsfmscope.store.manifests import File

logger = logging.getLogger(__name__)
T = TypeVar("T")


class Entry(NamedTuple):
    """One file of a table.

    name: file name. bytes: size. rows and fingerprint (BLAKE3, hex): None and "" if the part was found
    after a kill.
    """

    name: str
    bytes: int
    rows: int | None
    fingerprint: str


class TableFiles(ABC):
    """Files of one table.

    Whichever process is killed, a reader finds each row at most once; during a replacement, rows may be
    absent for a moment.
    """

    name: str

    @abstractmethod
    def files(self) -> list[File]:
        """Return the compacted files, then the parts in the order in which they were written."""

    @abstractmethod
    def recover(self) -> None:
        """Finish an interrupted replacement, and delete files that do not count."""

    @abstractmethod
    def append(self, table: pa.Table) -> None:
        """Store rows as one atomic part."""

    @abstractmethod
    def newest(self) -> Iterator[tuple[File, int]]:
        """Return parts and their sizes in bytes, newest first."""

    @abstractmethod
    def join(self, parts: Sequence[File], table: pa.Table) -> None:
        """Atomically replace the newest parts, given in the order in which they were written, by one part."""

    @abstractmethod
    def rewrite(self, file: File, table: pa.Table | None) -> None:
        """Atomically replace the content of a file by a table; None deletes the file."""

    @abstractmethod
    def replace(self, tables: Iterable[pa.Table]) -> None:
        """Atomically replace all files by one compacted file per table; at least one table is needed."""

    @abstractmethod
    def is_compacted(self, n: int) -> bool:
        """Return whether there are exactly n files, all written by `replace`."""

    @abstractmethod
    def quarantine(self, file: File, target: Path) -> None:
        """Move a damaged file out of the store to a local path."""

    def map_files(self, do: Callable[[File], T]) -> list[T]:
        """Call `do` with every file and return the results, in the order of `files`."""
        return [do(file) for file in self.files()]


class StorageBackend(ABC):
    """Storage of one stage. Its driver calls `acquire` first, then `open`, and `release` at the end."""

    # Dump paths are relative to this folder or prefix.
    dumps: File
    # Address of the storage; None if it is the stage's out.
    uri: str | None = None

    @abstractmethod
    def acquire(self) -> None:
        """Take the store for this driver.

        Raises StoreBusy if another driver has it, and LocationError if it cannot be used.
        """

    @abstractmethod
    def release(self) -> None:
        """Release the store for other drivers."""

    @abstractmethod
    def check(self) -> None:
        """Raise StoreBusy if another driver has taken the store over."""

    @abstractmethod
    def open(self) -> None:
        """Create what is missing and delete what killed writers left. Called before any table is read."""

    @abstractmethod
    def folder(self, name: str, *, companion: bool = False) -> TableFiles | Path:
        """Return the files of a table.

        A path means a local folder. companion: whether it has wall-clock times.
        """

    @abstractmethod
    def entries(self, name: str, *, companion: bool = False) -> list[Entry]:
        """Return the compacted files of a table. companion: whether the table has wall-clock times."""

    @abstractmethod
    def fault(self, path: str, size: int, fingerprint: str) -> str:
        """Return the fault of a dump, `gone` or `damaged`, or an empty text."""

    @abstractmethod
    def sync(self, paths: Sequence[str]) -> None:
        """Force dumps to the disk before rows name them."""

    @abstractmethod
    def prune(self, paths_in_rows: Collection[str]) -> None:
        """Delete dumps that no row names."""


class FileSystemBackend(StorageBackend):
    """Storage of a stage in folders of a file system.

    root: folder of rows and dumps. companion: folder of wall-clock times. lock: gives one driver the store.
    lease: needed if other machines can reach the folders, because flock may be effective on one machine only.
    """

    def __init__(
        self, root: Path, companion: Path, lock: Lock, *, uri: str | None = None, lease: Lease | None = None
    ) -> None:
        self.root, self.companion, self.dumps = root, companion, root
        self.uri = uri
        self._lock, self._lease = lock, lease

    def acquire(self) -> None:
        """Take the flock, which the death of a driver releases at once, then the lease."""
        self._lock.acquire()
        if self._lease:
            try:
                self._lease.acquire()
            except BaseException:
                self._lock.release()
                raise

    def release(self) -> None:
        """Release lease and lock; their files stay."""
        if self._lease:
            self._lease.release()
        self._lock.release()

    def check(self) -> None:
        """Check the lease, if there is one; a flock cannot be taken over."""
        if self._lease:
            self._lease.check()

    def open(self) -> None:
        """Create both folders and delete temporary files in them.

        Raises StoreFull if the disk is full or not writable.
        """
        for folder in (self.root, self.companion):
            with files.translate_full_disk(folder):
                folder.mkdir(parents=True, exist_ok=True)
                files.remove_temporary(folder)

    def folder(self, name: str, *, companion: bool = False) -> Path:
        """Return the path of the table's folder."""
        return (self.companion if companion else self.root) / name

    def entries(self, name: str, *, companion: bool = False) -> list[Entry]:
        """Return the files of the table, sorted by name. DamagedFile if a checksum differs."""
        paths = sorted(self.folder(name, companion=companion).glob("[!.]*.parquet"))
        return [Entry(p.name, p.stat().st_size, files.metadata(p).num_rows, files.fingerprint(p)) for p in paths]

    def fault(self, path: str, size: int, fingerprint: str) -> str:
        """Compare the size first, then the BLAKE3."""
        file = self.root / path
        if not file.is_file():
            return "gone"
        return "" if file.stat().st_size == size and files.fingerprint(file) == fingerprint else "damaged"

    def sync(self, paths: Sequence[str]) -> None:
        """Sync the files that exist, then their folders."""
        existing = [path for path in (self.root / path for path in paths) if path.is_file()]
        for path in [*existing, *sorted({path.parent for path in existing})]:
            files.sync(path)

    def prune(self, paths_in_rows: Collection[str]) -> None:
        """Delete dumps that no row names, and folders that become empty.

        The Parquet files directly in `dumps` are the rows of the table `dumps`, so they stay.
        """
        folder = self.root / "dumps"
        rows = set(folder.glob("*.parquet"))
        # In reverse order, a folder comes after its contents.
        for path in sorted(folder.rglob("*"), reverse=True):
            if path.is_dir():
                if not any(path.iterdir()):
                    path.rmdir()
            elif path not in rows and path.relative_to(self.root).as_posix() not in paths_in_rows:
                path.unlink()
