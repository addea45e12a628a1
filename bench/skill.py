"""Skill of the bundled checkpoints on real data sets: those that guided the recipes, and those that chose nothing.

    python -m bench.skill [--quick] [--models NAME ...] [--corpus FOLDER] [--out FILE]

The guided sets are the bundled ones and the files of the folder TSFMSCOPE_DATA, 23 sets by the names of the catalogue.
The report sets are the files of the corpus folder whose group in its groups.csv is `report`; no other file of it is
read. Each set gives the last windows of at most 64 evenly spaced series (fewer for `SLOW`), context 512.

The season is that of `tsfmscope.series.calendar`. The horizon of a guided set is the catalogue's. A report set may
hold several frequencies: each has its own season and horizon (`HORIZONS`), and the errors of its windows are added up.
A ratio is the sum of the model's losses over that of point seasonal naive on the same windows of the set. Reference
rows: AutoTheta, probabilistic seasonal naive, and point seasonal naive with GluonTS's season (1 for days and weeks).

Each model's rows are appended to --out when it is done, in place of its former ones, and so a run may be continued with
other models. `--quick`: two models, four series a set.

Last line JSON: the means by model and group. The table is docs/models.md's.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from docs.building.skill import SERIES, table
from tsfmscope.forecasting.baselines import Local, seasonal_naive
from tsfmscope.forecasting.scores import MEDIAN, absolute_errors, quantile_losses
from tsfmscope.forecasting.skill import COLUMNS, group_skill, read_rows, sample_seed
from tsfmscope.models import registry
from tsfmscope.models.base import QUANTILES
from tsfmscope.models.registry import family_of_folder
from tsfmscope.models.types import Forecast
from tsfmscope.series.calendar import gluonts_seasonality
from tsfmscope.series.catalog import CATALOG
from tsfmscope.series.files.sources import MIN_LENGTH, load_bundled, load_parquet, select
from tsfmscope.series.types import Series, Windows
from tsfmscope.series.windows import last_windows

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "results" / "skill.csv"
CONTEXT, SAMPLES = 512, 20
# Steps to forecast in a report set, by frequency; 48 for steps of at most an hour.
HORIZONS = {"YS": 6, "QS": 8, "MS": 12, "W": 8, "2W": 8, "D": 30, "B": 30}
# Whole sets of the catalogue of which the guided sets are parts.
WHOLES = {"australian_electricity"}
# Reference forecasts.
BASELINES = ("auto-theta", "seasonal-naive", "gluonts-naive")
# Largest number of series per set of forecasters that take seconds per series.
SLOW = {"auto-theta": 16, "chronos-t5-mini": 8, "lag-llama-mini": 12, "time-moe-mini": 8, "wavetoken-mini": 8}


class Part(NamedTuple):
    """Series of one frequency of one data set, and the steps to forecast."""

    group: str
    dataset: str
    horizon: int
    series: Sequence[Series]


class GluontsNaive:
    """Point seasonal naive with GluonTS's season."""

    def forecast(self, windows: Windows, *, levels: Sequence[float], samples: int, seeds: Sequence[int]) -> Forecast:
        """Return the forecast, equal at all levels."""
        season = gluonts_seasonality(windows.freq)
        return Forecast(seasonal_naive(replace(windows, season=season), len(levels)), tuple(levels))


def guided_parts() -> Iterator[Part]:
    """Yield the data sets that guided the recipes."""
    folder = Path(os.environ["TSFMSCOPE_DATA"])
    for name, entry in CATALOG.items():
        if entry.source == "bundled":
            yield Part("guided", name, entry.horizon, select(load_bundled(name)).series)
        elif entry.source == "folder" and name not in WHOLES and str(entry.file).endswith(".parquet"):
            path = folder / str(entry.file)
            if path.is_file():
                yield Part(
                    "guided", name, entry.horizon, select(load_parquet(path, dataset=name, items=entry.items)).series
                )


def corpus_parts(corpus: Path, group: str) -> Iterator[Part]:
    """Yield the frequencies of the data sets of one group of the corpus; files of other groups are not opened."""
    with (corpus / "groups.csv").open(encoding="utf-8", newline="") as file:
        names = [row["dataset"] for row in csv.DictReader(file) if row["group"] == group]
    for name in sorted(names):
        series = select(load_parquet(corpus / f"{name}.parquet", dataset=name), min_length=MIN_LENGTH).series
        for freq in sorted({item.freq for item in series}):
            yield Part(group, name, HORIZONS.get(freq, 48), [item for item in series if item.freq == freq])


