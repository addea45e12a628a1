from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.local_hub import HubHandler, LocalHub, Repository, serving
from tsfmscope.errors import DataError, HubError, MissingOnHubError
from tsfmscope.series.calendar import season_of
from tsfmscope.series.catalog import CATALOG
from tsfmscope.series.files import sources
from tsfmscope.series.files.sources import (
    BUNDLED,
    REPOSITORY,
    LoadedSeries,
    infer_freq,
    load_bundled,
    load_hub,
    load_parquet,
    select,
    unusable,
)
from tsfmscope.series.types import Series

GOOD = {
    "item_id": pa.array(["a", "b", "c"]),
    "start": pa.array([datetime(2020, 1, 1)] * 3, pa.timestamp("ms")),
    "freq": pa.array(["D", "D", "h"]),
    "target": pa.array([[1.0, 2.0, None, 4.0], [0.5] * 3 + [np.nan], [3.0, 1.0, 2.0]], pa.list_(pa.float32())),
}


def read(path: Path, min_length: int = 32, **options: Any) -> LoadedSeries:
    return select(load_parquet(path, **options), min_length=min_length)


def _write(path: Path, **changes: Any) -> Path:
    columns = {name: column for name, column in {**GOOD, **changes}.items() if column is not None}
    pq.write_table(pa.table(columns), path)
    return path


def test_a_good_file_is_read_with_missing_values_as_nan(tmp_path: Path) -> None:
    found = read(_write(tmp_path / "mine.parquet"), domain="x", min_length=3)
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
    assert read(path).skipped == [(item, "constant") for item in "abc"]
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
    found = read(_write(tmp_path / "x.parquet", target=target), min_length=3)
    assert found.skipped == [("a", "infinite"), ("c", "empty")]


@pytest.mark.parametrize(("items", "expected"), [("a|c", ["a", "c"]), (["c"], ["c"]), ("[ac]", ["a", "c"])])
def test_items_are_taken_by_expression_or_list(tmp_path: Path, items: Any, expected: list[str]) -> None:
    found = read(_write(tmp_path / "x.parquet"), items=items, min_length=3)
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
    found = read(tmp_path / "x.parquet")
    assert (found.series, found.skipped, found.available) == ([], [], 0)


@pytest.mark.skipif("TSFMSCOPE_DATA" not in os.environ, reason="TSFMSCOPE_DATA names no folder of real series")
def test_the_catalog_s_files_hold_what_it_says() -> None:
    root = Path(os.environ["TSFMSCOPE_DATA"])
    counts = {}
    for name, entry in CATALOG.items():
        if entry.source == "folder" and (root / str(entry.file)).exists():
            found = read(root / entry.file, dataset=name, items=entry.items)
            assert {one.freq for one in found.series} == {entry.freq}
            counts[name] = (found.available, dict(Counter(skip.reason for skip in found.skipped)))
    assert counts["australian_electricity_queensland"] == (1, {})
    assert counts["covid_deaths"] == (233, {"constant": 33})
    assert counts["car_parts"] == (2674, {})


@pytest.mark.parametrize(
    ("name", "count", "steps", "missing", "first", "last", "season"),
    [
        ("sunspots", 1, 309, 0, 5.0, 2.9, 1),
        ("co2", 1, 2284, 59, 316.1, 371.5, 52),
        ("elnino", 1, 732, 0, 23.11, 22.07, 12),
        ("nile", 1, 100, 0, 1120.0, 740.0, 1),
        ("macrodata", 12, 203, 0, 2710.349, 12990.341, 4),
    ],
)
def test_a_bundled_set_has_its_known_shape(
    name: str, count: int, steps: int, missing: int, first: float, last: float, season: int
) -> None:
    series = load_bundled(name)
    assert len(series) == count
    one = series[0]
    assert (len(one.values), int(np.isnan(one.values).sum())) == (steps, missing)
    assert one.values.dtype == np.float32
    assert (one.values[0], one.values[-1]) == (np.float32(first), np.float32(last))
    assert season_of(series) == season
    assert (one.freq, one.domain) == (CATALOG[name].freq, CATALOG[name].domain)
    assert all(unusable(s.values) is None for s in series)
    assert len({s.series for s in series}) == count


