"""Leases on a shared folder, and the stores that they protect."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from store import files, shared_file
from store.errors import StoreBusy
from store.lease import Lease
from store.shared_file import SharedFile
from store.stage_folders import shared_folders
from store.stage_store import StageStore
from tests.store.damage import spoilt


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    return tmp_path / "shared" / "stage"


def hold(shared: Path, **changes: Any) -> None:
    """Let the lease be another machine's."""
    cell, written = SharedFile(shared / ".status" / "lease.json"), None
    while written is None:  # a heartbeat may come between
        body, digest = cell.read()
        held = json.loads(body) | {"host": "elsewhere", "released": False, "token": "theirs"} | changes
        written = cell.write_if_unchanged(json.dumps(held).encode(), digest)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_of_many_writers_that_saw_the_same_one_alone_writes(tmp_path: Path) -> None:
    cell = SharedFile(tmp_path / "cell")
    digest = cell.write_if_unchanged(b"first", None)
    won: list[int] = []
    start = threading.Barrier(8)

    def write(n: int) -> None:
        start.wait()
        if SharedFile(tmp_path / "cell").write_if_unchanged(b"%d" % n, digest) is not None:
            won.append(n)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert cell.read()[0] == b"%d" % won[0]
    assert [path.name for path in tmp_path.iterdir()] == ["cell"]


