"""A table's files in a folder of a file system that can rename.

They are replaced as a whole through `.next`: the new files are written there, `commit` makes them count, and only then
do the old ones go and the new ones take their place. A kill at any moment leaves the old rows, or some of the new ones
and a `.next` that `recover` carries through.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from store import files
from store.manifests import File
from store.places import Folder


class LocalFolder(Folder):
    """`<path>/part-*.parquet`, and 00000.parquet and so on once compacted."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.name
        self._next = path / ".next"

    def files(self) -> list[File]:
        """By name."""
        return [*self._paths()]

    def recover(self) -> None:
        """Install what was committed."""
        self._install_merges()
        if (self._next / "commit").exists():
            self._install()
        self._discard_next()
        files.remove_temporary(self.path)

    def append(self, table: pa.Table) -> None:
        """The next number's part."""
        self._install_merges()  # one that failed half-way holds numbers that would be given again
        parts = self._parts()
        number = _number(parts[-1]) + 1 if parts else 0
        files.write_parquet(self.path / f"part-{number:08d}.parquet", table)

    def newest(self) -> Iterator[tuple[File, int]]:
        """From the last number on."""
        return ((path, path.stat().st_size) for path in reversed(self._parts()))

    def join(self, parts: Sequence[File], table: pa.Table) -> None:
        """Hidden, the one part is whole; then the others go and it takes the last one's name."""
        first, last = (_number(Path(str(path))) for path in (parts[0], parts[-1]))
        files.write_parquet(self.path / f".merged-{first:08d}-{last:08d}.parquet", table)
        self._install_merges()

    def rewrite(self, file: File, table: pa.Table | None) -> None:
        """Under the same name."""
        assert isinstance(file, Path)
        if table is None:
            file.unlink()
        else:
            files.write_parquet(file, table)

    def replace(self, tables: Iterable[pa.Table]) -> None:
        """00000.parquet and so on, by way of `.next`."""
        self._discard_next()
        n = 0
        for table in tables:
            files.write_parquet(self._next / f"{n:05d}.parquet", table)
            n += 1
        files.write_text(self._next / "commit", str(n))
        self._install()

    def is_compacted(self, n: int) -> bool:
        """By their names."""
        return [path.name for path in self._paths()] == [f"{one:05d}.parquet" for one in range(n)]

    def set_aside(self, file: File, target: Path) -> None:
        """By renaming, or a copy where that is another file system."""
        shutil.move(str(file), target)

    def _paths(self) -> list[Path]:
        return sorted(self.path.glob("[!.]*.parquet"))

    def _parts(self) -> list[Path]:
        return [path for path in self._paths() if path.stem.startswith("part-")]

    def _install_merges(self) -> None:
        """Let each take the place of the parts that it is made of; may be repeated after a kill."""
        for merged in self.path.glob(".merged-*.parquet"):
            first, last = (int(number) for number in merged.stem.split("-")[1:])
            for path in self._parts():
                if first <= _number(path) <= last:
                    path.unlink()
            os.replace(merged, self.path / f"part-{last:08d}.parquet")
            files.sync(self.path)

    def _install(self) -> None:
        """Let the files of `.next` take the place of all others; may be repeated after a kill."""
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
