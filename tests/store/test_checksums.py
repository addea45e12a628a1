"""Checksums of whole files: no bit of a file of rows can change unnoticed."""

from __future__ import annotations

import os
import re
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from store import files
from store.errors import DamagedFile

TABLE = pa.table({"x": [1.5, 2.5], "name": ["a", files.KEY + "\x18@" + "0" * 64]})  # a text like the record itself


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
