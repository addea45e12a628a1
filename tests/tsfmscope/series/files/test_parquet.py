from __future__ import annotations

import os
from collections import Counter
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tsfmscope.errors import DataError
from tsfmscope.series.catalog import CATALOG
from tsfmscope.series.files.parquet import load_parquet, select, unusable
from tsfmscope.series.types import Series

GOOD = {
    "item_id": pa.array(["a", "b", "c"]),
    "start": pa.array([datetime(2020, 1, 1)] * 3, pa.timestamp("ms")),
    "freq": pa.array(["D", "D", "h"]),
    "target": pa.array([[1.0, 2.0, None, 4.0], [0.5] * 3 + [np.nan], [3.0, 1.0, 2.0]], pa.list_(pa.float32())),
}


def _write(path: Path, **changes: Any) -> Path:
    columns = {name: column for name, column in {**GOOD, **changes}.items() if column is not None}
    pq.write_table(pa.table(columns), path)
    return path


def test_a_good_file_is_read_with_missing_values_as_nan(tmp_path: Path) -> None:
    found = load_parquet(_write(tmp_path / "mine.parquet"), domain="x", min_length=3)
    assert [(one.dataset, one.series, one.freq) for one in found.series] == [("mine", "a", "D"), ("mine", "c", "h")]
    np.testing.assert_array_equal(found.series[0].values, np.array([1, 2, np.nan, 4], dtype=np.float32))
    assert found.series[0].start == datetime(2020, 1, 1)
    assert (found.series[0].domain, found.series[0].provenance) == ("x", "file mine.parquet")
    assert found.skipped == [("b", "constant")]
    assert found.available == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"target": None},
            r"'target': expected one of type list of numbers, got none \(columns: item_id, start, freq\)",
        ),
        ({"target": pa.array(["1"] * 3)}, "'target': expected one of type list of numbers, got string"),
        ({"target": pa.array([1.0] * 3)}, "'target': expected one of type list of numbers, got double"),
        ({"target": pa.array([[True]] * 3)}, "'target': expected one of type list of numbers, got list<.*bool>"),
        ({"start": pa.array([1, 2, 3])}, "'start': expected one of type timestamp, got int64"),
        ({"start": pa.array(["2020-01-01", "soon", None])}, "the file is damaged .*soon"),
        ({"start": pa.array([2**49] * 3, pa.timestamp("ms"))}, "'start': expected times of the years 1 to 9999"),
        ({"item_id": pa.array([1, 2, 3])}, "'item_id': expected one of type string, got int64"),
        ({"freq": pa.array([1, 2, 3])}, "'freq': expected one of type string, got int64"),
        ({"freq": pa.array(["D", "D", "0h"])}, "'freq': freq: expected a pandas alias .*, got '0h'"),
        ({"freq": pa.array(["D", "D", "-1h"])}, "'freq': freq: expected steps that go forwards.*, got '-1h'"),
        ({"freq": pa.array(["D", "D", "often"])}, "'freq': freq: expected a pandas alias .*, got 'often'"),
        ({"item_id": pa.array(["a", "b", "a"])}, "'item_id': expected every id once and none null, got 'a' 2 times"),
        ({"item_id": pa.array(["a", "b", None])}, "'item_id': .* got None 1 times"),
        (
            {"item_id": pa.array([b"a", b"b", b"\xff"], pa.binary()).view(pa.string())},
            "the file is damaged or its text is not UTF-8",
        ),
    ],
)
def test_a_file_of_another_schema_is_refused_by_column(tmp_path: Path, changes: dict, message: str) -> None:
    path = _write(tmp_path / "bad.parquet", **changes)
    with pytest.raises(DataError, match=rf"bad\.parquet.*{message}"):
        load_parquet(path)


def test_a_column_that_stands_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "twice.parquet"
    pq.write_table(pa.Table.from_arrays([*GOOD.values(), GOOD["freq"]], [*GOOD, "freq"]), path)
    with pytest.raises(DataError, match="'freq': expected one of type string, got string, string"):
        load_parquet(path)


@pytest.mark.parametrize("damage", ["text", "empty", "truncated", "scrambled"])
def test_a_damaged_file_is_refused(tmp_path: Path, damage: str) -> None:
    path = _write(tmp_path / "bad.parquet", target=pa.array([list(np.random.default_rng(0).random(900))] * 3))
    whole = path.read_bytes()
    scrambled = bytearray(whole)
    scrambled[4:2000] = bytes(255 - byte for byte in scrambled[4:2000])
    content = {"text": b"not parquet at all", "empty": b"", "truncated": whole[:-100], "scrambled": bytes(scrambled)}
    path.write_bytes(content[damage])
    with pytest.raises(DataError, match=r"bad\.parquet: (expected a Parquet file|the file is damaged)"):
        load_parquet(path)


