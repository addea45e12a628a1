"""Windows and rows of bench/skill.py on made files, with a real checkpoint; other groups' files are not opened."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench import skill
from tsfmscope.forecasting.skill import COLUMNS, dataset_ratios

RNG = np.random.default_rng(0)


def write(path: Path, series: list[tuple[str, int]]) -> None:
    rows = [
        {"item_id": f"s{n}", "start": datetime(2000, 1, 1), "freq": freq, "target": RNG.normal(50, 9, steps).tolist()}
        for n, (freq, steps) in enumerate(series)
    ]
    types = {"item_id": pa.string(), "start": pa.timestamp("ms"), "freq": pa.string(), "target": pa.list_(pa.float32())}
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(list(types.items()))), path)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "groups.csv").write_text("dataset,group\nmixed,report\nsecret,confirm\nused,tune\n")
    write(tmp_path / "mixed.parquet", [("D", 200)] * 6 + [("W", 150)] * 3 + [("YS", 40)])
    for name in ("secret", "used"):
        (tmp_path / f"{name}.parquet").write_text("not to be read")
    return tmp_path


def test_a_set_of_several_frequencies_has_a_season_and_a_horizon_for_each(corpus: Path) -> None:
    pairs = skill.cut_windows(list(skill.corpus_parts(corpus, "report")))
    facts = {windows.freq: (windows.season, part.horizon, len(windows)) for part, windows in pairs}
    assert facts == {"D": (7, 30, 6), "W": (52, 8, 3), "YS": (1, 6, 1)}
    assert {part.dataset for part, _ in pairs} == {"mixed"}


def test_the_windows_of_a_set_are_evenly_spaced_over_its_frequencies(corpus: Path) -> None:
    pairs = skill.cut_windows(list(skill.corpus_parts(corpus, "report")))
    chosen = [(windows.freq, windows.series) for _, windows in skill.spread_parts(pairs, 5)]
    assert chosen == [("D", ["s0", "s2", "s4"]), ("W", ["s6", "s8"])]
    assert sum(len(windows) for _, windows in skill.spread_parts(pairs, 99)) == 10


def test_rows_are_relative_to_seasonal_naive_and_gluonts_s_repeats_the_last_day(corpus: Path) -> None:
    pairs = skill.cut_windows(list(skill.corpus_parts(corpus, "report")))
    rows = [row for name in ("gluonts-naive", "chronos-bolt-mini") for row in skill.measure(name, pairs, 64)]
    assert {tuple(row) for row in rows} == {COLUMNS}
    naive = {row["freq"]: row for row in rows if row["model"] == "gluonts-naive"}
    assert naive["YS"]["error"] == naive["YS"]["naive_error"] and naive["D"]["error"] != naive["D"]["naive_error"]
    last = next(windows.future - windows.context[:, -1:] for part, windows in pairs if part.horizon == 30)
    assert naive["D"]["loss"] == pytest.approx(naive["D"]["error"]) == pytest.approx(np.abs(last).sum(), rel=1e-6)
    (model,) = (row["wql"] for row in dataset_ratios(rows) if row["model"] == "chronos-bolt-mini")
    # Noise: the quantiles of a model that has learned anything beat any former value.
    assert 0.3 < model < 0.9