def test_elnino_runs_through_the_months_of_a_year_first() -> None:
    one = load_bundled("elnino")[0]
    assert one.start == datetime(1950, 1, 1)
    np.testing.assert_allclose(one.values[[1, 11, 12]], [24.2, 21.8, 24.19], rtol=1e-6)


def test_another_name_is_refused_with_the_list() -> None:
    with pytest.raises(ValueError, match=r"expected one of \['co2', .*'sunspots'\], got 'sunspot'"):
        load_bundled("sunspot")
    assert set(BUNDLED) == {name for name, entry in CATALOG.items() if entry.source == "bundled"}


COMMIT = "0123456789abcdef0123456789abcdef01234567"
HOURS = [datetime(2020, 1, 1) + timedelta(hours=i) for i in range(40)]


def _parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def _rows(**columns: object) -> bytes:
    times = pa.array([HOURS, HOURS], pa.list_(pa.timestamp("ms")))
    return _parquet(pa.table({"id": ["T1", "T2"], "timestamp": times, **columns}))


FILES = {
    "hourly/train-0.parquet": _rows(target=[list(np.arange(40.0)), [1.0] * 40]),
    "pairs/train-0.parquet": _rows(north=[list(np.arange(40.0))] * 2, south=[list(np.arange(40.0) ** 2)] * 2),
    "other/train-0.parquet": _parquet(pa.table({"x": [1.0]})),
    "broken/train-0.parquet": b"not parquet",
}


class DatasetHandler(HubHandler):
    """Answer for data sets as for models."""

    def do_GET(self) -> None:
        self.path = self.path.replace("/api/datasets/", "/api/models/").replace("/datasets/", "/")
        super().do_GET()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with serving(LocalHub(DatasetHandler)) as hub:
        hub.repositories[REPOSITORY] = Repository(FILES, COMMIT)
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        yield


def test_a_data_set_is_fetched_and_then_read_from_the_cache(server: None, tmp_path: Path) -> None:
    for allowed in (True, False):
        series, constant = load_hub("hourly", allowed=allowed, domain="x", cache=tmp_path)
        assert (series.dataset, series.series, series.freq, series.start) == ("hourly", "T1", "h", HOURS[0])
        assert series.provenance == f"hub {REPOSITORY}@{COMMIT} hourly"
        np.testing.assert_array_equal(series.values, np.arange(40, dtype=np.float32))
        assert (constant.series, np.ptp(constant.values)) == ("T2", 0)


def test_a_data_set_that_is_not_there_is_said(server: None, tmp_path: Path) -> None:
    with pytest.raises(MissingOnHubError, match=r"no file like \['missing/\*\.parquet'\]; check the name"):
        load_hub("missing", allowed=True, cache=tmp_path)


def _shard(folder: Path, name: str) -> Path:
    path = folder / "train-0.parquet"
    path.write_bytes(FILES[f"{name}/train-0.parquet"])
    return path


def test_each_variate_is_a_series(tmp_path: Path) -> None:
    found = sources._series(_shard(tmp_path, "pairs"), "pairs", "x", "")
    assert [one.series for one in found] == ["T1:north", "T1:south", "T2:north", "T2:south"]
    np.testing.assert_array_equal(found[3].values, np.arange(40, dtype=np.float32) ** 2)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("other", "other/train-0.parquet: expected columns id, timestamp and lists of numbers, got x double"),
        ("broken", "broken/train-0.parquet: expected a Parquet file"),
    ],
)
def test_a_shard_that_cannot_be_used_says_why(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        sources._series(_shard(tmp_path, name), name, "", "")


def test_the_hub_is_never_asked_unless_allowed(tmp_path: Path) -> None:
    with pytest.raises(HubError, match="downloads are not allowed"):
        load_hub("hourly", allowed=False, cache=tmp_path)


def test_a_name_that_leaves_the_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a folder's name"):
        load_hub("../x", allowed=True, cache=tmp_path)


@pytest.mark.parametrize(
    ("times", "freq"),
    [
        (HOURS, "h"),
        ([datetime(2020, month, 1) for month in range(1, 9)], "MS"),
        (HOURS[:2], ""),
        ([HOURS[0], HOURS[1], HOURS[5], HOURS[7]], ""),
    ],
)
def test_the_frequency_is_read_from_the_times(times: list[datetime], freq: str) -> None:
    assert infer_freq(times) == freq
