"""What truncating a trained checkpoint costs, by method, at the sizes that the rank paper prints.

    python -m bench.truncation [--quick] [--models NAME ...]

Of the checkpoints in checkpoints/, on windows of statsmodels' series whose futures lie in their last fifth: how much
larger than the dense model's is the family's own training loss, in per cent; of a loss in nats, which may be near zero
or below, its exponential, the perplexity. Calibration ends before that fifth. `size` is the share
of attention parameters that is left, the published one of Table 2; `rank 1` stands where that is less than rank 1 of
every part costs. An accuracy, no speed: but for `seconds`, processor time of compressing, the table is the same on any
day.
Last line JSON: over models and sizes, `no_worse_than_svd`, the share of them at which aware-both loses no more than
svd, or under 0.1 %, which is noise; and `median_share_of_svd`, its per cent over svd's where svd's is 1 or more.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tasks.compression import both
from tasks.compression.budget import BudgetError
from tasks.compression.compressing import cut
from tasks.models.base import Family
from tasks.models.registry import family_class
from tasks.series.bundled import load_bundled
from tasks.series.tables import series_table, table_series
from tasks.series.windows import spread_windows

ROOT = Path(__file__).resolve().parents[1]
SERIES = ("co2", "elnino", "macrodata", "sunspots")
SIZES = (0.889, 0.755, 0.569, 0.393, 0.237, 0.151, 0.073)  # rank_structure.md, Table 2
MODELS = ["chronos-t5", "chronos-bolt", "patchtst", "moirai", "lag-llama"]
NATS = {"chronos-t5", "moirai", "lag-llama"}  # losses that are log probabilities
METHODS = ("svd", "joint", "aware-svd", "aware", both.METHOD)
CONTEXT, HORIZON, HELD_OUT = 256, 24, 0.2
STEPS = 64  # that PatchTST forecasts, no other number: the rest is missing
NOISE = 0.1  # per cent
CALIBRATION = {
    "datasets": list(SERIES),
    "windows": 16,
    "context": CONTEXT,
    "horizon": HORIZON,
    "held_out": HELD_OUT,
    "seed": 0,
}


def held_out(name: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Context and future of up to 24 windows of each of a data set's series, the futures in its last fifth."""
    found = []
    for one in table_series(series_table(load_bundled(name))):
        begins = int(len(one.values) * (1 - HELD_OUT))
        before = min(CONTEXT, begins)
        last = replace(one, values=one.values[begins - before :])
        windows, _ = spread_windows([last], context=CONTEXT, horizon=HORIZON, count=24, min_context=before)
        if len(windows):
            future = np.pad(windows.future, ((0, 0), (0, STEPS - HORIZON)), constant_values=np.nan)
            found.append((torch.from_numpy(windows.context), torch.from_numpy(future)))
    return found


def loss(model: Family, windows: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """Mean over the series."""
    with torch.inference_mode():
        return float(np.mean([float(model.loss(*one)) for one in windows]))


def more(name: str, after: float, before: float) -> float:
    """Per cent that a family's loss, or its perplexity, has grown."""
    return 100 * (math.exp(after - before) - 1 if name in NATS else after / before - 1)


def truncate(model: Family, method: str, size: float, tables: Mapping[str, Any]) -> None:
    """In place."""
    law = {"method": method, "ranks": {"budget": size}}
    cut(model, {"base_model": model.name, "method": law, "calibration": CALIBRATION}, tables)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the two smallest sizes of Chronos-T5 and Bolt")
    parser.add_argument("--models", nargs="*", default=MODELS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = options.models[:2] if options.quick else options.models
    tables = {name: series_table(load_bundled(name)) for name in SERIES}
    windows = [one for name in SERIES for one in held_out(name)]
    print(f"{'model':14s} {'size':>6s} " + " ".join(f"{method:>11s}" for method in METHODS) + "  seconds of the last")
    pairs = []
    for name in names:
        folder = ROOT / "checkpoints" / f"{name}-nano"
        dense = loss(family_class(name).load(folder), windows)
        for size in SIZES[-2:] if options.quick else SIZES:
            lost: dict[str, float] = {}
            for method in METHODS:
                model, began = family_class(name).load(folder), time.process_time()
                try:
                    truncate(model, method, size, tables)
                except BudgetError:
                    continue
                seconds = time.process_time() - began
                lost[method] = more(name, loss(model, windows), dense)
            cells = (f"{lost[one]:10.2f}%" if one in lost else f"{'rank 1':>11s}" for one in METHODS)
            print(f"{name + '-nano':14s} {size:6.3f} " + " ".join(cells) + f"  {seconds:.1f}", flush=True)
            if "svd" in lost and both.METHOD in lost:
                pairs.append((lost["svd"], lost[both.METHOD]))
    wins = statistics.fmean(ours <= max(svd, NOISE) for svd, ours in pairs)
    shares = [ours / svd for svd, ours in pairs if svd >= 1]
    print(json.dumps({"no_worse_than_svd": round(wins, 4), "median_share_of_svd": round(statistics.median(shares), 4)}))


if __name__ == "__main__":
    main()