def test_a_small_file_that_unpacks_to_more_than_the_memory_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zeros = pa.array([np.zeros(1_000_000)] * 3, pa.list_(pa.float64()))
    path = _write(tmp_path / "bomb.parquet", target=zeros)
    assert path.stat().st_size < 100_000
    assert load_parquet(path).skipped == [(item, "constant") for item in "abc"]
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=40_000_000))
    with pytest.raises(DataError, match=r"bomb.parquet: unpacks to 3000009 values, .* 0.0 are free; split it into"):
        load_parquet(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.parquet: no such file in .*; check the name and datasets\.root"):
        load_parquet(tmp_path / "none.parquet")


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([], "empty"),
        ([np.nan] * 40, "all NaN"),
        ([1.0, np.inf] * 20, "infinite"),
        ([-np.inf] * 40, "infinite"),
        ([1.0, 2.0] * 15, "too short: under 32 steps"),
        ([5.0] * 40, "constant"),
        ([5.0, np.nan] * 20, "constant"),
        ([0.0] * 39 + [1e-30], None),
        ([np.nan] * 38 + [1.0, 2.0], None),
    ],
)
def test_a_series_that_cannot_be_used_has_its_reason(values: list[float], reason: str | None) -> None:
    assert unusable(np.array(values, dtype=np.float32)) == reason


def test_a_float64_value_beyond_float32_is_infinite(tmp_path: Path) -> None:
    target = pa.array([[1e300, 1.0, 2.0], [1.0, 2.0, 3.0], None], pa.list_(pa.float64()))
    found = load_parquet(_write(tmp_path / "x.parquet", target=target), min_length=3)
    assert found.skipped == [("a", "infinite"), ("c", "empty")]


@pytest.mark.parametrize(("items", "expected"), [("a|c", ["a", "c"]), (["c"], ["c"]), ("[ac]", ["a", "c"])])
def test_items_are_taken_by_expression_or_list(tmp_path: Path, items: Any, expected: list[str]) -> None:
    found = load_parquet(_write(tmp_path / "x.parquet"), items=items, min_length=3)
    assert [one.series for one in found.series] == expected


@pytest.mark.parametrize(
    ("items", "message"),
    [("z", "no item id matches 'z'; it has a, b, c"), (["a", "z"], r"\['z'\] are not in the file"), ("(", "regular")],
)
def test_a_filter_that_finds_nothing_is_refused(tmp_path: Path, items: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_parquet(_write(tmp_path / "x.parquet"), items=items)


def test_a_sample_is_seeded_and_in_order() -> None:
    rng = np.random.default_rng(0)
    series = [Series("d", f"{i:03d}", rng.standard_normal(40).astype(np.float32)) for i in range(50)]
    names = [[one.series for one in select(series, sample=(20, seed)).series] for seed in (1, 1, 2)]
    assert names[0] == names[1] == sorted(names[0])
    assert names[0] != names[2]
    assert len(set(names[0])) == 20
    assert select(series, sample=(20, 1)).available == 50
    assert len(select(series, sample=(60, 1)).series) == 50


def test_a_file_without_rows_gives_no_series(tmp_path: Path) -> None:
    pq.write_table(pa.table(GOOD).slice(0, 0), tmp_path / "x.parquet")
    found = load_parquet(tmp_path / "x.parquet")
    assert (found.series, found.skipped, found.available) == ([], [], 0)


@pytest.mark.skipif("TSFMSCOPE_DATA" not in os.environ, reason="TSFMSCOPE_DATA names no folder of real series")
def test_the_catalog_s_files_hold_what_it_says() -> None:
    root = Path(os.environ["TSFMSCOPE_DATA"])
    counts = {}
    for name, entry in CATALOG.items():
        if entry.source == "folder" and (root / str(entry.file)).exists():
            found = load_parquet(root / entry.file, dataset=name, items=entry.items)
            assert {one.freq for one in found.series} == {entry.freq}
            counts[name] = (found.available, dict(Counter(skip.reason for skip in found.skipped)))
    assert counts["australian_electricity_queensland"] == (1, {})
    assert counts["covid_deaths"] == (233, {"constant": 33})
    assert counts["car_parts"] == (2674, {})