def test_a_dead_writers_claim_is_broken_and_a_living_ones_is_not(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(shared_file, "PATIENCE", 0.2)
    cell = SharedFile(tmp_path / "cell")
    claim = tmp_path / "cell.claim"
    claim.touch()
    assert cell.write_if_unchanged(b"x", None) is None
    os.utime(claim, (time.time() - 60, time.time() - 60))
    assert cell.write_if_unchanged(b"x", None) is not None
    assert not claim.exists()


def test_a_claim_that_took_a_dead_ones_place_meanwhile_stays(tmp_path: Path, monkeypatch) -> None:
    """Two break the same dead claim; the slower one comes when the faster one has a claim of its own."""
    monkeypatch.setattr(shared_file, "PATIENCE", 0.2)
    claim = tmp_path / "cell.claim"
    claim.touch()
    os.utime(claim, (time.time() - 60, time.time() - 60))
    rename = Path.rename

    def late(path: Path, target: Path) -> Path:
        if path == claim:
            monkeypatch.setattr(Path, "rename", rename)
            claim.unlink()
            claim.touch()
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", late)
    assert SharedFile(tmp_path / "cell").write_if_unchanged(b"x", None) is None
    assert [path.name for path in tmp_path.iterdir()] == ["cell.claim"]


def test_a_lease_of_another_machine_keeps_a_driver_out_where_flock_does_not(shared: Path, tmp_path: Path) -> None:
    """The other machine's flock is not seen here, as on file systems that keep it to themselves."""
    first = Lease(shared, "stage")
    first.acquire()
    first.release()
    hold(shared)
    where = shared_folders(shared.parent, "stage")
    refused = StageStore(tmp_path / "d", tables=["training"], companion=tmp_path / "c", stage="stage", folders=where)
    with pytest.raises(StoreBusy, match=r"pid \d+ on elsewhere since .*its lease runs out in \d+ s if it is dead"):
        refused.__enter__()
    os.utime(shared / ".status" / "lease.json", (time.time() - 61, time.time() - 61))
    with refused:
        pass


def test_a_driver_that_was_taken_over_stores_no_more(shared: Path, tmp_path: Path, record, row) -> None:
    where = shared_folders(shared.parent, "stage", lease=0.4)
    with StageStore(tmp_path / "d", tables=["training"], companion=tmp_path / "c", stage="stage", folders=where) as out:
        out.append([record("a", [row("training")])])
        hold(shared)
        deadline = time.monotonic() + 20
        while True:
            try:
                where.check()
            except StoreBusy:
                break
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with pytest.raises(StoreBusy, match=r"has taken over .* sent no heartbeat"):
            out.append([record("b", [row("training")])])
        with pytest.raises(StoreBusy, match=r"has taken over .* sent no heartbeat"):
            out.finish("ab")
        assert out.tables["training"].keys() == {"a"}


@pytest.mark.parametrize("boot", ["", "of today"])
def test_a_dead_process_holds_nothing_where_it_is_sure_to_be_of_this_machine(shared: Path, monkeypatch, boot) -> None:
    """Outside Linux a host's name is all that is known, and two machines may have the same."""
    with subprocess.Popen([sys.executable, "-c", "pass"]) as process:
        process.wait()
    here = {"host": "laptop", "boot": boot, "namespace": ""}
    monkeypatch.setattr("store.lease.machine", lambda: here)
    first = Lease(shared, "stage")
    first.acquire()
    hold(shared, **here, pid=process.pid)
    second = Lease(shared, "stage")
    if boot:
        second.acquire()
        second.release()
    else:
        with pytest.raises(StoreBusy, match="on laptop since"):
            second.acquire()
    first.release()


@pytest.mark.parametrize("taken", [False, True])
def test_a_driver_asks_after_a_stall_before_it_writes(shared: Path, taken: bool) -> None:
    """Its heart has not beaten yet when it goes on, after more than the lease."""
    lease = Lease(shared, "stage", seconds=0.2)
    lease.acquire()
    lease._stop.set()
    assert lease._thread is not None
    lease._thread.join()
    if taken:
        hold(shared)
    else:
        before = lease.file.read()
    time.sleep(0.3)
    if taken:
        with pytest.raises(StoreBusy, match=r"has taken over .* sent no heartbeat"):
            lease.check()
    else:
        lease.check()
        assert lease.file.read() != before, "the lease is renewed"
    lease.release()


def test_a_clock_that_runs_wrong_on_a_driver_does_not_matter(shared: Path, monkeypatch) -> None:
    """A lease's age is by the file server's clock: one is neither ended early nor kept by this machine's."""
    first = Lease(shared, "stage")
    first.acquire()
    hold(shared)
    for wrong in (-1e6, 1e6):
        with monkeypatch.context() as patch:
            real = time.time
            patch.setattr(time, "time", lambda real=real, wrong=wrong: real() + wrong)
            with pytest.raises(StoreBusy):
                Lease(shared, "stage").acquire()
    first.release()


def test_a_heartbeat_that_is_written_although_an_error_is_raised_is_not_another_drivers(
    shared: Path, monkeypatch, caplog
) -> None:
    """A file server may fail after the new file has its name."""
    lease = Lease(shared, "stage", seconds=0.2)
    lease.acquire()
    sync, before = files.sync, lease.file.read()

    def failing(path: Path) -> None:
        sync(path)
        if path == lease.file.path.parent:
            monkeypatch.setattr(files, "sync", sync)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(files, "sync", failing)
    wait_for(lambda: "no heartbeat" in caplog.text)
    failed = lease.file.read()
    assert failed != before
    wait_for(lambda: lease.file.read() != failed)
    lease.check()
    lease.release()
    assert json.loads(lease.file.read()[0])["released"]


def test_a_driver_that_lost_its_lease_does_not_release_it(shared: Path) -> None:
    lease = Lease(shared, "stage", seconds=0.2)
    lease.acquire()
    hold(shared)
    wait_for(lambda: bool(lease._lost))
    lease.release()
    facts = json.loads(lease.file.read()[0])
    assert (facts["host"], facts["released"]) == ("elsewhere", False)


@pytest.mark.parametrize("fails", [False, True])
def test_a_spoilt_part_is_set_aside_and_one_that_could_not_be_read_is_not(
    shared: Path, tmp_path: Path, monkeypatch, record, row, fails: bool
) -> None:
    """What a file server does not answer for now is not damaged."""
    where = shared_folders(shared.parent, "stage")
    out = StageStore(tmp_path / "d", tables=["training"], companion=tmp_path / "c", stage="stage", folders=where)
    with out:
        out.append([record("a", [row("training")])])
        out.append([record("b", [row("training")])])
        part, _ = out.tables["training"].files()
    read = files.read_parquet

    def stale(file: Path, **options: Any) -> Any:
        if file == part:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return read(file, **options)

    if fails:
        monkeypatch.setattr(files, "read_parquet", stale)
        with pytest.raises(OSError, match="Stale file handle"):
            out.__enter__()
        assert part.exists()
    else:
        part.write_bytes(spoilt(part.read_bytes(), "job_key"))
        with out:
            assert out.missing(["a", "b"]) == ["a"]
