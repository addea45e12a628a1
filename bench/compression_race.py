"""Race of compression methods: forecast error at equal size, over families, sizes and calibration seeds.

    python -m bench.compression_race [--quick] [--cells FILE] [--models NAME ...] [--sizes S ...] [--seeds N ...]

Every method gets the same calibration windows: of three data sets and of synthetic series, drawn with the seed. The
error is the pooled WQL (sum of quantile losses over the sum of absolute targets) on the last windows of data sets that
did not calibrate, over that of the dense model. `size` is the share of the bytes of the attention parameters that is
left. Models are bundled checkpoints and `chronos-bolt-350k` of the folder TSFMSCOPE_WEIGHTS; series are those of the
folder TSFMSCOPE_DATA. Nothing is healed.

Besides the methods of `tsfmscope compress`:
- prune-heads: heads with the smallest stable rank of W_O W_V are removed (tsfm-lens).
- drop-layers: attention layers are removed, those first that change the last hidden states least (after ShortGPT).
- asvd, svd-llm, fwsvd, gfwsvd, kfac-svd, kfac-svd-lems, zs-svd: published methods that factorise single matrices
  (bench/race_matrices.py).
- basis-sharing: consecutive layers share the bases of their matrices (bench/race_structures.py).
- slicegpt: the residual stream gets narrower, with MLPs and embeddings; the whole model has the bytes of one whose
  attention alone has the size. Not defined for TimesFM, TimesFM 2.5 and Totem.
- bfloat16, int8: the attention matrices are rounded; int8 with one scale per row. Their size is 0.5, and 0.25 plus the
  scales.

The first table has the geometric mean of the errors over models, seeds and data sets, the second our error over that of
each method, paired. A line of the third is a model and a size: our error, the best other method, and the methods whose
error is significantly smaller (95 % interval, Student's t over data sets, errors of a data set averaged over seeds).
The fourth compares ours with the best other method of each model.

--cells: file with one JSON line per finished cell. Cells that it has are not computed again, and new ones are added, so
that a stopped race goes on.
Last line JSON: means by method and size, and the lines of the third table.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from bench.race_matrices import MATRIX_METHODS, Calibration
from bench.race_structures import ROUNDED, STRUCTURE_METHODS, round_attention
from bench.truncation_trained import SYNTHETIC, load_series, log_wql, score_windows
from tsfmscope.compression.budget import BudgetError
from tsfmscope.compression.compress import compress_model
from tsfmscope.compression.options import METHODS
from tsfmscope.errors import ModelError
from tsfmscope.models.registry import family_of_folder, load
from tsfmscope.series.tables import series_table
from tsfmscope.statistics import means

# The default of `tsfmscope compress`.
OURS = "activation-aware-refit"
TRAINED = "chronos-bolt-350k"
# Families with a token per step (Chronos-T5, Lag-Llama, Time-MoE) are left out: each pass over the
# calibration windows takes them most of a minute.
FAMILIES = ("chronos-bolt", "chronos-2", "timesfm", "timesfm-2.5", "patchtst", "moirai", "totem", "visionts")
MODELS = (TRAINED, *(f"{family}-mini" for family in FAMILIES))
CALIBRATE = ("covid_deaths", "nn5_weekly", "pedestrian")
SIZES = (0.75, 0.5, 0.35, 0.25, 0.15, 0.1)
SEEDS = (0, 1, 2)
# Scored series per data set, and options of the calibration windows.
SERIES = 8
OPTIONS = {"datasets": CALIBRATE, "windows": 32, "context": 512, "horizon": 24, "held_out": 0.2, "synthetic": SYNTHETIC}
# Methods of `tsfmscope compress` that compress attention alone.
OWN = tuple(name for name, method in METHODS.items() if "budget" in method.rules)
# Methods that read no calibration data.
UNSEEDED = ("prune-heads", *ROUNDED, *(name for name in OWN if not METHODS[name].reads_data))
# Method -> size -> geometric mean of the errors, and its 95 % interval.
Table = dict[str, dict[float, tuple[float, float, float]]]


class Cell(NamedTuple):
    """One compressed model: the logarithms of its errors over the dense model's, by data set."""

    model: str
    method: str
    size: float
    seed: int
    logs: dict[str, float]


