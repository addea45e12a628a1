"""Race of compression methods: forecast error at equal size, over families, sizes and calibration seeds.

    python -m bench.compression_race [--quick] [--cells FILE] [--models NAME ...] [--sizes S ...] [--seeds N ...]

Every method gets the same calibration windows: of three data sets and of synthetic series, drawn with the seed. The
error is the pooled WQL (sum of quantile losses over the sum of absolute targets) on the last windows of data sets that
did not calibrate, over that of the dense model. `size` is the share of the bytes of the attention parameters that is
left. Models are committed checkpoints and `chronos-bolt-350k` of the folder TSFMSCOPE_WEIGHTS; series are those of the
folder TSFMSCOPE_DATA. Nothing is healed.

Besides the methods of `tsfmscope compress`:
- prune-heads: heads with the smallest stable rank of W_O W_V are removed (tsfm-lens).
- drop-layers: attention layers are removed, those first that change the last hidden states least (after ShortGPT).
- basis-sharing: consecutive layers share the bases of their matrices (bench/race_sharing.py).
- slicegpt: the residual stream gets narrower, with MLPs and embeddings; the whole model has the bytes of one whose
  attention alone has the size (bench/race_slicing.py). Not defined for TimesFM, TimesFM 2.5 and Totem.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import torch

from bench.race_removals import REMOVALS, ROUNDED, round_attention
from bench.race_sharing import share_bases
from bench.race_slicing import slice_residual
from bench.race_tables import (
    Cell,
    compare_by_size,
    compare_cells,
    draw,
    mean_table,
    paired_cells,
    read_cells,
    with_mean_sizes,
)
from bench.truncation_trained import load_series, log_wql, score_windows
from tsfmscope.cli.compressing import SYNTHETIC
from tsfmscope.compression.budget import BudgetError
from tsfmscope.compression.calibration_data import CalibrationData
from tsfmscope.compression.compress import compress_with
from tsfmscope.compression.methods.registry import TRUNCATIONS
from tsfmscope.compression.options import WHOLE, Calibration, Method
from tsfmscope.defaults import MethodName
from tsfmscope.errors import ModelError
from tsfmscope.models.base import Forecaster
from tsfmscope.models.config_family import family_of_folder
from tsfmscope.models.registry import load
from tsfmscope.series.tables import series_table

TRAINED = "chronos-bolt-350k"
# Families with a token per step (Chronos-T5, Lag-Llama, Time-MoE) are left out: each pass over the
# calibration windows takes them most of a minute.
MODELS = (
    TRAINED,
    *(
        f"{family}-mini"
        for family in ("chronos-bolt", "chronos-2", "timesfm", "timesfm-2.5", "patchtst", "moirai", "totem", "visionts")
    ),
)
CALIBRATE = ("covid_deaths", "nn5_weekly", "pedestrian")
SIZES = (0.75, 0.5, 0.35, 0.25, 0.15, 0.1)
SEEDS = (0, 1, 2)
# Series and calibration windows per data set.
SERIES, WINDOWS, CONTEXT = 8, 32, 512
# Methods that compress attention alone.
METHODS: tuple[str, ...] = tuple(name for name in get_args(MethodName) if name != WHOLE)
PEERS: dict[str, Callable[[Forecaster, float, CalibrationData], None]] = {
    "basis-sharing": share_bases,
    "slicegpt": slice_residual,
}


class RaceSize(NamedTuple):
    """Scored series and calibration windows per data set, their steps, and the number of synthetic series."""

    series: int = SERIES
    windows: int = WINDOWS
    context: int = CONTEXT
    synthetic: int = SYNTHETIC


WHOLE_RACE = RaceSize()


class Race:
    """A dense model with its scored windows, errors and calibration series."""

    def __init__(self, name: str, series: Mapping[str, list[Any]], size: RaceSize = WHOLE_RACE) -> None:
        folder = Path(os.environ["TSFMSCOPE_WEIGHTS"], name) if name == TRAINED else Path("checkpoints", name)
        self.name, self.base, self.size = name, load(str(family_of_folder(folder)), folder, options={}), size
        self.tables = {dataset: series_table(series[dataset]) for dataset in CALIBRATE}
        unseen = {dataset: part[: size.series] for dataset, part in series.items() if dataset not in CALIBRATE}
        self.windows = score_windows(unseen)
        self.dense = {dataset: log_wql(self.base, windows) for dataset, windows in self.windows.items()}
        self._calibrations: dict[int, CalibrationData] = {}

    def calibration(self, seed: int) -> CalibrationData:
        """Return the calibration data of a seed."""
        if seed not in self._calibrations:
            size = self.size
            options = Calibration(
                datasets=tuple(CALIBRATE),
                windows=size.windows,
                context=size.context,
                horizon=24,
                held_out=0.2,
                seed=seed,
                synthetic=size.synthetic,
            )
            self._calibrations[seed] = CalibrationData(self.base, self.tables, options)
        return self._calibrations[seed]

    def cell(self, method: str, size: float, seed: int) -> Cell | None:
        """Compress the model and score it; None if the method cannot compress it to this size."""
        model, data = copy.deepcopy(self.base), self.calibration(seed)
        try:
            if method in REMOVALS:
                REMOVALS[method](model, size, data.tokens)
            elif method in PEERS:
                PEERS[method](model, size, data)
            elif method in ROUNDED:
                size = round(round_attention(model, method), 3)
            else:
                compress_with(model, Method.model_validate({"method": method, "ranks": {"budget": size}}), data)
        # LEMS measures nothing in layers after the last hidden state (VisionTS). Not all families can be sliced.
        except (BudgetError, ModelError):
            return None
        logs = {name: log_wql(model, windows) - self.dense[name] for name, windows in self.windows.items()}
        return Cell(self.name, method, size, seed, logs)


def run(models: Sequence[str], sizes: Sequence[float], seeds: Sequence[int], finished: set[Any]) -> Iterator[Cell]:
    """Yield the cells that are not finished, seed by seed; print a line of progress per model and size."""
    series = load_series()
    races = {name: Race(name, series) for name in models}
    for seed, name, size in itertools.product(seeds, models, sizes):
        began, count = time.monotonic(), 0
        for method in (*METHODS, *REMOVALS, *PEERS, *ROUNDED):
            reads_nothing = method in ("prune-heads", *ROUNDED) or (
                method in TRUNCATIONS and TRUNCATIONS[method].reads == "nothing"
            )
            is_repeated = (reads_nothing and seed != seeds[0]) or (method in ROUNDED and size != sizes[0])
            if is_repeated or (name, method, size, seed) in finished:
                continue
            count += 1
            yield races[name].cell(method, size, seed) or Cell(name, method, size, seed, {})
        rate = count / (time.monotonic() - began)
        print(f"seed {seed}, {name}, size {size}: {rate:.2f} cells a second", file=sys.stderr, flush=True)


def main() -> None:
    """Run the race and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one model, a quarter of the size, one seed")
    parser.add_argument("--cells", type=Path, help="file of finished cells")
    parser.add_argument("--picture", type=Path, help="PNG of the first table")
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
    if options.picture:
        draw(table, options.picture)
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
