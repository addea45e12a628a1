"""Files past the page cache: the same bytes as a plain file's, in whatever pieces they are written."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from tsfmscope.store import direct
from tsfmscope.store.direct import ALIGNED, DirectFile

SIZES = [0, 1, 7, ALIGNED - 1, ALIGNED, ALIGNED + 1, 2 * ALIGNED, 5 * ALIGNED + 3]
FLAG = getattr(os, "O_DIRECT", 0)


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """Stages of a few blocks, so that small files come to every turn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(direct, "STAGE", 2 * ALIGNED)
        patch.setattr(direct, "_stages", [])
        yield


def is_direct(file: DirectFile) -> bool:
    return bool(fcntl.fcntl(file._handle, fcntl.F_GETFL) & FLAG)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(SIZES), max_size=8), st.integers(0, 2**32))
def test_a_file_holds_what_was_written_and_knows_its_hash(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], seed: int
) -> None:
    path, random = tmp_path_factory.mktemp("direct") / "file", Random(seed)
    pieces = [random.randbytes(size) for size in sizes]
    with DirectFile(path) as file:
        assert [file.write(piece) for piece in pieces] == sizes
    content = b"".join(pieces)
    assert path.read_bytes() == content
    assert (file.size, file.fingerprint) == (len(content), blake3(content).hexdigest())


@pytest.mark.skipif(not FLAG, reason="O_DIRECT is Linux's")
def test_all_whole_blocks_go_past_the_page_cache(tmp_path: Path) -> None:
    with DirectFile(tmp_path / "file") as file:
        file.write(bytes(2 * ALIGNED))
        if not is_direct(file):
            pytest.skip("the file system of the temporary folder has no O_DIRECT")
        file.write(b"end")
        handle = os.dup(file._handle)
    assert not fcntl.fcntl(handle, fcntl.F_GETFL) & FLAG  # three bytes are no whole block
    os.close(handle)


@pytest.mark.parametrize("refused", [errno.EINVAL, errno.EOPNOTSUPP])
@pytest.mark.parametrize("at", ["fcntl", "write"])
def test_where_a_file_system_refuses_the_page_cache_takes_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: int, at: str
) -> None:
    flags, write = fcntl.fcntl, os.write

    def no_flag(handle: int, command: int, argument: int = 0) -> int:
        if at == "fcntl" and command == fcntl.F_SETFL and argument & FLAG:
            raise OSError(refused, os.strerror(refused))
        return flags(handle, command, argument)

    def no_write(handle: int, data: memoryview) -> int:
        if at == "write" and flags(handle, fcntl.F_GETFL) & FLAG:
            raise OSError(refused, os.strerror(refused))
        return write(handle, data)

    monkeypatch.setattr(direct.fcntl, "fcntl", no_flag)
    monkeypatch.setattr(direct.os, "write", no_write)
    content = Random(0).randbytes(9 * ALIGNED + 5)
    with DirectFile(tmp_path / "file") as file:
        file.write(content)
    assert (tmp_path / "file").read_bytes() == content


def test_a_full_disk_is_an_error_and_the_memory_is_lent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(direct.os, "write", full)
    before = len(direct._stages)
    file = DirectFile(tmp_path / "file")
    with pytest.raises(OSError, match="No space left"):
        file.write(bytes(3 * ALIGNED))
    with pytest.raises(OSError, match="No space left"):
        file.close()
    assert file.closed
    assert file.fingerprint == ""
    assert len(direct._stages) == max(before, 1)


def test_a_write_that_takes_less_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(direct.os, "write", lambda handle, data: write(handle, data[: max(1, len(data) // 3)]))
    content = Random(1).randbytes(4 * ALIGNED - 1)
    with DirectFile(tmp_path / "file") as file:
        file.write(content)
    assert (tmp_path / "file").read_bytes() == content


def test_two_files_at_once_do_not_share_their_memory(tmp_path: Path) -> None:
    random = Random(2)
    contents = [random.randbytes(5 * ALIGNED + 9) for _ in range(2)]
    with DirectFile(tmp_path / "0") as one, DirectFile(tmp_path / "1") as other:
        for start in range(0, len(contents[0]), 1000):
            one.write(contents[0][start : start + 1000])
            other.write(contents[1][start : start + 1000])
    assert [(tmp_path / name).read_bytes() for name in "01"] == contents


def test_a_file_that_is_there_is_never_written_into(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"kept")
    with pytest.raises(FileExistsError):
        DirectFile(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"kept"


FORK = """
import os, sys
from pathlib import Path
from tsfmscope.store.direct import DirectFile

folder = Path(sys.argv[1])
DirectFile(folder / "first").close()
with DirectFile(folder / "parent") as file:
    file.write(b"parent")
    if not (child := os.fork()):
        file._view[:6] = b"child!"
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def test_a_fork_does_not_write_into_the_memory_of_its_parent(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FORK, str(tmp_path)], check=True)
    assert (tmp_path / "parent").read_bytes() == b"parent"
