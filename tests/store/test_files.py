"""Files of rows: atomic, fingerprinted, with a checksum that finds every flipped bit."""

from __future__ import annotations

import errno
import os
import pickle
import re
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from blake3 import blake3

from store import files
from store.errors import DamagedFile, StaleInput, StoreFull


def test_a_failed_write_leaves_the_former_file_and_no_temporary_one(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    files.write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        files.write_text(path, "half\udc80")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_full_disk_is_named_with_what_to_do_and_crosses_processes_as_such(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    with pytest.raises(StoreFull) as caught, files.atomic(path), open("/dev/full", "r+b", buffering=0) as full:
        full.write(b"x")
    again = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(again, OSError) and again.errno == errno.ENOSPC
    assert str(again) == (
        f"cannot write {path}: No space left on device. Free some of that disk, then run the same command again: "
        "it continues from the stored results"
    )
    assert not list(tmp_path.iterdir())


def test_a_read_only_disk_is_not_called_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(StoreFull, match=rf"a\.txt: Read-only file system\. Make {tmp_path} writable, or"):
        files.write_text(tmp_path / "a.txt", "new")


def test_replacing_a_file_leaves_its_other_hard_links_alone(tmp_path: Path) -> None:
    path, cache = tmp_path / "a.parquet", tmp_path / "cache"
    files.write_parquet(path, pa.table({"x": [1]}))
    os.link(path, cache)
    before = cache.read_bytes()
    files.write_parquet(path, pa.table({"x": [2]}))
    assert cache.read_bytes() == before
    assert pq.read_table(path)["x"].to_pylist() == [2]


def test_the_bytes_of_a_table_do_not_depend_on_its_chunks_or_metadata(tmp_path: Path) -> None:
    whole = pa.table({"x": list(range(100)), "s": [str(n % 7) for n in range(100)]})
    pieces = pa.concat_tables([whole.slice(0, 30), whole.slice(30)]).replace_schema_metadata({"pandas": "{}"})
    files.write_parquet(tmp_path / "a", whole)
    files.write_parquet(tmp_path / "b", pieces)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert pq.read_schema(tmp_path / "a").metadata is None


def test_hidden_states_are_stored_as_they_are_and_everything_reads_them(tmp_path: Path) -> None:
    kind = pa.list_(pa.field("element", pa.float32(), nullable=False), 3)
    schema = pa.schema([("token", pa.int64()), ("stack", pa.string()), pa.field("state", kind, nullable=False)])
    states = np.array([0.0, -0.0, 1e-42, np.inf, np.nan, 3.5], np.float32)
    columns = [pa.array([5, 2**62]), pa.array(["a", "a"]), pa.FixedSizeListArray.from_arrays(states, type=kind)]
    table = pa.table(columns, schema=schema)
    files.write_parquet(tmp_path / "a", table)
    columns_of = pq.read_metadata(tmp_path / "a").row_group(0)
    assert {columns_of.column(n).compression for n in range(3)} == {"UNCOMPRESSED"}
    assert columns_of.column(0).statistics.max == 2**62
    assert not columns_of.column(2).is_stats_set
    back = files.read_parquet(tmp_path / "a")
    assert back.schema == schema
    assert back["state"].combine_chunks().flatten().to_numpy().tobytes() == states.tobytes()
    rows = duckdb.sql(f"select token, stack, state[1], len(state) from read_parquet('{tmp_path / 'a'}')").fetchall()
    assert rows == [(5, "a", 0.0, 3), (2**62, "a", np.inf, 3)]


def test_names_of_folders_are_not_read_as_columns(tmp_path: Path) -> None:
    path = tmp_path / "model=m" / "a.parquet"
    files.write_parquet(path, pa.table({"x": [1]}))
    assert files.read_parquet(path).column_names == ["x"]


def test_the_fingerprint_of_a_file_is_its_blake3_and_follows_its_content(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("one")
    assert files.fingerprint(path) == blake3(b"one").hexdigest()
    files.write_text(path, "two")
    assert files.fingerprint(path) == blake3(b"two").hexdigest()


def test_the_fingerprint_of_a_folder_knows_names_and_content_but_not_temporary_files(tmp_path: Path) -> None:
    a = tmp_path / "a"
    (a / "deep").mkdir(parents=True)
    (a / "deep" / "x").write_text("1")
    first = files.fingerprint(a)
    (a / ".tmp-1-x").write_text("half")
    assert files.fingerprint(a) == first
    (a / "deep" / "x").rename(a / "deep" / "y")
    second = files.fingerprint(a)
    files.write_text(a / "deep" / "y", "2")
    assert len({first, second, files.fingerprint(a)}) == 3


def test_check_passes_what_is_as_planned_and_skips_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    check = pickle.loads(pickle.dumps(partial(files.check, tmp_path)))
    check({"a": files.fingerprint(tmp_path / "a"), "hub:x/y": "1", "model:m": "2", "param:p": "3"})


@pytest.mark.parametrize(("name", "got"), [("a", "found [0-9a-f]{64}"), ("gone", "found nothing there")])
def test_check_names_what_changed(tmp_path: Path, name: str, got: str) -> None:
    (tmp_path / "a").write_text("x")
    with pytest.raises(StaleInput, match=f"input {name}: expected BLAKE3 old, {got}.*run the stage again") as caught:
        files.check(tmp_path, {name: "old"})
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_write_rows_of_nothing_gives_an_empty_file(tmp_path: Path) -> None:
    files.write_rows(tmp_path / "skipped" / "00000.parquet", "skipped", [])
    assert pq.read_table(tmp_path / "skipped" / "00000.parquet").num_rows == 0


# One text looks like the record of the checksum.
TABLE = pa.table({"x": [1.5, 2.5], "name": ["a", files.CHECKSUM_KEY + "\x18@" + "0" * 64]})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    files.write_parquet(tmp_path / "rows.parquet", TABLE)
    return tmp_path / "rows.parquet"


def test_every_flipped_bit_of_a_file_is_found(path: Path) -> None:
    content = bytearray(path.read_bytes())
    files.verify_content(bytes(content), path)
    for bit in range(8 * len(content)):
        content[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedFile):
            files.verify_content(bytes(content), path)
        content[bit // 8] ^= 1 << bit % 8


@pytest.mark.parametrize("cut", [0, 3, 200, -1])
def test_a_file_that_is_cut_off_is_found(path: Path, cut: int) -> None:
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DamagedFile, match=re.escape(str(path))):
        files.read_parquet(path)


def test_the_error_names_file_expected_found_and_what_to_do(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[10] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedFile) as raised:
        files.verify(path)
    said = str(raised.value).removeprefix(f"{path}: damaged: ")
    digest = "BLAKE3 [0-9a-f]{64}"
    assert re.fullmatch(f"expected {digest}, found {digest}; delete this file, then `dvc repro` writes it again", said)


def test_a_file_without_a_checksum_is_refused(tmp_path: Path) -> None:
    pq.write_table(TABLE.select(["x"]), tmp_path / "plain.parquet")
    with pytest.raises(DamagedFile, match="found no checksum, so it is damaged or was written by an earlier version"):
        files.read_parquet(tmp_path / "plain.parquet")


def test_the_same_rows_give_the_same_bytes(path: Path, tmp_path: Path) -> None:
    files.write_parquet(tmp_path / "again.parquet", TABLE)
    assert path.read_bytes() == (tmp_path / "again.parquet").read_bytes()


def test_other_readers_take_the_file_as_any_parquet(path: Path) -> None:
    assert pq.read_table(path).equals(TABLE)
    assert duckdb.sql(f"select sum(x) from '{path}'").fetchall() == [(4.0,)]


def test_a_file_is_read_once_and_again_when_it_has_changed(path: Path) -> None:
    files.verify(path)
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[10] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    files.verify(path)  # inode, time of change and size are those of the file that was verified
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    with pytest.raises(DamagedFile):
        files.verify(path)
