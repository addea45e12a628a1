"""One table as Parquet: parts while a stage runs, few sorted files when it ends, never a row twice."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store import files
from store.errors import StoreFull
from store.keys import WIDTH, Keys, as_bytes, ascending, unique
from store.local import LocalFolder
from store.manifests import File
from store.places import Folder

logger = logging.getLogger(__name__)
ROWS_PER_FILE = 65_536  # rows sorted in memory at once, and about what one compacted file holds
BYTES_AT_ONCE = 64 * 2**20  # before compression; tables up to here are sorted in one go
MANY = 64  # more parts of less than SMALL bytes than these become one: a week of flushes leaves no 100,000 files
SMALL = 2**20


class Parts:
    """The files of one table.

    folder: where they lie; a path stands for a `LocalFolder`. key: the column that says which job a row belongs to.
    latest: a key has one row, the last that was appended.
    """

    def __init__(self, folder: Path | Folder, schema: pa.Schema, *, key: str = "job_key", latest: bool = False) -> None:
        self._place = folder if isinstance(folder, Folder) else LocalFolder(folder)
        self.schema = schema
        self.key = key
        self.latest = latest
        self._tidies = True

    @property
    def folder(self) -> Path:
        """The folder of a table that lies in one."""
        assert isinstance(self._place, LocalFolder)
        return self._place.path

    def files(self) -> list[File]:
        """Compacted files, then parts in the order that they were written."""
        return self._place.files()

    def recover(self, damaged: Path, *, whole: bool = False) -> list[Path]:
        """Carry an interrupted replacement through, delete temporary files, set unreadable files aside and name them.

        Runs before anything else, with the store's lock held. `whole` reads every page, else the footers serve.
        """
        self._place.recover()
        return self._set_aside(damaged, whole=whole)

    def append(self, table: pa.Table) -> None:
        """Store rows as one atomic part."""
        self._place.append(table)

    def tidy(self) -> None:
        """Make one part of many small ones.

        No part of `append`: rows whose storing did not fail are known as stored before something else can.
        """
        if not self._tidies:
            return
        small = [file for file, _ in itertools.takewhile(lambda one: one[1] < SMALL, self._place.newest())][::-1]
        if len(small) <= MANY:
            return
        try:
            table = pa.concat_tables(conform(files.read_parquet(file), self.schema) for file in small)
        except (pa.ArrowInvalid, OSError) as error:  # one is damaged, which the end of the run will say
            self._leave(error)
            return
        try:
            self._place.join(small, table)
        except StoreFull as error:
            self._leave(error)

    def keys(self) -> np.ndarray:
        """Every row's key, S64, file after file."""
        counts = [one.num_rows for one in self._place.each(files.metadata)]
        starts = dict(zip(self.files(), np.cumsum([0, *counts]).tolist(), strict=False))
        found = np.empty(sum(counts), f"S{WIDTH}")

        def fill(file: File) -> None:
            keys = as_bytes(files.read_parquet(file, columns=[self.key])[self.key])
            found[starts[file] : starts[file] + len(keys)] = keys

        self._place.each(fill)
        return found

    def read(self) -> pa.Table:
        """All rows; for tables that fit memory."""
        found = self._place.each(lambda file: conform(files.read_parquet(file), self.schema))
        return pa.concat_tables(found or [self.schema.empty_table()])

    def drop(self, keys: Iterable[str]) -> None:
        """Rewrite, atomically, each file that holds rows of these keys."""
        gone = Keys(keys)
        for path in self.files():
            held = gone.holds(files.read_parquet(path, columns=[self.key])[self.key])
            if held.all():
                self._place.rewrite(path, None)
            elif held.any():
                self._place.rewrite(path, files.read_parquet(path).filter(pa.array(~held)))

    def compact(self, keep: Keys, damaged: Path) -> list[Path]:
        """Replace all files by ones sorted by key that hold the rows of `keep` only; rows of a key keep their order.

        The bytes follow from the rows alone. Returns damaged files, set aside; then nothing was replaced.
        """
        try:
            keys = self.keys()
            mask = keep.holds(keys)
            kept = keys if mask.all() else keys[mask]
            runs = list(_runs(unique(kept) if self.latest else ascending(kept)))
            done = self._is_compact(keys, runs)
            del keys, kept
            if not done:
                self.replace(self._sorted(runs, keep))
        except (pa.ArrowInvalid, OSError):
            if bad := self._set_aside(damaged, whole=True):
                return bad
            raise
        return []

    def replace(self, tables: Iterable[pa.Table]) -> None:
        """Replace all files by one file a table, 00000.parquet and so on; no table leaves an empty file."""
        given = iter(tables)
        first = next(given, None)
        self._place.replace(itertools.chain([self.schema.empty_table() if first is None else first], given))

    def _leave(self, error: Exception) -> None:
        self._tidies = False
        logger.warning("parts of %s are left as they are: %s", self._place.name, error)

    def _is_compact(self, keys: np.ndarray, runs: list[tuple[bytes, bytes, int]]) -> bool:
        """Whether the files are what `replace` would write: its names, its rows in order, today's schema."""
        if not self._place.is_compacted(max(len(runs), 1)):
            return False
        found = self._place.each(files.metadata)
        if [one.num_rows for one in found] != ([n for _, _, n in runs] or [0]):
            return False
        return ascending(keys) is keys and all(one.schema.to_arrow_schema().equals(self.schema) for one in found)

    def _sorted(self, runs: list[tuple[bytes, bytes, int]], keep: Keys) -> Iterator[pa.Table]:
        """The rows of each file to write, gathered for as many files at once as BYTES_AT_ONCE lets."""
        passes = math.ceil(sum(self._place.each(_size)) / BYTES_AT_ONCE)
        for some in np.array_split(np.arange(len(runs)), min(max(passes, 1), len(runs) or 1)):
            yield from self._cut([runs[n] for n in some], keep)
            pa.default_memory_pool().release_unused()

    def _cut(self, runs: list[tuple[bytes, bytes, int]], keep: Keys) -> Iterator[pa.Table]:
        """The rows of neighbouring files to write; each is a copy, so that none keeps the others in memory."""
        if not runs:
            return
        low, high = runs[0][0].decode(), runs[-1][1].decode()
        inside = (pc.field(self.key) >= low) & (pc.field(self.key) <= high)

        def read(file: File) -> pa.Table:
            table = conform(files.read_parquet(file, filters=inside), self.schema)
            return table.filter(pa.array(keep.holds(table[self.key])))

        table = pa.concat_tables(self._place.each(read))
        keys = as_bytes(table[self.key])
        order = np.argsort(keys, kind="stable")
        if self.latest:
            order = order[np.append(keys[order][1:] != keys[order][:-1], True)]
        del keys
        for rows in np.split(order, np.cumsum([rows for _, _, rows in runs])[:-1]):
            yield table.take(pa.array(rows))

    def _set_aside(self, damaged: Path, *, whole: bool = False) -> list[Path]:
        """Move unreadable files out of the store, to be looked at; their jobs are missing from then on."""
        readable = self._place.each(lambda file: self._readable(file, whole=whole))
        bad = [file for file, can in zip(self.files(), readable, strict=True) if not can]
        moved = []
        for file in bad:
            damaged.mkdir(parents=True, exist_ok=True)
            target, n = damaged / f"{self._place.name}-{file.stem}.damaged", 1
            while target.exists():
                target, n = damaged / f"{self._place.name}-{file.stem}-{n}.damaged", n + 1
            self._place.set_aside(file, target)
            logger.warning("%s cannot be read; set aside as %s, its jobs run again", file, target)
            moved.append(target)
        return moved

    def _readable(self, file: File, *, whole: bool = False) -> bool:
        """Whether a file is Parquet with what today's schema needs; `whole` reads every page."""
        try:
            names = set(files.metadata(file).schema.to_arrow_schema().names)
            if whole:
                conform(files.read_parquet(file), self.schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError):
            return False
        return all(field.nullable or field.name in names for field in self.schema)


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table in today's schema: columns that older rows lack are null."""
    columns = [
        table[f.name].cast(f.type) if f.name in table.column_names else pa.nulls(len(table), f.type) for f in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _runs(keys: np.ndarray) -> Iterator[tuple[bytes, bytes, int]]:
    """First key, last key and rows of each file, of sorted keys; a job's rows stay in one file."""
    start = 0
    while start < len(keys):
        last = keys[min(start + ROWS_PER_FILE, len(keys)) - 1]
        stop = int(np.searchsorted(keys, last, side="right"))
        yield keys[start], last, stop - start
        start = stop


def _size(file: File) -> int:
    """Bytes of a file's columns before compression."""
    metadata = files.metadata(file)
    return sum(metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups))
