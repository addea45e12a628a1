"""A stage's store on an object store: what counts is what one manifest names.

PREFIX/lease.json            who works here, and the epoch
PREFIX/manifest.json         epoch, driver, and each table's files; replaced by conditional PUTs alone
PREFIX/rows/TABLE/part-E-N.parquet, mixed-E-N.parquet, E-N.parquet    parts, parts made of others, and compacted files
                             of epoch E, each name written once
PREFIX/dumps/...             dump files, each with a small .print beside it: BLAKE3 and the ETag that it belongs to

There is no rename here. A part of the manifest's own epoch counts as soon as its PUT is complete, anything else only
where the manifest names it. A driver that takes the store over raises the epoch in one PUT that also names the parts
it found: what a former, stalled driver writes later counts no more, and its next manifest is refused.
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

from store import files
from store.errors import StoreBusy
from store.lease import SECONDS, Lease
from store.lock import Lock
from store.manifests import File, address
from store.objects import PRINT, Found, Remote
from store.places import Entry, Folder, Folders, Place

logger = logging.getLogger(__name__)
T = TypeVar("T")
PART = re.compile(r"part-(\d{6})-(\d{8})\.parquet")  # counts before a manifest names it, the others do not
COMPACTED = re.compile(r"\d{6}-\d{8}\.parquet")
THREADS = 16  # requests under way where many files are read; each is a file of at most parts.ROWS_PER_FILE rows


class Shelf(Place):
    """One stage's store below an object store's prefix."""

    def __init__(self, at: Remote, stage: str, *, lease: float = SECONDS) -> None:
        self.at, self.stage, self.dumps, self.uri = at, stage, at, str(at)
        self.lease = Lease(at, stage, seconds=lease)
        self.tables: dict[str, list[Entry]] = {}
        self._manifest = at / "manifest.json"
        self._etag: str | None = None
        self._next = 0  # number of the next file of this epoch
        self._doubtful = False  # the file of that number may exist, as its writing failed

    def acquire(self) -> None:
        """By lease. PlaceError where there is no such bucket, no credentials or no answer."""
        self.at.ready()
        self.lease.acquire()

    def release(self) -> None:
        """The lease ends; what was written stays."""
        self.lease.release()

    def check(self) -> None:
        """As the last heartbeat knows."""
        self.lease.check()

    def open(self) -> None:
        """Take over what counts under a new epoch, then delete what does not: late parts, cut-off replacements."""
        former, self._etag = manifest(self.at)
        self.lease.epoch = max(self.lease.epoch, former["epoch"] + 1)
        found = list((self.at / "rows").list())
        self.tables = counted(self.at, former, found)
        self._next = 0
        self.commit()
        named = {(self.at / "rows" / table / one.name).key for table, held in self.tables.items() for one in held}
        self.at.delete(one.key for one in found if one.key not in named)
        if n := self.at.abort_uploads():
            logger.info("%s: ended %d uploads that nobody completed", self.stage, n)

    def folder(self, name: str, *, companion: bool = False) -> ShelfFolder:
        """The files of a table."""
        return ShelfFolder(self, name)

    def entries(self, name: str, *, companion: bool = False) -> list[Entry]:
        """As the manifest has them."""
        return self.tables.get(name, [])

    def commit(self) -> None:
        """Let what `tables` names count and nothing else of any epoch. StoreBusy where another driver took over."""
        self.lease.check()
        since = self._next + self._doubtful
        facts = {"epoch": self.lease.epoch, "driver": self.lease.token, "since": since, "tables": self.tables}
        body = json.dumps(facts, sort_keys=True).encode()
        etag = self._manifest.swap(body, self._etag)
        if etag is None:  # perhaps by this driver, in a commit whose answers were lost
            held, now = manifest(self.at)
            etag = self._manifest.swap(body, now) if held.get("driver") == self.lease.token else None
        if etag is None:
            raise StoreBusy(f"{self.stage}: another driver has taken over {self.at}; what this one wrote since is lost")
        self._etag, self._next, self._doubtful = etag, since, False

    def write(self, table: str, rows: pa.Table, kind: Literal["part-", "mixed-", ""]) -> Entry:
        """Write one file under a name of its own; all but parts are the caller's to let them count."""
        if self._doubtful:  # the caller writes those rows again, under another number where a table comes between
            self.commit()
        self.lease.check()
        name = f"{kind}{self.lease.epoch:06d}-{self._next:08d}.parquet"
        body = files.parquet_bytes(rows)
        self._doubtful = True
        (self.at / "rows" / table / name).put(body)
        self._next, self._doubtful = self._next + 1, False
        return Entry(name, len(body), len(rows), blake3(body).hexdigest())

    def fault(self, path: str, size: int, fingerprint: str) -> str:
        """By size, and by the BLAKE3 that was written for the ETag; its bytes are read only where that is unknown."""
        at = self.at / path
        try:
            return "" if at.look().size == size and at.fingerprint() == fingerprint else "damaged"
        except FileNotFoundError:
            return "gone"

    def sync(self, paths: Sequence[str]) -> None:
        """An object that is there is durable."""

    def prune(self, named: Collection[str]) -> None:
        """What no row names, and what belongs to no dump."""
        self.lease.check()
        keep = {key for path in named for key in ((self.at / path).key, (self.at / path).beside(PRINT).key)}
        self.at.delete([one.key for one in (self.at / "dumps").list() if one.key not in keep])


