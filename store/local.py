"""Files of a table in a folder of a file system that supports renaming.

All files are replaced together through the subfolder `.next`. The new files are written there, and then a
file named `commit`. Only then are the old files deleted and the new ones moved to their place. A process that
is killed at any moment leaves either the old rows, or some of the new files and a `.next` that `recover`
finishes installing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from tsfmscope.store import files
from tsfmscope.store.backend import TableFiles
from tsfmscope.store.manifests import File


class LocalFolder(TableFiles):
    """Files of one table in a local folder: part-*.parquet, or 00000.parquet and so on once compacted."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.name
        self._next = path / ".next"

    def files(self) -> list[File]:
        """Return the files sorted by name."""
        return [*self._paths()]

    def recover(self) -> None:
        """Finish committed replacements; delete uncommitted ones and temporary files."""
        self._install_merges()
        if (self._next / "commit").exists():
            self._install()
        self._discard_next()
        files.remove_temporary(self.path)

    def append(self, table: pa.Table) -> None:
        """Write the rows as the part with the next number."""
        # A merge that was not installed would later delete a new part that has one of its numbers.
        self._install_merges()
        parts = self._parts()
        number = _number(parts[-1]) + 1 if parts else 0
        files.write_parquet(self.path / f"part-{number:08d}.parquet", table)

    def newest(self) -> Iterator[tuple[File, int]]:
        """Return parts and their sizes in bytes, from the highest number down."""
        return ((path, path.stat().st_size) for path in reversed(self._parts()))

    def join(self, parts: Sequence[File], table: pa.Table) -> None:
        """Write the merged part under a hidden name, delete the old parts, and give it the last one's name."""
        first, last = (_number(Path(str(path))) for path in (parts[0], parts[-1]))
        files.write_parquet(self.path / f".merged-{first:08d}-{last:08d}.parquet", table)
        self._install_merges()

    def rewrite(self, file: File, table: pa.Table | None) -> None:
        """Replace a file under the same name, or delete it if the table is None."""
        assert isinstance(file, Path)
        if table is None:
            file.unlink()
        else:
            files.write_parquet(file, table)

    def replace(self, tables: Iterable[pa.Table]) -> None:
        """Replace all files by 00000.parquet and so on, one per table, through the subfolder `.next`."""
        self._discard_next()
        n = 0
        for table in tables:
            files.write_parquet(self._next / f"{n:05d}.parquet", table)
            n += 1
        files.write_text(self._next / "commit", str(n))
        self._install()

    def is_compacted(self, n: int) -> bool:
        """Return whether the files have exactly the names of n compacted files."""
        return [path.name for path in self._paths()] == [f"{number:05d}.parquet" for number in range(n)]

    def quarantine(self, file: File, target: Path) -> None:
        """Move a file to `target`; between file systems, this copies it."""
        shutil.move(str(file), target)

    def _paths(self) -> list[Path]:
        return sorted(self.path.glob("[!.]*.parquet"))

    def _parts(self) -> list[Path]:
        return [path for path in self._paths() if path.stem.startswith("part-")]

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
        for path in self._paths():
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


def _number(part: Path) -> int:
    return int(part.stem.removeprefix("part-"))
