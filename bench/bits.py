"""Models in few bits: error over that of the original, next to other ways of rounding.

    python -m bench.bits [--quick] [--models NAME ...] [--corpus FOLDER] [--groups tune ...] [--out FILE]

Each model is rounded without data of a user: the calibration windows are synthetic. `search` is the method of
`tsfmscope compress --method whole-model`, at shares of the bytes of the original's file. The others give every matrix
the same bits, in groups of 32 with a scale of 16 bits: the nearest numbers (`nearest`), GPTQ, and AWQ (Lin et al.
2024, arXiv 2306.00978: inputs are scaled by a power of their mean size before the nearest numbers are taken, the power
with the least error of the output). Their bytes are counted as those of `search` are, AWQ's with 16 bits per input.

The sets are those of `bench.skill`, at most 16 windows each. Per model and method: geometric mean over the sets of the
ratios of WQL, with a 95 % interval (Student's t), the worst set, the mean change of the coverage of the 80 % interval,
and the outcome of the certificate at 2 % with these sets as units (a release needs 30 sources). `healed`: the scales
were trained for 300 steps towards the outputs of the original.
The rows of every set are written to --out. Last line JSON.
"""

from __future__ import annotations

import argparse
import copy
import csv
import json
import math
import operator
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

from bench.skill import SLOW, Part, corpus_parts, cut_windows, guided_parts, spread_parts
from tsfmscope.compression import bits
from tsfmscope.compression.calibration import synthetic_windows
from tsfmscope.compression.options import Method, Ranks
from tsfmscope.compression.rounding import output_error, round_matrix, round_plainly
from tsfmscope.forecasting.scores import quantile_losses
from tsfmscope.forecasting.skill import sample_seed
from tsfmscope.models import registry
from tsfmscope.models.base import QUANTILES, Family
from tsfmscope.models.common.low_bits import matrix_bytes
from tsfmscope.series.types import Windows
from tsfmscope.statistics.noninferiority import CoverageChange, assess
from tsfmscope.training.healing import STEPS, heal

ROOT = Path(__file__).resolve().parents[1]
MODELS = (
    *("chronos-bolt-350k", "chronos-bolt-mini", "chronos-2-mini", "patchtst-mini", "timesfm-2.5-mini"),
    *("moirai-2-mini", "toto-2-mini", "patchtst-fm-mini", "flowstate-mini"),
)
SHARES, HEALED = (0.25, 0.18, 0.15, 0.13), (0.18, 0.15)
UNIFORM, GROUP = (5, 4), 32
UNIFORM_METHODS = ("GPTQ", "AWQ", "nearest")
METHODS = ("search", "healed", *UNIFORM_METHODS)
# Powers of AWQ.
POWERS = np.linspace(0, 1, 11)
SETS, WINDOWS, CONTEXT, HORIZON = 8, 64, 512, 64
COUNT = 16


def load(name: str) -> Family:
    """Return a bundled model, or one of the folder TSFMSCOPE_WEIGHTS."""
    folder = ROOT / "tsfmscope" / "checkpoints" / name
    folder = folder if folder.is_dir() else Path(os.environ["TSFMSCOPE_WEIGHTS"], name)
    return registry.family_class(str(registry.family_of_folder(folder))).load(folder)


def scores(model: Any, pairs: Sequence[tuple[Part, Windows]]) -> dict[tuple[str, str], tuple[float, float, int]]:
    """Return (group, data set) -> summed quantile loss, coverage of the 80 % interval, and number of values."""
    losses: dict[tuple[str, str], list[tuple[float, int, int]]] = {}
    for part, windows in pairs:
        seeds = [sample_seed(0, row) for row in range(len(windows))]
        values = np.asarray(model.forecast(windows, levels=QUANTILES, samples=20, seeds=seeds).values, np.float64)
        inside = (windows.future >= values[:, 0]) & (windows.future <= values[:, -1])
        loss = quantile_losses(windows.future, values, QUANTILES).sum()
        observed = int(np.isfinite(windows.future).sum())
        losses.setdefault((part.group, part.dataset), []).append((loss, int(inside.sum()), observed))
    sums = {key: [sum(column) for column in zip(*rows, strict=True)] for key, rows in losses.items()}
    return {key: (loss, inside / count, int(count)) for key, (loss, inside, count) in sums.items()}


def awq(weight: np.ndarray, count: int, moments: np.ndarray | None) -> np.ndarray:
    """Return the nearest numbers of the weight with scaled inputs, with the best of POWERS; moments None: unscaled."""
    if moments is None:
        return round_plainly(weight, count, GROUP if weight.shape[1] > GROUP else 0, np.ones(weight.shape[1]))
    size = np.sqrt(np.maximum(np.diagonal(moments), 1e-12))
    group = GROUP if weight.shape[1] > GROUP else 0
    tried = []
    for power in POWERS:
        scale = size**power
        scale /= np.sqrt(scale.max() * scale.min())
        rounded = round_plainly(weight * scale, count, group, np.ones(weight.shape[1])) / scale
        tried.append((output_error(rounded - weight, moments), rounded))
    return min(tried, key=operator.itemgetter(0))[1]