class Race:
    """A dense model with its scored windows, errors and calibration series."""

    def __init__(self, name: str, series: Mapping[str, list[Any]]) -> None:
        folder = Path(os.environ["TSFMSCOPE_WEIGHTS"], name) if name == TRAINED else Path("tsfmscope/checkpoints", name)
        self.name, self.base = name, load(str(family_of_folder(folder)), folder, options={})
        self.tables = {dataset: series_table(series[dataset]) for dataset in CALIBRATE}
        self.windows = score_windows({name: part[:SERIES] for name, part in series.items() if name not in CALIBRATE})
        self.dense = {dataset: log_wql(self.base, windows) for dataset, windows in self.windows.items()}
        self._calibrations: dict[int, Calibration] = {}

    def cell(self, method: str, size: float, seed: int) -> Cell:
        """Compress the model and score it; without errors if the method cannot compress it to this size."""
        if seed not in self._calibrations:
            self._calibrations[seed] = Calibration(self.base, self.tables, OPTIONS | {"seed": seed})
        model, data = copy.deepcopy(self.base), self._calibrations[seed]
        try:
            if method in ROUNDED:
                size = round(round_attention(model, method), 3)
            elif method in OWN:
                own = {"method": method, "ranks": {"budget": size}}
                compress_model(model, own, base_model=self.name, tables=self.tables, calibration=data.options)
            else:
                (MATRIX_METHODS | STRUCTURE_METHODS)[method](model, size, data)
        # LEMS measures nothing in layers after the last hidden state (VisionTS). Not all families can be sliced.
        except (BudgetError, ModelError):
            return Cell(self.name, method, size, seed, {})
        logs = {name: log_wql(model, windows) - self.dense[name] for name, windows in self.windows.items()}
        return Cell(self.name, method, size, seed, logs)


def run(models: Sequence[str], sizes: Sequence[float], seeds: Sequence[int], finished: set[Any]) -> Iterator[Cell]:
    """Yield the cells that are not finished, seed by seed; print a line of progress per model and size."""
    series = load_series()
    races = {name: Race(name, series) for name in models}
    for seed, name, size in itertools.product(seeds, models, sizes):
        began, count = time.monotonic(), 0
        for method in (*OWN, *MATRIX_METHODS, *STRUCTURE_METHODS, *ROUNDED):
            is_repeated = (method in UNSEEDED and seed != seeds[0]) or (method in ROUNDED and size != sizes[0])
            if not is_repeated and (name, method, size, seed) not in finished:
                count += 1
                yield races[name].cell(method, size, seed)
        rate = count / (time.monotonic() - began)
        print(f"seed {seed}, {name}, size {size}: {rate:.2f} cells a second", file=sys.stderr, flush=True)


def mean_table(cells: Sequence[Cell]) -> Table:
    """Return by method and size the geometric mean of the errors, and its 95 % interval over models."""
    found: dict[str, dict[float, dict[str, list[float]]]] = {}
    for cell in cells:
        if cell.logs:
            by_model = found.setdefault(cell.method, {}).setdefault(cell.size, {})
            by_model.setdefault(cell.model, []).append(float(np.mean(list(cell.logs.values()))))
    table: Table = {}
    for method, by_size in found.items():
        for size, by_model in by_size.items():
            interval = means.mean(np.array([np.mean(logs) for logs in by_model.values()]))
            limits = np.exp([interval.estimate, interval.low, interval.high])
            table.setdefault(method, {})[size] = (float(limits[0]), float(limits[1]), float(limits[2]))
    return table


