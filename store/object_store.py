"""Storage of a stage in an object store; one manifest names the files that count.

PREFIX/lease.json            active driver and epoch
PREFIX/manifest.json         epoch, driver, each table's files, and the number (`since`) from which other
                             parts of the epoch count; replaced only by conditional PUTs
PREFIX/rows/TABLE/part-E-N.parquet, mixed-E-N.parquet, E-N.parquet
                             parts, merged or rewritten files, and compacted files of epoch E;
                             each name is written once
PREFIX/dumps/...             dump files, each with a small .checksum object, which contains its BLAKE3 and
                             the ETag for which this is valid

An object store has no rename. A later part of the manifest's own epoch counts as soon as its PUT is complete;
any other file counts only if the manifest names it. A driver that takes the store over raises the epoch in
one PUT, which also names the parts that it found. Files that a former, stalled driver writes later are
ignored, and its next manifest is refused.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, TypeVar

import pyarrow as pa
from blake3 import blake3

from tsfmscope.store import files
from tsfmscope.store.backend import Entry, FileSystemBackend, StorageBackend, TableFiles
from tsfmscope.store.errors import StoreBusy
from tsfmscope.store.lease import SECONDS, Lease
from tsfmscope.store.lock import Lock
from tsfmscope.store.manifests import File, address
from tsfmscope.store.objects import CHECKSUM, ObjectEntry, Remote

logger = logging.getLogger(__name__)
T = TypeVar("T")
# Only files of this name count before a manifest names them.
PART = re.compile(r"part-(\d{6})-(\d{8})\.parquet")
COMPACTED = re.compile(r"\d{6}-\d{8}\.parquet")
# Concurrent requests when many files are read; each file has at most about
# table_parts.ROWS_PER_FILE rows.
THREADS = 16


class ObjectStoreBackend(StorageBackend):
    """Storage of one stage below a prefix of an object store."""

    def __init__(self, at: Remote, stage: str, *, lease: float = SECONDS) -> None:
        self.at, self.stage, self.dumps, self.uri = at, stage, at, str(at)
        self.lease = Lease(at, stage, seconds=lease)
        self.tables: dict[str, list[Entry]] = {}
        self._manifest = at / "manifest.json"
        self._etag: str | None = None
        # Number of the next file of this epoch.
        self._next = 0
        # Whether the file with that number may exist because writing it failed.
        self._doubtful = False

    def acquire(self) -> None:
        """Take the lease. LocationError if there is no such bucket, no credentials or no response."""
        self.at.ready()
        self.lease.acquire()

    def release(self) -> None:
        """Release the lease; all written files stay."""
        self.lease.release()

    def check(self) -> None:
        """Raise StoreBusy if another driver has taken the store over, as in `Lease.check`."""
        self.lease.check()

    def open(self) -> None:
        """Commit the files that count under a new epoch, then delete all others.

        The others are late parts and files of interrupted replacements. Incomplete multipart uploads are
        aborted.
        """
        former, self._etag = manifest(self.at)
        self.lease.epoch = max(self.lease.epoch, former["epoch"] + 1)
        objects = list((self.at / "rows").list())
        self.tables = active_files(self.at, former, objects)
        self._next = 0
        self.commit()
        active_keys = {
            (self.at / "rows" / table / entry.name).key for table, entries in self.tables.items() for entry in entries
        }
        self.at.delete(entry.key for entry in objects if entry.key not in active_keys)
        if n := self.at.abort_uploads():
            logger.info("%s: aborted %d incomplete uploads", self.stage, n)

    def folder(self, name: str, *, companion: bool = False) -> ObjectStoreFolder:
        """Return the files of a table."""
        return ObjectStoreFolder(self, name)

    def entries(self, name: str, *, companion: bool = False) -> list[Entry]:
        """Return the files of a table, as in the manifest."""
        return self.tables.get(name, [])

    def commit(self) -> None:
        """Write a manifest, after which only the files in `tables` count.

        Raises StoreBusy if another driver took over.
        """
        self.lease.check()
        since = self._next + self._doubtful
        facts = {"epoch": self.lease.epoch, "driver": self.lease.token, "since": since, "tables": self.tables}
        body = json.dumps(facts, sort_keys=True).encode()
        etag = self._manifest.put_if_match(body, self._etag)
        if etag is None:
            # This driver may have written the other manifest itself, in a commit whose response was
            # lost.
            current, now = manifest(self.at)
            etag = self._manifest.put_if_match(body, now) if current.get("driver") == self.lease.token else None
        if etag is None:
            raise StoreBusy(f"{self.stage}: another driver has taken over {self.at}; later rows of this one are lost")
        self._etag, self._next, self._doubtful = etag, since, False

    def write(self, table: str, rows: pa.Table, kind: Literal["part-", "mixed-", ""]) -> Entry:
        """Write one file under a new name. Parts count at once; for other files, the caller must commit."""
        # The caller will write the rows of the doubtful file again, perhaps under another number.
        # The commit makes sure that the doubtful file does not count as well.
        if self._doubtful:
            self.commit()
        self.lease.check()
        name = f"{kind}{self.lease.epoch:06d}-{self._next:08d}.parquet"
        body = files.parquet_bytes(rows)
        self._doubtful = True
        (self.at / "rows" / table / name).put(body)
        self._next, self._doubtful = self._next + 1, False
        return Entry(name, len(body), len(rows), blake3(body).hexdigest())

    def fault(self, path: str, size: int, fingerprint: str) -> str:
        """Compare size and BLAKE3. The bytes are read only if no BLAKE3 is stored for the current ETag."""
        at = self.at / path
        try:
            return "" if at.head().size == size and at.fingerprint() == fingerprint else "damaged"
        except FileNotFoundError:
            return "gone"

    def sync(self, paths: Sequence[str]) -> None:
        """Do nothing, because an object is durable once it exists."""

    def prune(self, paths_in_rows: Collection[str]) -> None:
        """Delete dumps that no row names, and .checksum objects without a dump."""
        self.lease.check()
        keep = {key for path in paths_in_rows for key in ((self.at / path).key, (self.at / path).sibling(CHECKSUM).key)}
        self.at.delete([entry.key for entry in (self.at / "dumps").list() if entry.key not in keep])


class ObjectStoreFolder(TableFiles):
    """Files of one table in an object store (`ObjectStoreBackend`).

    Only the driver uses this class. The list of files is in memory, in the backend.
    """

    def __init__(self, backend: ObjectStoreBackend, name: str) -> None:
        self.name = name
        self._backend = backend

    def files(self) -> list[File]:
        """Return the files in the order in which they were written."""
        return [self._backend.at / "rows" / self.name / entry.name for entry in self._entries]

    def recover(self) -> None:
        """Do nothing, because `ObjectStoreBackend.open` recovers all tables."""

    def append(self, table: pa.Table) -> None:
        """Store rows as one part; they count as soon as its PUT is complete."""
        entry = self._backend.write(self.name, table, "part-")
        self._backend.tables[self.name] = [*self._entries, entry]

    def newest(self) -> Iterator[tuple[File, int]]:
        """Return parts and their sizes in bytes, newest first, back to the last compacted file."""
        parts = itertools.takewhile(lambda entry: not COMPACTED.fullmatch(entry.name), reversed(self._entries))
        return ((self._backend.at / "rows" / self.name / entry.name, entry.bytes) for entry in parts)

    def join(self, parts: Sequence[File], table: pa.Table) -> None:
        """Write the merged file, commit the manifest, then delete the old parts."""
        assert [file.name for file in parts] == [other.name for other in self._entries[-len(parts) :]]
        self._commit([*self._entries[: -len(parts)], self._backend.write(self.name, table, "mixed-")])

    def rewrite(self, file: File, table: pa.Table | None) -> None:
        """Write the new file, commit the manifest, then delete the old file."""
        entry = [] if table is None else [self._backend.write(self.name, table, "mixed-")]
        index = [other.name for other in self._entries].index(file.name)
        self._commit([*self._entries[:index], *entry, *self._entries[index + 1 :]])

    def replace(self, tables: Iterable[pa.Table]) -> None:
        """Write the new files, commit the manifest, then delete the old files."""
        self._commit([self._backend.write(self.name, table, "") for table in tables])

    def is_compacted(self, n: int) -> bool:
        """Return whether there are exactly n files, all with names of compacted files."""
        return len(self._entries) == n and all(COMPACTED.fullmatch(entry.name) for entry in self._entries)

    def quarantine(self, file: File, target: Path) -> None:
        """Download what is left of the file to `target`, then remove it from the manifest and delete it."""
        assert isinstance(file, Remote)
        try:
            target.write_bytes(file.read()[0])
        except FileNotFoundError:
            target.write_bytes(b"")
        self._commit([entry for entry in self._entries if entry.name != file.name])

    def map_files(self, do: Callable[[File], T]) -> list[T]:
        """Call `do` with every file, in parallel because each call waits for the network."""
        with ThreadPoolExecutor(THREADS, "rows") as pool:
            return list(pool.map(do, self.files()))

    @property
    def _entries(self) -> list[Entry]:
        return self._backend.tables.get(self.name, [])

    def _commit(self, entries: list[Entry]) -> None:
        before = {file.key for file in self.files() if isinstance(file, Remote)}
        self._backend.tables[self.name] = entries
        self._backend.commit()
        self._backend.at.delete(before - {file.key for file in self.files() if isinstance(file, Remote)})


def backend_at(uri: str, stage: str, *, lease: float = SECONDS) -> StorageBackend:
    """Return the storage of a stage below s3://BUCKET/PREFIX or file:///FOLDER. ValueError for any other URI.

    lease: seconds without a heartbeat after which another driver may take the store over.
    """
    at = address(uri)
    if isinstance(at, Remote):
        return ObjectStoreBackend(at / stage, stage, lease=lease)
    root = at / stage
    lock = Lock(root / ".status" / f"{stage}.lock")
    shared = Lease(root, stage, seconds=lease)
    return FileSystemBackend(root, at / "timings" / stage, lock, uri=root.as_uri(), lease=shared)


def manifest(at: Remote) -> tuple[dict[str, Any], str | None]:
    """Return the manifest of a stage's storage (epoch, since, tables, driver) and its ETag.

    If there is no manifest yet, the epoch is 0 and the ETag is None.
    """
    try:
        body, etag = (at / "manifest.json").read()
    except FileNotFoundError:
        return {"epoch": 0, "since": 0, "tables": {}}, None
    return json.loads(body), etag


def active_files(at: Remote, former: dict[str, Any], objects: Iterable[ObjectEntry]) -> dict[str, list[Entry]]:
    """Return each table's files that count: files that the manifest names, and later parts of its epoch."""
    tables = {name: [Entry(*entry) for entry in entries] for name, entries in former["tables"].items()}
    for entry in objects:
        table, name = Remote(at.bucket, entry.key).parts[-2:]
        if match := PART.fullmatch(name):
            epoch, number = map(int, match.groups())
            if epoch == former["epoch"] and number >= former["since"]:
                tables.setdefault(table, []).append(Entry(name, entry.size, None, ""))
    return tables
