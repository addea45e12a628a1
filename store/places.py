"""Where a stage's rows and dump files lie: folders of a file system, or an object store (`store.shelf`)."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import pyarrow as pa

from store import files
from store.lease import Lease
from store.lock import Lock
from store.manifests import File

logger = logging.getLogger(__name__)
T = TypeVar("T")


class Entry(NamedTuple):
    """One file of a table. rows and fingerprint (BLAKE3): None and empty where the part was found after a kill."""

    name: str
    bytes: int
    rows: int | None
    fingerprint: str


class Folder(ABC):
    """The files of one table; whatever is killed, a reader finds each row once or, while it is replaced, not yet."""

    name: str

    @abstractmethod
    def files(self) -> list[File]:
        """Compacted files, then parts in the order that they were written."""

    @abstractmethod
    def recover(self) -> None:
        """Carry an interrupted replacement through, delete what does not count."""

    @abstractmethod
    def append(self, table: pa.Table) -> None:
        """Store rows as one atomic part."""

    @abstractmethod
    def newest(self) -> Iterator[tuple[File, int]]:
        """Parts and their bytes, the last written first."""

    @abstractmethod
    def join(self, parts: Sequence[File], table: pa.Table) -> None:
        """Put one part in the place of the last written ones, given in their order, atomically."""

    @abstractmethod
    def rewrite(self, file: File, table: pa.Table | None) -> None:
        """Put a table in the place of a file, atomically; None: nothing."""

    @abstractmethod
    def replace(self, tables: Iterable[pa.Table]) -> None:
        """Put one compacted file a table, at least one, in the place of all files, atomically."""

    @abstractmethod
    def is_compacted(self, n: int) -> bool:
        """Whether there are n files, and `replace` wrote them last."""

    @abstractmethod
    def set_aside(self, file: File, target: Path) -> None:
        """Move a damaged file out of the store to a path of this machine."""

    def each(self, do: Callable[[File], T]) -> list[T]:
        """What `do` answers for every file, in their order."""
        return [do(file) for file in self.files()]


class Place(ABC):
    """All of one stage's store. Its driver calls `acquire` first, then `open`, and `release` at the end."""

    dumps: File  # what dump paths are relative to
    uri: str | None = None  # where that is, if not in the stage's out

    @abstractmethod
    def acquire(self) -> None:
        """Take the store for this driver. StoreBusy where another has it, PlaceError where it cannot be used."""

    @abstractmethod
    def release(self) -> None:
        """Give it back."""

    @abstractmethod
    def check(self) -> None:
        """Raise StoreBusy where another driver has taken the store over."""

    @abstractmethod
    def open(self) -> None:
        """Make what must be there and delete what killed writers left; before any table is looked at."""

    @abstractmethod
    def folder(self, name: str, *, companion: bool = False) -> Folder | Path:
        """The files of a table; a path stands for the folder of that path. companion: of wall-clock figures."""

    @abstractmethod
    def entries(self, name: str, *, companion: bool = False) -> list[Entry]:
        """The compacted files of a table."""

    @abstractmethod
    def fault(self, path: str, size: int, fingerprint: str) -> str:
        """What is wrong with a dump, `gone` or `damaged`, or nothing."""

    @abstractmethod
    def sync(self, paths: Sequence[str]) -> None:
        """Force dumps to the disk before rows name them."""

    @abstractmethod
    def prune(self, named: Collection[str]) -> None:
        """Delete dumps that no row names."""


class Folders(Place):
    """A stage's store in folders of a file system: root for rows and dumps, companion for wall-clock figures.

    lease: where other machines reach it too, for file systems whose flock holds on one of them only.
    """

    def __init__(
        self, root: Path, companion: Path, lock: Lock, *, uri: str | None = None, lease: Lease | None = None
    ) -> None:
        self.root, self.companion, self.dumps = root, companion, root
        self.uri = uri
        self._lock, self._lease = lock, lease

    def acquire(self) -> None:
        """By flock, which a dead driver gives back at once, then by lease."""
        self._lock.acquire()
        if self._lease:
            try:
                self._lease.acquire()
            except BaseException:
                self._lock.release()
                raise

    def release(self) -> None:
        """The files of both stay."""
        if self._lease:
            self._lease.release()
        self._lock.release()

    def check(self) -> None:
        """By the lease; nobody takes a flock over."""
        if self._lease:
            self._lease.check()

    def open(self) -> None:
        """Folders, and no temporary files in them."""
        for folder in (self.root, self.companion):
            with files.space(folder):
                folder.mkdir(parents=True, exist_ok=True)
                files.remove_temporary(folder)

    def folder(self, name: str, *, companion: bool = False) -> Path:
        """A folder of that name."""
        return (self.companion if companion else self.root) / name

    def entries(self, name: str, *, companion: bool = False) -> list[Entry]:
        """By name."""
        found = sorted(self.folder(name, companion=companion).glob("[!.]*.parquet"))
        return [Entry(p.name, p.stat().st_size, files.metadata(p).num_rows, files.fingerprint(p)) for p in found]

    def fault(self, path: str, size: int, fingerprint: str) -> str:
        """By size first, then by BLAKE3."""
        file = self.root / path
        if not file.is_file():
            return "gone"
        return "" if file.stat().st_size == size and files.fingerprint(file) == fingerprint else "damaged"

    def sync(self, paths: Sequence[str]) -> None:
        """The files, then the folders that name them."""
        there = [path for path in (self.root / path for path in paths) if path.is_file()]
        for path in [*there, *sorted({path.parent for path in there})]:
            files.sync(path)

    def prune(self, named: Collection[str]) -> None:
        """Rows lie beside dumps, in files right below `dumps`; folders left empty go too."""
        folder = self.root / "dumps"
        rows = set(folder.glob("*.parquet"))
        for path in sorted(folder.rglob("*"), reverse=True):  # a folder comes after what it holds
            if path.is_dir():
                if not any(path.iterdir()):
                    path.rmdir()
            elif path not in rows and path.relative_to(self.root).as_posix() not in named:
                path.unlink()
