from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from store import files, table_parts
from store.table_parts import TableParts

SCHEMA = pa.schema([pa.field("x", pa.int64(), nullable=False), pa.field("job_key", pa.string(), nullable=False)])


KILLS = 17  # system calls that change something in the replacement below, and one


def rows(*pairs: tuple[str, int]) -> pa.Table:
    return pa.table({"x": [x for _, x in pairs], "job_key": [key for key, _ in pairs]}, schema=SCHEMA)


@contextmanager
def dying_at(moment: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let all calls that change a folder fail after the first `moment` ones."""
    calls = count()

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if next(calls) >= moment:
                raise KeyboardInterrupt
            return real(*arguments, **options)

        return call

    with monkeypatch.context() as patch:
        for owner, name in ((os, "replace"), (Path, "unlink"), (Path, "rmdir")):
            patch.setattr(owner, name, dying(getattr(owner, name)))
        yield


@pytest.fixture
def table(tmp_path: Path) -> TableParts:
    return TableParts(tmp_path / "table", SCHEMA)


def test_parts_are_numbered_in_the_order_of_writing(table: TableParts) -> None:
    for n in range(3):
        table.append(rows(("k", n)))
    assert [p.name for p in table.files()] == [f"part-{n:08d}.parquet" for n in range(3)]
    assert table.read()["x"].to_pylist() == [0, 1, 2]


def test_compaction_sorts_by_key_keeps_the_order_of_a_key_and_drops_the_rest(table: TableParts, tmp_path: Path) -> None:
    table.append(rows(("b", 3), ("b", 1), ("gone", 9)))
    table.append(rows(("a", 2), ("a", 1)))
    assert table.compact({"a", "b"}, tmp_path) == []
    assert table.read().to_pylist() == rows(("a", 2), ("a", 1), ("b", 3), ("b", 1)).to_pylist()
    assert [p.name for p in table.files()] == ["00000.parquet"]


@pytest.mark.parametrize("at_once", [1, 2**20])
def test_large_tables_become_several_files_that_never_split_a_job(
    table: TableParts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(table_parts, "ROWS_PER_FILE", 4)
    monkeypatch.setattr(table_parts, "BYTES_AT_ONCE", at_once)
    for key in "dcba":
        table.append(rows(*((key, n) for n in range(3))))
    table.compact(set("abcd"), tmp_path)
    held = [set(pq.read_table(p)["job_key"].to_pylist()) for p in table.files()]
    assert held == [{"a", "b"}, {"c", "d"}]
    assert table.read()["x"].to_pylist() == [0, 1, 2] * 4


def test_sorting_at_once_and_file_by_file_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_parts, "ROWS_PER_FILE", 100)
    prints = set()
    for at_once in (1, 5000, 2**20):  # five passes, some, one
        monkeypatch.setattr(table_parts, "BYTES_AT_ONCE", at_once)
        table = TableParts(tmp_path / str(at_once), SCHEMA)
        for start in range(5):
            table.append(rows(*((f"{n * 7 % 500:04d}", n) for n in range(start, 500, 5))))
        table.compact({f"{n:04d}" for n in range(450)}, tmp_path)
        assert len(table.files()) == 5
        prints.add(files.fingerprint(table.path))
    assert len(prints) == 1


def test_compacting_twice_writes_nothing_the_second_time(table: TableParts, tmp_path: Path) -> None:
    table.append(rows(("a", 1)))
    table.compact({"a"}, tmp_path)
    before = table.files()[0].stat().st_ino
    table.compact({"a", "b"}, tmp_path)
    assert table.files()[0].stat().st_ino == before


def test_nothing_and_everything_pruned_leave_the_same_empty_file(table: TableParts, tmp_path: Path) -> None:
    table.compact(set(), tmp_path)
    first = files.fingerprint(table.files()[0])
    table.append(rows(("a", 1)))
    table.compact(set(), tmp_path)
    assert files.fingerprint(table.files()[0]) == first


def test_latest_keeps_the_last_row_of_a_key(tmp_path: Path) -> None:
    table = TableParts(tmp_path / "t", SCHEMA, latest=True)
    table.append(rows(("a", 1), ("b", 1)))
    table.append(rows(("a", 2)))
    table.compact({"a", "b"}, tmp_path)
    assert table.read()["x"].to_pylist() == [2, 1]
    table.append(rows(("b", 3)))
    table.compact({"a", "b"}, tmp_path)
    assert table.read()["x"].to_pylist() == [2, 3]


@pytest.mark.parametrize("moment", range(KILLS))
def test_a_kill_at_any_step_of_a_replacement_loses_and_doubles_nothing(
    table: TableParts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """Every system call that changes the folder is a moment to die at; the last one comes too late."""
    monkeypatch.setattr(table_parts, "ROWS_PER_FILE", 2)
    expected = [(key, n) for key in "abc" for n in range(2)]
    for key in "cab":
        table.append(rows((key, 0), (key, 1)))
    table.compact(set("ac"), tmp_path)
    table.append(rows(("b", 0), ("b", 1)))
    with dying_at(moment, monkeypatch):
        try:
            table.compact(set("abc"), tmp_path)
            assert moment == KILLS - 1
        except KeyboardInterrupt:
            seen = [tuple(row.values())[::-1] for row in table.read().to_pylist()]
            assert len(seen) == len(set(seen)), "a reader never sees a row twice"
    assert table.recover(tmp_path / "damaged") == []
    table.compact(set("abc"), tmp_path)
    assert [(row["job_key"], row["x"]) for row in table.read().to_pylist()] == expected
    assert sorted(p.name for p in table.path.iterdir()) == [f"{n:05d}.parquet" for n in range(3)]


@pytest.mark.parametrize("cut", [0, 3, 200, -1])
def test_a_truncated_part_is_set_aside_and_named(
    table: TableParts, tmp_path: Path, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    table.append(rows(("a", 1)))
    table.append(rows(("b", 1)))
    bad = table.files()[0]
    bad.write_bytes(bad.read_bytes()[:cut])
    aside = table.recover(tmp_path / "damaged")
    assert aside == [tmp_path / "damaged" / "table-part-00000000.damaged"]
    assert "is damaged; quarantined" in caplog.text
    assert table.keys() == {"b"}


def test_a_damaged_part_is_set_aside_on_another_file_system_too(
    table: TableParts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shared folder is a mount of its own."""

    def across(source: str, target: Path) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    table.append(rows(("a", 1)))
    table.files()[0].write_bytes(b"cut off")
    monkeypatch.setattr(os, "replace", across)
    monkeypatch.setattr(os, "rename", across)
    (aside,) = table.recover(tmp_path / "damaged")
    assert aside.read_bytes() == b"cut off" and table.files() == []


def test_a_flipped_byte_in_a_page_is_found_when_compacting(table: TableParts, tmp_path: Path) -> None:
    table.append(rows(*((str(n), n) for n in range(1000))))
    table.append(rows(("z", 1)))
    bad = table.files()[0]
    content = bytearray(bad.read_bytes())
    content[100] ^= 0xFF
    bad.write_bytes(content)
    keep = {*map(str, range(1000)), "z"}
    assert [p.name for p in table.compact(keep, tmp_path / "damaged")] == ["table-part-00000000.damaged"]
    assert table.compact(keep, tmp_path / "damaged") == []
    assert table.read()["job_key"].to_pylist() == ["z"]


def test_rows_of_an_older_schema_get_nulls_and_lose_what_is_gone(tmp_path: Path) -> None:
    TableParts(tmp_path / "t", SCHEMA).append(rows(("a", 1)))
    today = pa.schema([pa.field("y", pa.string()), pa.field("job_key", pa.string(), nullable=False)])
    table = TableParts(tmp_path / "t", today)
    assert table.recover(tmp_path) == []
    table.compact({"a"}, tmp_path)
    assert table.read().to_pylist() == [{"y": None, "job_key": "a"}]
    shutil.rmtree(tmp_path / "t")


def test_dropping_keys_rewrites_only_the_files_that_hold_them(table: TableParts) -> None:
    table.append(rows(("a", 1), ("b", 2)))
    table.append(rows(("c", 3)))
    table.append(rows(("d", 4)))
    before = {p.name: p.stat().st_ino for p in table.files()}
    table.drop(["a", "d"])
    assert table.keys() == {"b", "c"}
    assert [p.name for p in table.files()] == ["part-00000000.parquet", "part-00000001.parquet"]
    assert table.files()[1].stat().st_ino == before["part-00000001.parquet"]


def store(table: TableParts, key: str, x: int) -> None:
    table.append(rows((key, x)))
    table.merge_small()


def test_many_small_parts_become_one_in_the_order_of_writing(
    table: TableParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_parts, "MANY", 3)
    for n in range(11):
        store(table, f"k{n % 2}", n)
        assert len(table.files()) <= 4
    assert table.read()["x"].to_pylist() == list(range(11))
    large = table_parts.SMALL
    monkeypatch.setattr(table_parts, "SMALL", 0)
    for n in range(11, 16):
        store(table, "k", n)
    assert len(table.files()) > 5, "large parts are left alone"
    monkeypatch.setattr(table_parts, "SMALL", large)
    store(table, "k", 16)
    assert table.read()["x"].to_pylist() == list(range(17))


def test_a_damaged_part_is_left_for_the_end_of_the_run_to_name(
    table: TableParts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(table_parts, "MANY", 3)
    for n in range(3):
        table.append(rows(("k", n)))
    bad = table.files()[1]
    bad.write_bytes(bad.read_bytes()[:-5])
    for n in range(3, 6):
        store(table, "k", n)
    assert len(table.files()) == 6 and caplog.text.count("are not merged") == 1
    assert len(table.compact({"k"}, tmp_path / "damaged")) == 1
    assert table.read()["x"].to_pylist() == [0, 2, 3, 4, 5]


MERGE_KILLS = 10  # calls that change something in the append and merge below, and one


@pytest.mark.parametrize("moment", range(MERGE_KILLS))
def test_a_kill_at_any_step_of_a_merge_loses_and_doubles_nothing(
    table: TableParts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    monkeypatch.setattr(table_parts, "MANY", 3)
    for n in range(3):
        table.append(rows(("k", n)))
    stored = [0, 1, 2, 3] if moment else [0, 1, 2]
    with dying_at(moment, monkeypatch):
        try:
            store(table, "k", 3)
            assert moment == MERGE_KILLS - 1
        except KeyboardInterrupt:
            seen = table.read()["x"].to_pylist()
            assert len(seen) == len(set(seen)), "a reader never sees a row twice"
    assert table.recover(tmp_path / "damaged") == []
    assert table.read()["x"].to_pylist() == stored
    table.append(rows(("k", 4)))
    assert table.read()["x"].to_pylist() == [*stored, 4]
    assert not [p.name for p in table.path.iterdir() if p.name.startswith(".")]
