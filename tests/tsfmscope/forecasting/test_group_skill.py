"""Means over groups of data sets: pooling over frequencies, the interval, the worst set."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tsfmscope.forecasting.skill import COLUMNS, dataset_ratios, group_skill, interval, read_rows


def row(dataset: str, loss: float, naive: float = 4.0, **changes: Any) -> dict[str, Any]:
    facts = {
        "model": "m",
        "weights": "w",
        "group": "report",
        "dataset": dataset,
        "freq": "D",
        "season": 7,
        "horizon": 30,
    }
    return facts | {"n_windows": 2, "loss": loss, "error": 1.0, "naive_error": naive} | changes


def test_the_windows_of_all_frequencies_of_a_set_are_pooled_before_the_ratio() -> None:
    rows = [row("a", 2.0), row("a", 4.0, 20.0, freq="h", season=24, horizon=48), row("flat", 1.0, 0.0)]
    (found,) = dataset_ratios(rows)
    assert (found["wql"], found["mae"]) == (6 / 24, 2 / 24)
    assert (found["n_windows"], found["season"], found["horizon"]) == (4, "7, 24", "30, 48")


def test_means_are_geometric_and_groups_apart(tmp_path: Path) -> None:
    ratios = [0.5, 2.0, 1.0, 4.0, 0.25, 1.0, 3.0]
    rows = [row(f"s{n}", 4 * ratio) for n, ratio in enumerate(ratios)] + [row("g", 8.0, group="guided")]
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    assert read_rows(tmp_path / "rows.csv") == rows
    report, guided = group_skill(rows)
    assert report["wql"] == pytest.approx(np.exp(np.log(ratios).mean()))
    assert report["wql_low"] < report["wql"] < report["wql_high"]
    assert (report["n_datasets"], report["worst"], report["worst_wql"]) == (7, "s3", 4.0)
    assert (guided["n_datasets"], guided["wql"], interval(guided, "wql")) == (1, 2.0, "2.000")
    assert interval(report, "wql") == f"{report['wql']:.3f} [{report['wql_low']:.3f}, {report['wql_high']:.3f}]"
