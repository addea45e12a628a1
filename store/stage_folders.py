"""Folders of one stage: rows, dump files and wall-clock times; a lock gives them to one driver."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from store import files
from store.lease import SECONDS, Lease
from store.lock import Lock


class StageFolders:
    """Folders of one stage. Its driver calls `acquire` first, then `open`, and `release` at the end.

    root: folder of rows and dumps. companion: folder of wall-clock times. lock: gives one driver the folders.
    lease: needed if other machines can reach the folders, because flock may be effective on one machine only.
    """

    def __init__(self, root: Path, companion: Path, lock: Lock, *, lease: Lease | None = None) -> None:
        self.root, self.companion = root, companion
        self._lock, self._lease = lock, lease

    def acquire(self) -> None:
        """Take the flock, which the death of a driver releases at once, then the lease.

        Raises StoreBusy if another driver has one of them.
        """
        self._lock.acquire()
        if self._lease:
            try:
                self._lease.acquire()
            except BaseException:
                self._lock.release()
                raise

    def release(self) -> None:
        """Release lease and lock; their files stay."""
        if self._lease:
            self._lease.release()
        self._lock.release()

    def check(self) -> None:
        """Raise StoreBusy if another driver has taken over the lease; a flock cannot be taken over."""
        if self._lease:
            self._lease.check()

    def open(self) -> None:
        """Create both folders and delete temporary files in them. Called before any table is read.

        Raises StoreFull if the disk is full or not writable.
        """
        for folder in (self.root, self.companion):
            with files.translate_full_disk(folder):
                folder.mkdir(parents=True, exist_ok=True)
                files.remove_temporary(folder)

    def fault(self, path: str, size: int, fingerprint: str) -> str:
        """Return the fault of a dump, `gone` or `damaged`, or an empty text. The size is compared first."""
        file = self.root / path
        if not file.is_file():
            return "gone"
        return "" if file.stat().st_size == size and files.fingerprint(file) == fingerprint else "damaged"

    def sync(self, paths: Sequence[str]) -> None:
        """Force the dumps that exist, then their folders, to the disk before rows name them."""
        existing = [path for path in (self.root / path for path in paths) if path.is_file()]
        for path in [*existing, *sorted({path.parent for path in existing})]:
            files.sync(path)

    def prune(self, paths_in_rows: Collection[str]) -> None:
        """Delete dumps that no row names, and folders that become empty.

        The Parquet files directly in `dumps` are the rows of the table `dumps`, so they stay.
        """
        folder = self.root / "dumps"
        rows = set(folder.glob("*.parquet"))
        # In reverse order, a folder comes after its contents.
        for path in sorted(folder.rglob("*"), reverse=True):
            if path.is_dir():
                if not any(path.iterdir()):
                    path.rmdir()
            elif path not in rows and path.relative_to(self.root).as_posix() not in paths_in_rows:
                path.unlink()


def shared_folders(folder: Path | str, stage: str, *, lease: float = SECONDS) -> StageFolders:
    """Return the folders of a stage below a folder that several machines mount at the same path.

    lease: seconds without a heartbeat after which another driver may take the folders over.
    """
    root = Path(folder) / stage
    lock = Lock(root / ".status" / f"{stage}.lock")
    return StageFolders(root, Path(folder) / "timings" / stage, lock, lease=Lease(root, stage, seconds=lease))
