"""Files of a table in a folder of a file system that supports renaming.

All files are replaced together through the subfolder `.next`. The new files are written there, and then a
file named `commit`. Only then are the old files deleted and the new ones moved to their place. A process that
is killed at any moment leaves either the old rows, or some of the new files and a `.next` whose installation
`finish_replacements` completes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from store import files


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
            files.sync(self.path)

    def _install(self) -> None:
        """Replace all files by the files of `.next`; this can be repeated after a kill."""
        files.sync(self.path)
        fresh = {f"{n:05d}.parquet" for n in range(int((self._next / "commit").read_text()))}
        for path in self.files():
            if path.name not in fresh or (self._next / path.name).exists():
                path.unlink()
        for name in sorted(fresh):
            if (self._next / name).exists():
                os.replace(self._next / name, self.path / name)
        files.sync(self.path)
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
