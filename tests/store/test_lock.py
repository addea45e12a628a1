from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from store.errors import StoreBusy, StoreFull
from store.lock import Lock, is_held, read_holder

# Driver on another node: its host has another name, and it mounts the folder at another path.
HOLDER = """
import socket, sys, time
from pathlib import Path
from store.lock import Lock
socket.gethostname = lambda: "node-2"
lock = Lock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory):
    mount = tmp_path_factory.mktemp("node-2") / "mount"
    mount.symlink_to(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(mount / "geometry.lock")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_driver_on_another_node_is_refused_with_who_holds_the_store(holder, tmp_path: Path) -> None:
    with pytest.raises(StoreBusy, match=rf"geometry: another driver .* pid {holder.pid} on node-2 since 20"):
        Lock(tmp_path / "geometry.lock").acquire()


def test_a_killed_driver_holds_nothing(holder, tmp_path: Path) -> None:
    path = tmp_path / "geometry.lock"
    assert is_held(path)
    holder.kill()
    holder.wait()
    assert not is_held(path)
    lock = Lock(path)
    lock.acquire()
    assert is_held(path)
    lock.release()
    assert not is_held(path)
    assert read_holder(path) == {}


def test_a_lock_that_nobody_took_is_not_held(tmp_path: Path) -> None:
    assert not is_held(tmp_path / "none.lock")
    assert read_holder(tmp_path / "none.lock") == {}


@pytest.mark.parametrize("refused", ["open", "mkdir"])
@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_folder_that_cannot_be_written_is_named_with_the_mend(
    refused: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Any, *rest: Any) -> int:
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(os, refused, refuse)
    path = (tmp_path if refused == "open" else tmp_path / ".status") / "tokens.lock"
    with pytest.raises(StoreFull) as caught:
        Lock(path).acquire()
    assert str(caught.value) == (
        f"cannot write {path}: {os.strerror(number)}. Make {tmp_path} writable, or work in a copy of the project, "
        "then run the same command again: it continues from the stored results"
    )


def test_in_a_folder_that_can_only_be_read_a_lock_is_held_if_it_names_a_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tokens.lock"
    lock = Lock(path)
    lock.acquire()

    def refuse(path: Any, *rest: Any) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        assert is_held(path)
    lock.release()
    monkeypatch.setattr(os, "open", refuse)
    assert not is_held(path)
