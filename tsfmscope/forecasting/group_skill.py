"""Means over groups of data sets of forecasters' errors relative to point seasonal naive's, from a CSV file of sums."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tsfmscope.forecasting.mean_skill import geometric_mean, mean_columns

# Columns of the file. One row per model, data set and frequency; loss, error and naive_error are sums over windows:
# of the quantile losses over the number of levels, of |y - median|, and of |y - point seasonal naive|.
TEXTS = ("model", "weights", "group", "dataset", "freq")
COUNTS = ("season", "horizon", "n_windows")
SUMS = ("loss", "error", "naive_error")
COLUMNS = (*TEXTS, *COUNTS, *SUMS)
BOOTSTRAP = 2000


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of the file."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            {**row, **{name: int(row[name]) for name in COUNTS}, **{name: float(row[name]) for name in SUMS}}
            for row in csv.DictReader(file)
        ]


def dataset_ratios(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the ratios wql and mae per model and data set; the windows of all frequencies are pooled.

    A data set without a window, or whose seasonal naive has no error, is left out.
    """
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["model"], row["group"], row["dataset"]), []).append(row)
    ratios = []
    for (model, group, dataset), parts in groups.items():
        loss, error, naive = (sum(part[name] for part in parts) for name in SUMS)
        if naive > 0:
            ratios.append(
                {
                    "model": model,
                    "group": group,
                    "dataset": dataset,
                    "n_windows": sum(part["n_windows"] for part in parts),
                    "season": ", ".join(str(part["season"]) for part in parts),
                    "horizon": ", ".join(str(part["horizon"]) for part in parts),
                    "wql": loss / naive,
                    "mae": error / naive,
                }
            )
    return ratios


def group_skill(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return geometric means over data sets per model and group, with 95 % bootstrap intervals and the worst data set.

    The bootstrap draws data sets. Rows are in the order of the file's models.
    """
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in dataset_ratios(rows):
        groups.setdefault((row["model"], row["group"]), []).append(row)
    means = []
    for (model, group), sets in groups.items():
        ratios = np.array([[row["wql"], row["mae"]] for row in sets])
        columns = mean_columns(("wql", "mae"), *geometric_mean(ratios, bootstrap=BOOTSTRAP, seed=0))
        worst = max(sets, key=lambda row: row["wql"])
        names = {"model": model, "group": group, "n_datasets": len(sets)}
        series = max(item["n_windows"] for item in sets)
        means.append({**names, "series": series, **columns, "worst": worst["dataset"], "worst_wql": worst["wql"]})
    return means


def interval(row: Mapping[str, Any], name: str) -> str:
    """Return a mean with its interval as text."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f"{row[name]:.3f}" + ("" if low is None else f" [{low:.3f}, {high:.3f}]")
