"""Storage of one table as Parquet: parts while a stage runs, few sorted files at its end.

No row is stored twice. The folder's file system must support renaming.

All files are replaced together through the subfolder `.next`. The new files are written there, and then a
file named `commit`. Only then are the old files deleted and the new ones moved to their place. A process that
is killed at any moment leaves either the old rows, or some of the new files and a `.next` whose installation
`finish_replacements` completes.
"""

from __future__ import annotations

import errno
import itertools
import logging
import math
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store import files
from store.errors import DamagedFile, StoreFull
from tsfmscope.files import sync

logger = logging.getLogger(__name__)
# Approximate number of rows of a compacted file.
ROWS_PER_FILE = 65_536
# Bytes before compression; tables up to this size are sorted in one pass.
BYTES_AT_ONCE = 64 * 2**20
# If there are more than MANY consecutive parts of less than SMALL bytes, they are merged into one.
# Otherwise a week of writes would leave 100,000 files.
MANY = 64
SMALL = 2**20


class TableFolder:
    """Files of one table: part-*.parquet, or 00000.parquet and so on once compacted.

    Whichever process is killed, a reader finds each row at most once; during a replacement, rows may be
    absent for a moment.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._next = path / ".next"

    def files(self) -> list[Path]:
        """Return the compacted files, then the parts in the order in which they were written."""
        return parquet_files(self.path)

    def finish_replacements(self) -> None:
        """Finish committed replacements; delete uncommitted ones and temporary files."""
        self._install_merges()
        if (self._next / "commit").exists():
            self._install()
        self._discard_next()
        files.remove_temporary(self.path)

    def append(self, table: pa.Table) -> None:
        """Store rows as one atomic part, with the next number."""
        # A merge that was not installed would later delete a new part that has one of its numbers.
        self._install_merges()
        parts = self._parts()
        number = _number(parts[-1]) + 1 if parts else 0
        files.write_parquet(self.path / f"part-{number:08d}.parquet", table)

    def join(self, parts: Sequence[Path], table: pa.Table) -> None:
        """Atomically replace the newest parts, given in the order in which they were written, by one part.

        The merged part is written under a hidden name and gets the name of the last part once all are deleted.
        """
        first, last = _number(parts[0]), _number(parts[-1])
        files.write_parquet(self.path / f".merged-{first:08d}-{last:08d}.parquet", table)
        self._install_merges()

    def replace(self, tables: Iterable[pa.Table]) -> None:
        """Atomically replace all files by one compacted file per table, through the subfolder `.next`.

        At least one table is needed.
        """
        self._discard_next()
        n = -1
        for n, table in enumerate(tables):
            files.write_parquet(self._next / f"{n:05d}.parquet", table)
        files.write_text(self._next / "commit", str(n + 1))
        self._install()

    def _parts(self) -> list[Path]:
        return [path for path in self.files() if path.stem.startswith("part-")]

    def _install_merges(self) -> None:
        """Replace the parts of each merged file by that file; this can be repeated after a kill."""
        for merged in self.path.glob(".merged-*.parquet"):
            first, last = (int(number) for number in merged.stem.split("-")[1:])
            for path in self._parts():
                if first <= _number(path) <= last:
                    path.unlink()
            os.replace(merged, self.path / f"part-{last:08d}.parquet")
            sync(self.path)

    def _install(self) -> None:
        """Replace all files by the files of `.next`; this can be repeated after a kill."""
        sync(self.path)
        fresh = {f"{n:05d}.parquet" for n in range(int((self._next / "commit").read_text()))}
        for path in self.files():
            if path.name not in fresh or (self._next / path.name).exists():
                path.unlink()
        for name in sorted(fresh):
            if (self._next / name).exists():
                os.replace(self._next / name, self.path / name)
        sync(self.path)
        (self._next / "commit").unlink()
        self._next.rmdir()

    def _discard_next(self) -> None:
        if self._next.exists():
            for path in self._next.iterdir():
                path.unlink()
            self._next.rmdir()


def parquet_files(folder: Path) -> list[Path]:
    """Return the Parquet files of a table in a folder, sorted by name, without temporary files."""
    return sorted(folder.glob("[!.]*.parquet"))


def _number(part: Path) -> int:
    return int(part.stem.removeprefix("part-"))


class Run(NamedTuple):
    """Rows of consecutive keys, which become one file: first key, last key, number of rows."""

    first: str
    last: str
    rows: int


class TableParts(TableFolder):
    """Files of one table.

    key: column that contains the key of the row's job. latest: whether `compact` keeps only the last appended
    row of each key.
    """

    def __init__(self, folder: Path, schema: pa.Schema, *, key: str = "job_key", latest: bool = False) -> None:
        super().__init__(folder)
        self.schema = schema
        self.key = key
        self.latest = latest
        self._merges = True

    def recover(self, damaged: Path) -> list[Path]:
        """Finish an interrupted replacement, delete temporary files, and move damaged files to `damaged`.

        Returns the new paths of the damaged files. The driver calls this before any other method, with the
        store's lock held. Every byte of every file is read to compare its checksum.
        """
        self.finish_replacements()
        return self._quarantine(damaged)

    def merge_small(self) -> None:
        """Merge the newest small parts into one if there are more than MANY.

        This is separate from `append`, so that the caller can record rows as stored before a merge can fail.
        """
        if not self._merges:
            return
        small = [*itertools.takewhile(lambda part: part.stat().st_size < SMALL, reversed(self._parts()))][::-1]
        if len(small) <= MANY:
            return
        try:
            table = pa.concat_tables(conform(files.read_parquet(file), self.schema) for file in small)
        except (DamagedFile, pa.ArrowInvalid, OSError) as error:
            # A part is damaged; the end of the run reports it.
            self._leave(error)
            return
        try:
            self.join(small, table)
        except StoreFull as error:
            self._leave(error)

    def keys(self) -> set[str]:
        """Return the keys of all rows, interned like those of planned jobs."""
        keys: set[str] = set()
        for file in self.files():
            keys.update(map(sys.intern, self._read_keys(file).to_pylist()))
        return keys

    def read(self) -> pa.Table:
        """Read all rows; only for tables that fit in memory."""
        tables = [conform(files.read_parquet(file), self.schema) for file in self.files()]
        return pa.concat_tables(tables or [self.schema.empty_table()])

    def drop(self, keys: Iterable[str]) -> None:
        """Delete the rows of these keys; each file that contains such rows is rewritten atomically."""
        dropped = set(keys)
        for path in self.files():
            is_dropped = _is_in(self._read_keys(path), dropped)
            if pc.all(is_dropped, min_count=0).as_py():
                path.unlink()
            elif pc.any(is_dropped).as_py():
                files.write_parquet(path, files.read_parquet(path).filter(pc.invert(is_dropped)))

    def compact(self, keep: AbstractSet[str], damaged: Path) -> list[Path]:
        """Replace all files by files that are sorted by key and contain only rows with a key in `keep`.

        Rows of one key keep their order. The bytes depend on the rows alone. If files are damaged, no file is
        replaced: they are moved to the folder `damaged`, and their new paths are returned.
        """
        try:
            runs, is_sorted = self._plan(keep)
            pa.default_memory_pool().release_unused()
            if not (is_sorted and self._is_compact(runs)):
                self.replace(self._sorted(runs, keep))
        except (DamagedFile, pa.ArrowInvalid, OSError):
            if bad := self._quarantine(damaged):
                return bad
            raise
        return []

    def replace(self, tables: Iterable[pa.Table]) -> None:
        """Replace all files by one file per table, 00000.parquet and so on.

        No tables give one file without rows.
        """
        remaining = iter(tables)
        first = next(remaining, None)
        super().replace(itertools.chain([self.schema.empty_table() if first is None else first], remaining))

    def _leave(self, error: Exception) -> None:
        self._merges = False
        logger.warning("parts of %s are not merged: %s", self.path.name, error)

    def _read_keys(self, file: Path) -> pa.ChunkedArray:
        return files.read_parquet(file, columns=[self.key])[self.key]

    def _plan(self, keep: AbstractSet[str]) -> tuple[list[Run], bool]:
        """Return the files to write, and whether the stored rows are exactly these, in this order."""
        columns = [self._read_keys(file) for file in self.files()]
        keys = pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string())
        is_kept = _is_in(keys, keep)
        is_sorted = bool(pc.all(is_kept, min_count=0).as_py()) and _is_ascending(keys, strictly=self.latest)
        if not is_sorted:
            keys = keys.filter(is_kept)
            keys = keys.take(pc.sort_indices(keys))
            keys = keys.filter(_is_last(keys)) if self.latest else keys
        return list(_runs(keys)), is_sorted

    def _is_compact(self, runs: list[Run]) -> bool:
        """Return whether the files have the names, the numbers of rows and the schema that `replace` gives them."""
        if [path.name for path in self.files()] != [f"{number:05d}.parquet" for number in range(max(len(runs), 1))]:
            return False
        footers = [files.metadata(file) for file in self.files()]
        if [footer.num_rows for footer in footers] != ([run.rows for run in runs] or [0]):
            return False
        return all(footer.schema.to_arrow_schema().equals(self.schema) for footer in footers)

    def _sorted(self, runs: list[Run], keep: AbstractSet[str]) -> Iterator[pa.Table]:
        """Yield the rows of each file to write, reading for as many files at once as BYTES_AT_ONCE allows."""
        passes = math.ceil(sum(map(_size, self.files())) / BYTES_AT_ONCE)
        for some in np.array_split(np.arange(len(runs)), min(max(passes, 1), len(runs) or 1)):
            yield from self._cut([runs[n] for n in some], keep)
            pa.default_memory_pool().release_unused()

    def _cut(self, runs: list[Run], keep: AbstractSet[str]) -> Iterator[pa.Table]:
        """Yield the rows of consecutive files to write.

        Each is a copy, so that none keeps the others in memory.
        """
        if not runs:
            return
        inside = (pc.field(self.key) >= runs[0].first) & (pc.field(self.key) <= runs[-1].last)

        def read(file: Path) -> pa.Table:
            table = conform(files.read_parquet(file, filters=inside), self.schema)
            return table.filter(_is_in(table[self.key], keep))

        table = pa.concat_tables(map(read, self.files()))
        # A stable sort, so that rows of one key keep their order.
        order = pc.sort_indices(table, sort_keys=[(self.key, "ascending")])
        if self.latest:
            order = order.filter(_is_last(table[self.key].take(order)))
        start = 0
        for run in runs:
            yield table.take(order.slice(start, run.rows))
            start += run.rows

    def _quarantine(self, damaged: Path) -> list[Path]:
        """Move damaged files out of the store for inspection; their jobs are missing from then on."""
        moved = []
        for file in self.files():
            if not (fault := self._fault(file)):
                continue
            damaged.mkdir(parents=True, exist_ok=True)
            target, n = damaged / f"{self.path.name}-{file.stem}.damaged", 1
            while target.exists():
                target, n = damaged / f"{self.path.name}-{file.stem}-{n}.damaged", n + 1
            shutil.move(file, target)
            logger.warning("%s %s; quarantined as %s, its jobs run again", file, fault, target)
            moved.append(target)
        return moved

    def _fault(self, file: Path) -> str:
        """Return the fault of a file, damage or missing required columns, or an empty text."""
        try:
            names = set(files.metadata(file).schema.to_arrow_schema().names)
        except DamagedFile:
            return "is damaged"
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return "cannot be read"
        except OSError as error:
            # Any other error may be a file server that does not respond at the moment.
            if error.errno not in (None, errno.EIO):
                raise
            return "cannot be read"
        missing = [field.name for field in self.schema if not field.nullable and field.name not in names]
        return f"lacks columns {missing}" if missing else ""


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert a table to the current schema; columns that older rows lack become null."""
    columns = [
        table[f.name].cast(f.type) if f.name in table.column_names else pa.nulls(len(table), f.type) for f in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _is_in(column: pa.ChunkedArray, keys: AbstractSet[str]) -> pa.ChunkedArray:
    """Return for each key of a column whether the set contains it."""
    chunks = [pa.array([key in keys for key in chunk.to_pylist()], pa.bool_()) for chunk in column.chunks]
    return pa.chunked_array(chunks, pa.bool_())


def _is_ascending(keys: pa.ChunkedArray, *, strictly: bool) -> bool:
    """Return whether the keys are sorted; strictly: and no key occurs twice."""
    compare = pc.less if strictly else pc.less_equal
    return bool(pc.all(compare(keys[:-1], keys[1:]), min_count=0).as_py())


def _is_last(keys: pa.ChunkedArray) -> pa.Array:
    """Return for each of the sorted keys whether it is the last of those that are equal."""
    return pa.array(np.append(pc.not_equal(keys[1:], keys[:-1]).to_numpy(), [True] * min(len(keys), 1)).astype(bool))


def _runs(keys: pa.ChunkedArray) -> Iterator[Run]:
    """Split sorted keys into files and yield first key, last key and number of rows of each.

    Rows of one job stay in one file, so a file may have more than ROWS_PER_FILE rows.
    """
    start = 0
    while start < len(keys):
        stop = min(start + ROWS_PER_FILE, len(keys))
        last = keys[stop - 1].as_py()
        while stop < len(keys) and keys[stop].as_py() == last:
            stop += 1
        yield Run(keys[start].as_py(), last, stop - start)
        start = stop


def _size(file: Path) -> int:
    """Return the size of a file's columns in bytes before compression."""
    metadata = files.metadata(file)
    return sum(metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups))