def round_uniformly(weight: np.ndarray, method: str, count: int, moments: np.ndarray | None) -> tuple[np.ndarray, int]:
    """Return the weight rounded by one of UNIFORM_METHODS, and its bytes; count: of bits; moments: of its inputs."""
    rows, columns = weight.shape
    group = GROUP if columns > GROUP else 0
    size = matrix_bytes(rows, columns, count, group)
    if method == "GPTQ":
        return round_matrix(weight, count, group, moments), size
    if method == "AWQ":
        return awq(weight.astype(np.float64), count, moments), size + 2 * columns
    return round_plainly(weight.astype(np.float64), count, group, np.ones(columns)), size


def variants(model: Family, plan: bits.Plan, steps: int, methods: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Yield name and share of the bytes of each method of `methods`, with the network rounded by it.

    steps: of healing.
    """
    kept, dense = copy.deepcopy(model.network.state_dict()), copy.deepcopy(model)
    matrices = [matrix for choice in plan.choices for matrix in choice.matrices]
    for share in SHARES if {"search", "healed"} & set(methods) else ():
        model.network.load_state_dict(kept)
        model.compression = None
        plan.apply(model, Method(method="whole-model", ranks=Ranks(bytes=share)))
        yield f"search {share:g}", bits.file_bytes(model) / plan.full
        if share in HEALED and "healed" in methods:
            heal(model, dense, [synthetic_windows(WINDOWS, CONTEXT, HORIZON, seed=(0, SETS))], steps=steps)
            yield f"healed {share:g}", bits.file_bytes(model) / plan.full
    model.compression = None
    for count in UNIFORM:
        for name in [name for name in UNIFORM_METHODS if name in methods]:
            model.network.load_state_dict(kept)
            weights, size = bits.saved_tensors(model.network), plan.others
            for matrix in matrices:
                rounded, taken = round_uniformly(matrix.weight, name, count, matrix.moments)
                size += taken
                with torch.no_grad():
                    weights[matrix.path].copy_(torch.from_numpy(rounded).reshape(weights[matrix.path].shape))
            yield f"{name} {count} bits", size / plan.full
    model.network.load_state_dict(kept)


def summarize(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return mean ratio, interval, worst set and change of coverage of the rows of one model, method and group."""
    logs = np.log([row["ratio"] for row in rows])
    half = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs)) if len(logs) > 1 else math.nan
    mean, low, high = np.exp([logs.mean(), logs.mean() - half, logs.mean() + half])
    changes = [CoverageChange(row["coverage_change"], row["values"]) for row in rows]
    outcome = assess(list(logs), list(logs), changes, margin=1.02, seed=0).outcome
    return {
        "share": rows[0]["share"], "outcome": outcome, "ratio": mean, "low": low, "high": high,
        "worst": float(np.exp(logs.max())), "coverage": float(np.mean([change.change for change in changes])),
        "sets": len(logs),
    }  # fmt: skip


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one model, two windows a set, few calibration windows")
    parser.add_argument("--models", nargs="+", default=MODELS, help="bundled models, or folders of TSFMSCOPE_WEIGHTS")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--groups", nargs="+", default=["guided"], help="guided, tune, report")
    parser.add_argument("--corpus", type=Path, default=ROOT.parent / "shared" / "corpus", help="folder of the corpus")
    parser.add_argument("--out", type=Path, help="CSV file of the rows")
    options = parser.parse_args()
    torch.set_num_threads(1)
    parts = [part for group in options.groups
             for part in (guided_parts() if group == "guided" else corpus_parts(options.corpus, group))]  # fmt: skip
    pairs = cut_windows(parts)
    rows: list[dict[str, Any]] = []
    found: list[dict[str, Any]] = []
    for name in ("toto-2-mini",) if options.quick else options.models:
        model = load(name)
        chosen = list(spread_parts(pairs, 2 if options.quick else min(COUNT, SLOW.get(name, COUNT))))
        before = scores(model, chosen)
        count = 8 if options.quick else WINDOWS
        plan = bits.measure(model, [synthetic_windows(count, CONTEXT, HORIZON, seed=(0, n)) for n in range(SETS)])
        for method, share in variants(model, plan, 4 if options.quick else STEPS, options.methods):
            of_method = [
                {"model": name, "method": method, "share": share, "group": group, "dataset": dataset,
                 "ratio": loss / before[group, dataset][0], "coverage_change": coverage - before[group, dataset][1],
                 "values": values}
                for (group, dataset), (loss, coverage, values) in scores(model, chosen).items()
                if before[group, dataset][0]
            ]  # fmt: skip
            rows += of_method
            for group in options.groups:
                one = summarize([row for row in of_method if row["group"] == group])
                found.append({"model": name, "method": method, "group": group, **one})
                figures = f"{one['share']:.3f}  {one['ratio']:.4f} [{one['low']:.4f}, {one['high']:.4f}]"
                figures += f"  worst {one['worst']:.3f}  coverage {100 * one['coverage']:+.1f}  {one['outcome']}"
                print(f"{name:20s} {method:16s} {group:7s} {figures}", flush=True)
        if options.out:
            with options.out.open("w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows({k: f"{v:.5g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
