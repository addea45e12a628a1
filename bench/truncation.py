"""Loss increase of trained checkpoints after truncation, by method, at the sizes of Yu et al. 2026, Table 2.

    python -m bench.truncation [--quick] [--models NAME ...]

The checkpoints are the bundled ones. The windows are of statsmodels' series, with futures in their last
fifth; calibration ends before that fifth. A number is the increase of the family's own training loss over the
dense model's, in per cent. A loss in nats may be near zero or below, so the increase is then of its
exponential, the perplexity. `size` is the share of attention parameters that is left, as published in Table
2. `rank 1` means that this size is smaller than rank 1 of every part. The table measures accuracy: except for
`seconds`, the processor time of compression, it is the same in every run.

Last line JSON, over models and sizes: `no_worse_than_svd` is the share of them at which
activation-aware-2step loses no more than svd, or at most 0.1 %, which counts as noise;
`median_share_of_svd` is the median of its increase over svd's, where svd's is 1 % or more.
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

from tsfmscope.compression.budget import BudgetError
from tsfmscope.compression.compress import compress_model
from tsfmscope.compression.options import Calibration, Method
from tsfmscope.models.base import Family
from tsfmscope.models.registry import family_class
from tsfmscope.series.files.sources import load_bundled
from tsfmscope.series.tables import series_table, table_series
from tsfmscope.series.windows import spread_windows

ROOT = Path(__file__).resolve().parents[1]
SERIES = ("co2", "elnino", "macrodata", "sunspots")
# Yu et al. 2026, Table 2
SIZES = (0.889, 0.755, 0.569, 0.393, 0.237, 0.151, 0.073)
MODELS = ["chronos-t5", "chronos-bolt", "patchtst", "moirai", "lag-llama"]
# families whose losses are negative log probabilities
NATS = {"chronos-t5", "moirai", "lag-llama"}
TWO_STEP = "activation-aware-2step"
METHODS = ("svd", "joint", "activation-aware-svd", "activation-aware", TWO_STEP)
CONTEXT, HORIZON, HELD_OUT = 256, 24, 0.2
# PatchTST forecasts exactly so many steps; targets beyond HORIZON are missing
STEPS = 64
# per cent
NOISE = 0.1
CALIBRATION = Calibration(
    datasets=tuple(SERIES), windows=16, context=CONTEXT, horizon=HORIZON, held_out=HELD_OUT, seed=0
)


def held_out(name: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return context and future of up to 24 windows per series, with futures in the last fifth."""
    windows_of_series = []
    for item in table_series(series_table(load_bundled(name))):
        begins = int(len(item.values) * (1 - HELD_OUT))
        before = min(CONTEXT, begins)
        last = replace(item, values=item.values[begins - before :])
        windows, _ = spread_windows([last], context=CONTEXT, horizon=HORIZON, count=24, min_context=before)
        if len(windows):
            future = np.pad(windows.future, ((0, 0), (0, STEPS - HORIZON)), constant_values=np.nan)
            windows_of_series.append((torch.from_numpy(windows.context), torch.from_numpy(future)))
    return windows_of_series


def loss(model: Family, windows: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """Return the mean loss over the series."""
    with torch.inference_mode():
        return float(np.mean([float(model.loss(*batch)) for batch in windows]))


def loss_increase(name: str, after: float, before: float) -> float:
    """Return the increase of a family's loss, or of its perplexity, in per cent."""
    return 100 * (math.exp(after - before) - 1 if name in NATS else after / before - 1)


def truncate(model: Family, method: str, size: float, tables: Mapping[str, Any]) -> None:
    """Truncate a model in place to a share of its attention parameters."""
    method_spec = Method.model_validate({"method": method, "ranks": {"budget": size}})
    compress_model(model, method_spec, base_model=model.name, tables=tables, calibration=CALIBRATION)


def table_line(model: str, size: str, texts: Mapping[str, str], seconds: str) -> str:
    """Return a line of the table, with a text for each method."""
    cells = " ".join(f"{text:>{max(len(method), 11)}s}" for method, text in texts.items())
    return f"{model:17s} {size:5s} {cells}  {seconds}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the two smallest sizes of Chronos-T5 and Bolt")
    parser.add_argument("--models", nargs="*", default=MODELS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = options.models[:2] if options.quick else options.models
    tables = {name: series_table(load_bundled(name)) for name in SERIES}
    windows = [batch for name in SERIES for batch in held_out(name)]
    print(table_line("model", "size", {method: method for method in METHODS}, "seconds of the last"))
    pairs = []
    for name in names:
        folder = ROOT / "tsfmscope" / "checkpoints" / f"{name}-mini"
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
                lost[method] = loss_increase(name, loss(model, windows), dense)
            texts = {method: f"{lost[method]:.2f}%" if method in lost else "rank 1" for method in METHODS}
            print(table_line(folder.name, f"{size:.3f}", texts, f"{seconds:.1f}"), flush=True)
            if "svd" in lost and TWO_STEP in lost:
                pairs.append((lost["svd"], lost[TWO_STEP]))
    wins = statistics.fmean(ours <= max(svd, NOISE) for svd, ours in pairs)
    shares = [ours / svd for svd, ours in pairs if svd >= 1]
    print(json.dumps({"no_worse_than_svd": round(wins, 4), "median_share_of_svd": round(statistics.median(shares), 4)}))


if __name__ == "__main__":
    main()