def with_mean_sizes(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells with one size, the mean, for each way of rounding, whose scales take other shares by model."""
    sizes = {name: [cell.size for cell in cells if cell.method == name] for name in ROUNDED}
    means_of = {name: round(float(np.mean(found)), 3) for name, found in sizes.items() if found}
    return [cell._replace(size=means_of.get(cell.method, cell.size)) for cell in cells]


def paired_cells(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells of the other methods with the logarithms of our error over theirs, on the same data sets."""
    ours = {(cell.model, cell.size, cell.seed): cell.logs for cell in cells if cell.method == OURS}
    return [
        cell._replace(
            logs={name: ours[cell.model, cell.size, cell.seed][name] - log for name, log in cell.logs.items()}
        )
        for cell in cells
        if cell.method != OURS and (cell.model, cell.size, cell.seed) in ours
    ]


def compare_by_size(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return per size the means of our error and of each model's best other method, and their ratio.

    rows: of `compare_cells`. The best other method is chosen on the scored data sets, which favours it. ratio: ours
    over the other, with Student's 95 % interval over models. least: number of models in which ours is smaller.
    """
    table = []
    for size in sorted({row["size"] for row in rows}, reverse=True):
        pairs = [(row["ours"], row["other"]) for row in rows if row["size"] == size]
        ours, others = np.log(np.array(pairs)).T
        interval = means.mean(ours - others)
        limits = [round(float(np.exp(value)), 3) for value in (interval.estimate, interval.low, interval.high)]
        table.append(
            {"size": size, "ours": round(float(np.exp(ours.mean())), 3),
             "other": round(float(np.exp(others.mean())), 3), "ratio": limits[0], "low": limits[1], "high": limits[2],
             "least": sum(own < other for own, other in pairs), "models": len(pairs)}
        )  # fmt: skip
    return table


def compare_cells(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Return for each model and size our error, the best other method, and the significantly better ones."""
    by_cell: dict[tuple[str, float], dict[str, dict[str, list[float]]]] = {}
    for cell in cells:
        if cell.logs and cell.method not in ROUNDED:
            by_method = by_cell.setdefault((cell.model, cell.size), {})
            for dataset, log in cell.logs.items():
                by_method.setdefault(cell.method, {}).setdefault(dataset, []).append(log)
    rows = []
    for (model, size), by_method in by_cell.items():
        logs = {name: np.array([np.mean(parts[key]) for key in sorted(parts)]) for name, parts in by_method.items()}
        if OURS not in logs:
            continue
        others = {name: values for name, values in logs.items() if name != OURS}
        better = sorted(name for name, values in others.items() if means.mean(logs[OURS] - values).low > 0)
        best = min(others, key=lambda name: float(others[name].mean()))
        rows.append(
            {"model": model, "size": size, "ours": round(float(np.exp(logs[OURS].mean())), 4), "best_other": best,
             "other": round(float(np.exp(others[best].mean())), 4), "better": better}
        )  # fmt: skip
    return rows


def read_cells(path: Path | None) -> list[Cell]:
    """Return the cells of a file of JSON lines; a line that a stopped run broke off is left out."""
    cells = []
    for line in path.read_text().splitlines() if path and path.exists() else []:
        try:
            cells.append(Cell(**json.loads(line)))
        except json.JSONDecodeError:
            continue
    return cells


def main() -> None:
    """Run the race and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one model, a quarter of the size, one seed")
    parser.add_argument("--cells", type=Path, help="file of finished cells")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--sizes", nargs="+", type=float, choices=SIZES, default=list(SIZES))
    parser.add_argument("--seeds", nargs="+", type=int, choices=SEEDS, default=list(SEEDS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    cells = read_cells(options.cells)
    finished = {(cell.model, cell.method, cell.size, cell.seed) for cell in cells}
    models, sizes, seeds = options.models, options.sizes, options.seeds
    if options.quick:
        models, sizes, seeds = ["patchtst-mini"], [0.25], [0]
    finished |= {(cell.model, cell.method, sizes[0], cell.seed) for cell in cells if cell.method in ROUNDED}
    for cell in run(models, sizes, seeds, finished):
        cells.append(cell)
        if options.cells:
            with options.cells.open("a") as file:
                file.write(json.dumps(cell._asdict()) + "\n")
    table = mean_table(with_mean_sizes(cells))
    print(f"{'method':24s} " + " ".join(f"{size:>22}" for size in sizes))
    for method, by_size in sorted(table.items(), key=lambda item: min(item[1].values())):
        row = [by_size.get(size) for size in sizes]
        printed = [f"{one[0]:7.3f} [{one[1]:5.3f}, {one[2]:5.3f}]" if one else "-" for one in row]
        if method in ROUNDED:
            ((size, one),) = by_size.items()
            printed = [f"{one[0]:7.3f} at size {size:.3f}"]
        print(f"{method:24s} " + " ".join(f"{text:>22s}" for text in printed))
    print("error of ours over that of each method, paired, with the interval over models")
    for method, by_size in mean_table(paired_cells(cells)).items():
        if method not in ROUNDED:
            text = (f"{size:g}: {ratio:.3f} [{low:.3f}, {high:.3f}]" for size, (ratio, low, high) in by_size.items())
            print(f"{method:24s} " + ", ".join(text))
    rows = compare_cells(cells)
    for row in rows:
        print("{model:18s} {size:5.2f} ours {ours:6.3f}, {best_other} {other:6.3f}".format(**row), *row["better"])
    for row in compare_by_size(rows):
        print(
            "{size:5.2f} ours {ours:.3f}, best other of each model {other:.3f}, paired {ratio:.3f} "
            "[{low:.3f}, {high:.3f}], least in {least} of {models}".format(**row)
        )
    rounded = {name: {size: round(one[0], 4) for size, one in by_size.items()} for name, by_size in table.items()}
    print(json.dumps({"means": rounded, "cells": rows}))


if __name__ == "__main__":
    main()
