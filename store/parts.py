"""One table as a folder of Parquet: parts while a stage runs, few sorted files when it ends, never a row twice.

A folder's files are replaced as a whole through `.next`: the new files are written there, `commit` makes them count,
and only then do the old ones go and the new ones take their place. A kill at any moment leaves the old rows, or some
of the new ones and a `.next` that `recover` carries through.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from store import files
from store.keys import Keys, as_bytes, unique

logger = logging.getLogger(__name__)
ROWS_PER_FILE = 65_536  # rows sorted in memory at once, and about what one compacted file holds
BYTES_AT_ONCE = 512 * 2**20  # decoded; tables up to here are sorted in one go


class Parts:
    """The files of one table.

    key: the column that says which job a row belongs to. latest: a key has one row, the last that was appended.
    """

    def __init__(self, folder: Path, schema: pa.Schema, *, key: str = "job_key", latest: bool = False) -> None:
        self.folder = folder
        self.schema = schema
        self.key = key
        self.latest = latest
        self._next = folder / ".next"

    def files(self) -> list[Path]:
        """Compacted files, then parts in the order that they were written."""
        return sorted(self.folder.glob("[!.]*.parquet"))

    def recover(self, damaged: Path, *, whole: bool = False) -> list[Path]:
        """Carry an interrupted replacement through, delete temporary files, set unreadable files aside and name them.

        Runs before anything else, with the store's lock held. `whole` reads every page, else the footers serve.
        """
        if (self._next / "commit").exists():
            self._install()
        self._discard_next()
        files.remove_temporary(self.folder)
        return [self.set_aside(path, damaged) for path in self.files() if not self._readable(path, whole=whole)]

    def set_aside(self, path: Path, damaged: Path) -> Path:
        """Move a damaged file out of the out, to be looked at; its jobs are missing from then on."""
        damaged.mkdir(parents=True, exist_ok=True)
        target = damaged / f"{self.folder.name}-{path.stem}.damaged"
        n = 1
        while target.exists():
            target, n = damaged / f"{self.folder.name}-{path.stem}-{n}.damaged", n + 1
        os.replace(path, target)
        logger.warning("%s cannot be read; set aside as %s, its jobs run again", path, target)
        return target

    def append(self, table: pa.Table) -> None:
        """Store rows as one atomic part."""
        taken = [int(p.stem.removeprefix("part-")) for p in self.files() if p.stem.startswith("part-")]
        files.write_parquet(self.folder / f"part-{max(taken, default=-1) + 1:08d}.parquet", table)

    def keys(self) -> np.ndarray:
        """Every row's key, S64, file after file."""
        found = [as_bytes(files.read_parquet(path, columns=[self.key])[self.key]) for path in self.files()]
        return np.concatenate(found) if found else as_bytes([])

    def read(self) -> pa.Table:
        """All rows; for tables that fit memory."""
        return pa.concat_tables(
            [self._conform(files.read_parquet(p)) for p in self.files()] or [self.schema.empty_table()]
        )

    def drop(self, keys: Iterable[str]) -> None:
        """Rewrite, atomically, each file that holds rows of these keys."""
        gone = Keys(keys)
        for path in self.files():
            held = gone.holds(files.read_parquet(path, columns=[self.key])[self.key])
            if held.all():
                path.unlink()
            elif held.any():
                files.write_parquet(path, files.read_parquet(path).filter(pa.array(~held)))

    def compact(self, keep: Keys, damaged: Path) -> list[Path]:
        """Replace all files by ones sorted by key that hold the rows of `keep` only; rows of a key keep their order.

        The bytes follow from the rows alone. Returns damaged files, set aside; then nothing was replaced.
        """
        try:
            keys = self.keys()
            kept = keys[keep.holds(keys)]
            runs = list(_runs(unique(kept) if self.latest else np.sort(kept, kind="stable")))
            if not self._is_compact(keys, runs):
                self.replace(self._sorted(runs, keep))
        except (pa.ArrowInvalid, OSError):
            bad = [path for path in self.files() if not self._readable(path, whole=True)]
            if not bad:
                raise
            return [self.set_aside(path, damaged) for path in bad]
        return []

    def replace(self, tables: Iterable[pa.Table]) -> None:
        """Replace all files by one file a table, 00000.parquet and so on; no table leaves an empty file."""
        self._discard_next()
        n = 0
        for table in tables:
            files.write_parquet(self._next / f"{n:05d}.parquet", table)
            n += 1
        if n == 0:
            files.write_parquet(self._next / f"{0:05d}.parquet", self.schema.empty_table())
        files.write_text(self._next / "commit", str(max(n, 1)))
        self._install()

    def _is_compact(self, keys: np.ndarray, runs: list[tuple[bytes, bytes, int]]) -> bool:
        """Whether the files are what `replace` would write: its names, its rows in order, today's schema."""
        found = self.files()
        if [p.name for p in found] != [f"{n:05d}.parquet" for n in range(max(len(runs), 1))]:
            return False
        if [pq.read_metadata(p).num_rows for p in found] != ([n for _, _, n in runs] or [0]):
            return False
        return bool((keys[:-1] <= keys[1:]).all()) and all(pq.read_schema(p).equals(self.schema) for p in found)

    def _sorted(self, runs: list[tuple[bytes, bytes, int]], keep: Keys) -> Iterator[pa.Table]:
        """The rows of each file to write: cut from one sorted table where that fits, else gathered file by file."""
        if runs and sum(_size(path) for path in self.files()) <= BYTES_AT_ONCE:
            table, start = self._between(runs[0][0].decode(), runs[-1][1].decode(), keep), 0
            for _, _, rows in runs:
                yield table.slice(start, rows)
                start += rows
        else:
            for low, high, _ in runs:
                yield self._between(low.decode(), high.decode(), keep)

    def _between(self, low: str, high: str, keep: Keys) -> pa.Table:
        inside = (pc.field(self.key) >= low) & (pc.field(self.key) <= high)
        table = pa.concat_tables([self._conform(files.read_parquet(path, filters=inside)) for path in self.files()])
        table = table.filter(pa.array(keep.holds(table[self.key])))
        keys = as_bytes(table[self.key])
        order = np.argsort(keys, kind="stable")
        if self.latest:
            order = order[np.append(keys[order][1:] != keys[order][:-1], True)]
        return table.take(pa.array(order))

    def _conform(self, table: pa.Table) -> pa.Table:
        """The table in today's schema: columns that older rows lack are null."""
        columns = [
            table[f.name].cast(f.type) if f.name in table.column_names else pa.nulls(len(table), f.type)
            for f in self.schema
        ]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _readable(self, path: Path, *, whole: bool = False) -> bool:
        """Whether a file is Parquet with what today's schema needs; `whole` reads every page."""
        try:
            names = set(pq.read_schema(path).names)
            if whole:
                self._conform(files.read_parquet(path))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError):
            return False
        return all(field.nullable or field.name in names for field in self.schema)

    def _install(self) -> None:
        """Let the files of `.next` take the place of all others; may be repeated after a kill."""
        files.sync(self.folder)
        fresh = {f"{n:05d}.parquet" for n in range(int((self._next / "commit").read_text()))}
        for path in self.files():
            if path.name not in fresh or (self._next / path.name).exists():
                path.unlink()
        for name in sorted(fresh):
            if (self._next / name).exists():
                os.replace(self._next / name, self.folder / name)
        files.sync(self.folder)
        (self._next / "commit").unlink()
        self._next.rmdir()

    def _discard_next(self) -> None:
        if self._next.exists():
            for path in self._next.iterdir():
                path.unlink()
            self._next.rmdir()


def _runs(keys: np.ndarray) -> Iterator[tuple[bytes, bytes, int]]:
    """First key, last key and rows of each file, of sorted keys; a job's rows stay in one file."""
    start = 0
    while start < len(keys):
        last = keys[min(start + ROWS_PER_FILE, len(keys)) - 1]
        stop = int(np.searchsorted(keys, last, side="right"))
        yield keys[start], last, stop - start
        start = stop


def _size(path: Path) -> int:
    """Bytes of a file's columns before compression."""
    metadata = pq.read_metadata(path)
    return sum(metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups))
