"""Stage `datasets`: what it leaves out stands in table `skipped`, by name where there are few."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml

from stages import datasets
from stages.config.params import load
from tsfmscope.errors import DataError
from tsfmscope.series.data_sets import DataSet, load_data_set

ROOT = Path(__file__).parents[2]


@pytest.fixture
def skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Rows of `skipped` for a file with two usable series, one that is all NaN and 25 that are constant."""
    rng = np.random.default_rng(0)
    values = {"b": rng.normal(size=50), "gone": np.full(50, np.nan), "a": rng.normal(size=50)}
    values |= {f"flat-{n}": np.full(50, float(n)) for n in range(25)}
    rows = [{"item_id": k, "start": datetime(2024, 1, 1), "freq": "D", "target": v} for k, v in values.items()]
    pd.DataFrame(rows).to_parquet(tmp_path / "mine.parquet")
    block = yaml.safe_load((ROOT / "params" / "smoke.yaml").read_text())
    block["datasets"] = {
        "root": str(tmp_path),
        "sets": {"mine": {"source": "folder", "file": "mine.parquet", "horizon": 4}},
    }
    block["studies"]["smoke"] = {"title": "smoke", "measures": ["weights"], "models": "all"}
    block["studies"] = {"smoke": block["studies"]["smoke"]}
    block["report"], block["compression"] = {"study": "smoke"}, {}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(block))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TSFMSCOPE_DATA", raising=False)
    datasets.main(load())
    found: list[dict[str, Any]] = pq.read_table("data/datasets/skipped.parquet").to_pylist()
    return found


def test_unusable_series_are_named_up_to_twenty_a_reason_and_the_others_counted(skipped: list[dict[str, Any]]) -> None:
    assert [(row["series"], row["n"]) for row in skipped if row["reason"] == "all NaN"] == [("gone", 1)]
    constant = [(row["series"], row["n"]) for row in skipped if row["reason"] == "constant"]
    assert constant == [*((f"flat-{n}", 1) for n in range(20)), (None, 5)]
    assert {(row["stage"], row["dataset"]) for row in skipped} == {("datasets", "mine")}


def test_the_answer_still_counts_a_reason_as_a_whole(skipped: list[dict[str, Any]]) -> None:
    with duckdb.connect() as connection:
        connection.execute("create view skipped as from 'data/datasets/skipped.parquet'")
        sql = (ROOT / "store/sql/answers/skipped_summary.sql").read_text()
        rows = connection.sql(f"select reason, n, n_series from ({sql})").fetchall()
    assert sorted(rows) == [("all NaN", 1, 1), ("constant", 25, 20)]


def test_a_csv_file_of_params_yaml_is_read_with_the_columns_that_its_block_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = pd.date_range("2024-01-01", periods=40)
    rows = {"shop": ["n"] * 40 + ["s"] * 40, "day": [*days.strftime("%d.%m.%Y")] * 2, "sold": np.arange(80.0)}
    pd.DataFrame(rows | {"price": 9.0}).to_csv(tmp_path / "shops.csv", index=False)
    monkeypatch.setenv("TSFMSCOPE_DATA", str(tmp_path))
    block = {"file": "shops.csv", "id": "shop", "time": "day", "value": "sold", "time_format": "%d.%m.%Y"}
    block |= {"source": "folder", "horizon": 4, "domain": "retail", "items": "[s-z]"}
    dataset = DataSet.model_validate(block)
    params = load(ROOT / "params" / "smoke.yaml")
    (series,) = load_data_set("shops", dataset, root=params.data_root, max_series=None, seed=0).series
    assert (series.series, series.domain, series.freq, series.start) == ("s", "retail", "D", datetime(2024, 1, 1))
    assert series.values.tolist() == [*range(40, 80)]
    with pytest.raises(ValueError, match="time: expected source folder, got 'bundled'"):
        DataSet.model_validate({"source": "bundled", "horizon": 4, "time": "day"})


def test_a_parquet_file_of_several_frequencies_gives_the_series_of_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [
        {"item_id": f"{freq}{n}", "start": datetime(2024, 1, 1), "freq": freq, "target": rng.normal(size=50)}
        for freq in ("D", "W")
        for n in range(3)
    ]
    pd.DataFrame(rows).to_parquet(tmp_path / "mixed.parquet")
    block: dict[str, Any] = {"source": "folder", "file": "mixed.parquet", "horizon": 4}

    def read(**more: Any) -> list[str]:
        loaded = load_data_set("mixed", DataSet(**block, **more), root=tmp_path, max_series=None, seed=0)
        return sorted(one.freq for one in loaded.series)

    assert read() == [*"DDDWWW"] and read(only_freq="W") == [*"WWW"]
    for change in ({"file": "mixed.csv"}, {"file": "mixed.parquet", "fill": 0.0}):
        with pytest.raises(ValueError, match="only_freq: expected a Parquet file without options of reading"):
            DataSet(**block | change, only_freq="W")
    with pytest.raises(DataError, match=r"mixed.parquet: only_freq: no series of frequency 'h'; it has D, W"):
        read(only_freq="h")