def cut_windows(parts: Sequence[Part]) -> list[tuple[Part, Windows]]:
    """Return the parts with the last windows of their series, those that have any."""
    pairs = [(part, last_windows(part.series, context=CONTEXT, horizon=part.horizon)[0]) for part in parts]
    return [(part, windows) for part, windows in pairs if len(windows)]


def spread_parts(pairs: Sequence[tuple[Part, Windows]], count: int) -> Iterator[tuple[Part, Windows]]:
    """Yield the parts with `count` windows per data set, evenly spaced over its parts in their order."""
    for dataset in dict.fromkeys(part.dataset for part, _ in pairs):
        group = [(part, windows) for part, windows in pairs if part.dataset == dataset]
        total, first = sum(len(windows) for _, windows in group), 0
        chosen = {row * total // count for row in range(count)} if total > count else set(range(total))
        for part, windows in group:
            if rows := [row for row in range(len(windows)) if first + row in chosen]:
                yield part, windows.take(rows)
            first += len(windows)


def load(name: str) -> tuple[Any, str]:
    """Return a forecaster, and the fingerprint of its weights; a baseline has none."""
    if name == "gluonts-naive":
        return GluontsNaive(), ""
    if name in BASELINES:
        return Local(name), ""
    folder = ROOT / "tsfmscope" / "checkpoints" / name
    folder = folder if folder.is_dir() else Path(os.environ["TSFMSCOPE_WEIGHTS"], name)
    family = registry.family_class(str(family_of_folder(folder)))
    return family.load(folder), registry.resolve(str(folder)).fingerprint[:12]


def measure(name: str, pairs: Sequence[tuple[Part, Windows]], count: int) -> Iterator[dict[str, Any]]:
    """Yield a row of the CSV file for each part."""
    model, weights = load(name)
    for part, windows in spread_parts(pairs, count):
        seeds = [sample_seed(0, row) for row in range(len(windows))]
        values = model.forecast(windows, levels=QUANTILES, samples=SAMPLES, seeds=seeds).values
        failed = model.failed if isinstance(model, Local) else {}
        rows = [row for row, series in enumerate(windows.series) if series not in failed]
        windows, values = windows.take(rows), np.asarray(values, dtype=np.float64)[rows]
        median = values[:, QUANTILES.index(MEDIAN)]
        naive = seasonal_naive(windows, 1)[:, 0]
        yield {
            "model": name,
            "weights": weights,
            "group": part.group,
            "dataset": part.dataset,
            "freq": windows.freq,
            "season": windows.season,
            "horizon": part.horizon,
            "n_windows": len(rows),
            "loss": quantile_losses(windows.future, values, QUANTILES).sum() / len(QUANTILES),
            "error": absolute_errors(windows.future, median).sum(),
            "naive_error": absolute_errors(windows.future, naive).sum(),
        }


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write the file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()} for row in rows
        )


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two models, four series a set")
    parser.add_argument("--models", nargs="+", help="bundled models, folders of TSFMSCOPE_WEIGHTS, or baselines")
    parser.add_argument("--corpus", type=Path, default=ROOT.parent / "shared" / "corpus", help="folder of the corpus")
    parser.add_argument("--out", type=Path, help="CSV file of the rows; default: docs/results/skill.csv, none if quick")
    options = parser.parse_args()
    torch.set_num_threads(1)
    minis = sorted(folder.name for folder in (ROOT / "tsfmscope" / "checkpoints").glob("*-mini"))
    names = options.models or (["gluonts-naive", "patchtst-mini"] if options.quick else [*BASELINES, *minis])
    out = options.out or (None if options.quick else OUT)
    pairs = cut_windows([*guided_parts(), *corpus_parts(options.corpus, "report")])
    rows = read_rows(out) if out and out.is_file() else []
    for name in names:
        start = time.process_time()
        measured = list(measure(name, pairs, 4 if options.quick else SLOW.get(name, SERIES)))
        rows = [row for row in rows if row["model"] != name] + measured
        if out:
            write_rows(out, rows)
        print(f"{name}: {time.process_time() - start:.0f} s", flush=True)
    means = group_skill(rows)
    print(table(means))
    print(json.dumps(means))


if __name__ == "__main__":
    main()
