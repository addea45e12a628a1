"""Storage of one table as Parquet: parts while a stage runs, few sorted files at its end.

No row is stored twice.
"""

from __future__ import annotations

import errno
import itertools
import logging
import math
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tsfmscope.store import files
from tsfmscope.store.errors import DamagedFile, StoreFull
from tsfmscope.store.key_set import WIDTH, KeySet, as_bytes, ascending, unique
from tsfmscope.store.table_folder import TableFolder

logger = logging.getLogger(__name__)
# Approximate number of rows of a compacted file.
ROWS_PER_FILE = 65_536
# Bytes before compression; tables up to this size are sorted in one pass.
BYTES_AT_ONCE = 64 * 2**20
# If there are more than MANY consecutive parts of less than SMALL bytes, they are merged into one.
# Otherwise a week of writes would leave 100,000 files.
MANY = 64
SMALL = 2**20


class TableParts:
    """Files of one table.

    key: column that contains the key of the row's job. latest: whether `compact` keeps only the last appended
    row of each key.
    """

    def __init__(self, folder: Path, schema: pa.Schema, *, key: str = "job_key", latest: bool = False) -> None:
        self.folder = folder
        self._storage = TableFolder(folder)
        self.schema = schema
        self.key = key
        self.latest = latest
        self._merges = True

    def files(self) -> list[Path]:
        """Return the compacted files, then the parts in the order in which they were written."""
        return self._storage.files()

    def recover(self, damaged: Path) -> list[Path]:
        """Finish an interrupted replacement, delete temporary files, and move damaged files to `damaged`.

        Returns the new paths of the damaged files. The driver calls this before any other method, with the
        store's lock held. Every byte of every file is read to compare its checksum.
        """
        self._storage.recover()
        return self._quarantine(damaged)

    def append(self, table: pa.Table) -> None:
        """Store rows as one atomic part."""
        self._storage.append(table)

    def merge_small(self) -> None:
        """Merge the newest small parts into one if there are more than MANY.

        This is separate from `append`, so that the caller can record rows as stored before a merge can fail.
        """
        if not self._merges:
            return
        small = [*itertools.takewhile(lambda part: part.stat().st_size < SMALL, self._storage.newest())][::-1]
        if len(small) <= MANY:
            return
        try:
            table = pa.concat_tables(conform(files.read_parquet(file), self.schema) for file in small)
        except (DamagedFile, pa.ArrowInvalid, OSError) as error:
            # A part is damaged; the end of the run reports it.
            self._leave(error)
            return
        try:
            self._storage.join(small, table)
        except StoreFull as error:
            self._leave(error)

    def keys(self) -> np.ndarray:
        """Return the key of every row, dtype S64, file after file."""
        all_keys = np.empty(sum(files.metadata(file).num_rows for file in self.files()), f"S{WIDTH}")
        start = 0
        for file in self.files():
            keys = as_bytes(files.read_parquet(file, columns=[self.key])[self.key])
            all_keys[start : start + len(keys)] = keys
            start += len(keys)
        return all_keys

    def read(self) -> pa.Table:
        """Read all rows; only for tables that fit in memory."""
        tables = [conform(files.read_parquet(file), self.schema) for file in self.files()]
        return pa.concat_tables(tables or [self.schema.empty_table()])

    def drop(self, keys: Iterable[str]) -> None:
        """Delete the rows of these keys; each file that contains such rows is rewritten atomically."""
        dropped = KeySet(keys)
        for path in self.files():
            is_dropped = dropped.holds(files.read_parquet(path, columns=[self.key])[self.key])
            if is_dropped.all():
                self._storage.rewrite(path, None)
            elif is_dropped.any():
                self._storage.rewrite(path, files.read_parquet(path).filter(pa.array(~is_dropped)))

    def compact(self, keep: KeySet, damaged: Path) -> list[Path]:
        """Replace all files by files that are sorted by key and contain only rows with a key in `keep`.

        Rows of one key keep their order. The bytes depend on the rows alone. If files are damaged, no file is
        replaced: they are moved to the folder `damaged`, and their new paths are returned.
        """
        try:
            keys = self.keys()
            mask = keep.holds(keys)
            kept = keys if mask.all() else keys[mask]
            runs = list(_runs(unique(kept) if self.latest else ascending(kept)))
            is_compact = self._is_compact(keys, runs)
            del keys, kept
            if not is_compact:
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
        self._storage.replace(itertools.chain([self.schema.empty_table() if first is None else first], remaining))

    def _leave(self, error: Exception) -> None:
        self._merges = False
        logger.warning("parts of %s are not merged: %s", self.folder.name, error)

    def _is_compact(self, keys: np.ndarray, runs: list[tuple[bytes, bytes, int]]) -> bool:
        """Return whether the files are what `replace` would write: its names, sorted rows, current schema."""
        if not self._storage.is_compacted(max(len(runs), 1)):
            return False
        footers = [files.metadata(file) for file in self.files()]
        if [footer.num_rows for footer in footers] != ([n for _, _, n in runs] or [0]):
            return False
        return ascending(keys) is keys and all(
            footer.schema.to_arrow_schema().equals(self.schema) for footer in footers
        )

    def _sorted(self, runs: list[tuple[bytes, bytes, int]], keep: KeySet) -> Iterator[pa.Table]:
        """Yield the rows of each file to write, reading for as many files at once as BYTES_AT_ONCE allows."""
        passes = math.ceil(sum(map(_size, self.files())) / BYTES_AT_ONCE)
        for some in np.array_split(np.arange(len(runs)), min(max(passes, 1), len(runs) or 1)):
            yield from self._cut([runs[n] for n in some], keep)
            pa.default_memory_pool().release_unused()

    def _cut(self, runs: list[tuple[bytes, bytes, int]], keep: KeySet) -> Iterator[pa.Table]:
        """Yield the rows of consecutive files to write.

        Each is a copy, so that none keeps the others in memory.
        """
        if not runs:
            return
        low, high = runs[0][0].decode(), runs[-1][1].decode()
        inside = (pc.field(self.key) >= low) & (pc.field(self.key) <= high)

        def read(file: Path) -> pa.Table:
            table = conform(files.read_parquet(file, filters=inside), self.schema)
            return table.filter(pa.array(keep.holds(table[self.key])))

        table = pa.concat_tables(map(read, self.files()))
        keys = as_bytes(table[self.key])
        order = np.argsort(keys, kind="stable")
        if self.latest:
            order = order[np.append(keys[order][1:] != keys[order][:-1], True)]
        del keys
        for rows in np.split(order, np.cumsum([rows for _, _, rows in runs])[:-1]):
            yield table.take(pa.array(rows))

    def _quarantine(self, damaged: Path) -> list[Path]:
        """Move damaged files out of the store for inspection; their jobs are missing from then on."""
        moved = []
        for file in self.files():
            if not (fault := self._fault(file)):
                continue
            damaged.mkdir(parents=True, exist_ok=True)
            target, n = damaged / f"{self.folder.name}-{file.stem}.damaged", 1
            while target.exists():
                target, n = damaged / f"{self.folder.name}-{file.stem}-{n}.damaged", n + 1
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


def _runs(keys: np.ndarray) -> Iterator[tuple[bytes, bytes, int]]:
    """Split sorted keys into files and yield first key, last key and number of rows of each.

    Rows of one job stay in one file, so a file may have more than ROWS_PER_FILE rows.
    """
    start = 0
    while start < len(keys):
        last = keys[min(start + ROWS_PER_FILE, len(keys)) - 1]
        stop = int(np.searchsorted(keys, last, side="right"))
        yield keys[start], last, stop - start
        start = stop


def _size(file: Path) -> int:
    """Return the size of a file's columns in bytes before compression."""
    metadata = files.metadata(file)
    return sum(metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups))