class ShelfFolder(Folder):
    """The files of one table of a `Shelf`; its driver alone looks at them, from memory."""

    def __init__(self, shelf: Shelf, name: str) -> None:
        self.name = name
        self._shelf = shelf

    def files(self) -> list[File]:
        """In the order that they were written."""
        return [self._shelf.at / "rows" / self.name / one.name for one in self._held]

    def recover(self) -> None:
        """`Shelf.open` did it for all tables."""

    def append(self, table: pa.Table) -> None:
        """One PUT, after which the rows count."""
        entry = self._shelf.write(self.name, table, "part-")
        self._shelf.tables[self.name] = [*self._held, entry]

    def newest(self) -> Iterator[tuple[File, int]]:
        """From memory, back to the last compacted file."""
        parts = itertools.takewhile(lambda one: not COMPACTED.fullmatch(one.name), reversed(self._held))
        return ((self._shelf.at / "rows" / self.name / one.name, one.bytes) for one in parts)

    def join(self, parts: Sequence[File], table: pa.Table) -> None:
        """A new file, the manifest, then the old ones go."""
        assert [file.name for file in parts] == [one.name for one in self._held[-len(parts) :]]
        self._commit([*self._held[: -len(parts)], self._shelf.write(self.name, table, "mixed-")])

    def rewrite(self, file: File, table: pa.Table | None) -> None:
        """A new file, the manifest, then the old one goes."""
        entry = [] if table is None else [self._shelf.write(self.name, table, "mixed-")]
        place = [one.name for one in self._held].index(file.name)
        self._commit([*self._held[:place], *entry, *self._held[place + 1 :]])

    def replace(self, tables: Iterable[pa.Table]) -> None:
        """New files, the manifest, then the old ones go."""
        self._commit([self._shelf.write(self.name, table, "") for table in tables])

    def is_compacted(self, n: int) -> bool:
        """By their names."""
        return len(self._held) == n and all(COMPACTED.fullmatch(one.name) for one in self._held)

    def set_aside(self, file: File, target: Path) -> None:
        """Fetch what is left of it, then let it count no more."""
        assert isinstance(file, Remote)
        try:
            target.write_bytes(file.read()[0])
        except FileNotFoundError:
            target.write_bytes(b"")
        self._commit([one for one in self._held if one.name != file.name])

    def each(self, do: Callable[[File], T]) -> list[T]:
        """Several at once, for each waits for the network."""
        with ThreadPoolExecutor(THREADS, "rows") as pool:
            return list(pool.map(do, self.files()))

    @property
    def _held(self) -> list[Entry]:
        return self._shelf.tables.get(self.name, [])

    def _commit(self, held: list[Entry]) -> None:
        before = {file.key for file in self.files() if isinstance(file, Remote)}
        self._shelf.tables[self.name] = held
        self._shelf.commit()
        self._shelf.at.delete(before - {file.key for file in self.files() if isinstance(file, Remote)})


def place(uri: str, stage: str, *, lease: float = SECONDS) -> Place:
    """Where a stage's store lies below s3://BUCKET/PREFIX or file:///FOLDER. ValueError of any other."""
    at = address(uri)
    if isinstance(at, Remote):
        return Shelf(at / stage, stage, lease=lease)
    lock, held = Lock(at / stage / ".status" / f"{stage}.lock"), Lease(at / stage, stage, seconds=lease)
    return Folders(at / stage, at / "timings" / stage, lock, uri=(at / stage).as_uri(), lease=held)


def manifest(at: Remote) -> tuple[dict[str, Any], str | None]:
    """epoch, since and tables of a stage's store, and the ETag; epoch 0 where there is none yet."""
    try:
        body, etag = (at / "manifest.json").read()
    except FileNotFoundError:
        return {"epoch": 0, "since": 0, "tables": {}}, None
    return json.loads(body), etag


def counted(at: Remote, written: dict[str, Any], found: Iterable[Found]) -> dict[str, list[Entry]]:
    """Each table's files that count: those that a manifest names, and parts of its epoch that came after it."""
    tables = {name: [Entry(*one) for one in held] for name, held in written["tables"].items()}
    for one in found:
        table, name = Remote(at.bucket, one.key).parts[-2:]
        if match := PART.fullmatch(name):
            epoch, number = map(int, match.groups())
            if epoch == written["epoch"] and number >= written["since"]:
                tables.setdefault(table, []).append(Entry(name, one.size, None, ""))
    return tables
