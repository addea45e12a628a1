"""Files of DVC: a table that a killed `dvc` leaves unreadable, and a cache that everyone may write.

    python -m stages.planning.dvc_folder

prepares both for `dvc repro`; `make repro` calls it first.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import sys
from pathlib import Path

FOLDER = Path(".dvc")
# DVC's table of the files that running stages read and write.
RWLOCK = FOLDER / "tmp" / "rwlock"
# `core.site_cache_dir` of .dvc/config. DVC unpickles its files.
SITE_CACHE = Path(".dvc_site_cache")


def protect_site_cache() -> None:
    """Close DVC's cache, which DVC makes writable for everyone, to users who may not write in the checkout."""
    if FOLDER.is_dir():
        is_shared = FOLDER.stat().st_mode & 0o020
        SITE_CACHE.mkdir(exist_ok=True)
        SITE_CACHE.chmod(0o770 if is_shared else 0o700)


def is_rwlock_readable() -> bool:
    """Return whether DVC can read its table of running stages; a table that does not exist yet is empty."""
    try:
        return isinstance(json.loads(RWLOCK.read_bytes()), dict)
    except FileNotFoundError:
        return True
    except ValueError:
        return False


def delete_unreadable_rwlock() -> None:
    """Delete DVC's table of running stages if a killed `dvc` left it unreadable; otherwise every `dvc` would fail.

    DVC locks `rwlock.lock` while it writes the table. If that lock is held, nothing is deleted. The file is not made
    here: with `core.hardlink_lock`, DVC takes its existence as another `dvc` at work.
    """
    if is_rwlock_readable():
        return
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(FileNotFoundError):
            lock = stack.enter_context(Path(f"{RWLOCK}.lock").open("rb"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
        # Another `dvc` may have completed the table before the lock was taken.
        if not is_rwlock_readable():
            RWLOCK.unlink()
            print(f"deleted {RWLOCK}, which a killed dvc had left unreadable", file=sys.stderr)


if __name__ == "__main__":
    protect_site_cache()
    delete_unreadable_rwlock()
