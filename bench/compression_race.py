"""Race of compression methods of attention: forecast error at equal size, over models and data sets.

    python -m bench.compression_race [--quick] [--cells FILE] [--models NAME ...] [--sizes S ...] [--seeds N ...]
        [--groups guided report] [--corpus FOLDER]

Every method gets the same synthetic calibration windows, so no scored set calibrates. The sets are those of
`bench.skill`, at most COUNT windows each. An error is a set's WQL over that of the dense model. `share` is the share of
the bytes of the attention parameters that is left. Nothing is healed.

Besides the methods of `tsfmscope compress`:
- prune-heads: heads with the smallest stable rank of W_O W_V are removed (tsfm-lens).
- drop-layers: attention layers are removed, those first that change the last hidden states least (after ShortGPT).
- asvd, svd-llm, fwsvd, gfwsvd, kfac-svd, kfac-svd-lems, zs-svd: published methods that factorise single matrices
  (bench/race_matrices.py), some of them also with progressive recalibration.
- basis-sharing: consecutive layers share the bases of their matrices (bench/race_structures.py).
- slicegpt: the residual stream gets narrower, with MLPs and embeddings; the whole model has the bytes of one whose
  attention alone has the size. Not defined for all families.
- bfloat16, and nearest, GPTQ and AWQ with 8 and 4 bits: the attention matrices are rounded (bench/bits.py). Each has
  its own share, and stands in the table of every size.

A table has, per method, the geometric mean of the errors over models and sets, the worst of them, and our error over
the method's on the same models and sets. Intervals are Student's, 95 %, over sets; errors of a set are averaged over
models and seeds. `models`: number of models that the method can compress to this size.

--cells: file with one JSON line per finished cell, with the logarithms of its errors by group and set. Cells that it
has are not computed again, so that a stopped race goes on; use another file for other groups. `--models` without a name
computes nothing and prints the tables of the file.
Last line JSON: the rows of the tables.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from bench.bits import CONTEXT, HORIZON, ROOT, SETS, UNIFORM_METHODS, load, round_uniformly, scores
from bench.race_matrices import MATRIX_METHODS, Calibration
from bench.race_structures import STRUCTURE_METHODS
from bench.skill import Part, corpus_parts, cut_windows, guided_parts, spread_parts
from tsfmscope.compression.budget import BudgetError
from tsfmscope.compression.compress import compress_model
from tsfmscope.compression.options import METHODS, WINDOWS, Method, Ranks
from tsfmscope.compression.options import Calibration as Options
from tsfmscope.errors import ModelError
from tsfmscope.models.base import Family
from tsfmscope.models.common.attention import NAMES
from tsfmscope.series.types import Windows
from tsfmscope.statistics import means

# The best truncation of `tsfmscope compress`.
OURS = "activation-aware-refit"
MODELS = (
    *("chronos-bolt-350k", "chronos-bolt-mini", "chronos-2-mini", "patchtst-mini", "timesfm-2.5-mini"),
    "moirai-2-mini",
)
SIZES = (0.5, 0.25)
# Largest number of scored windows of a set.
COUNT = 8
# Methods of `tsfmscope compress` that compress attention alone.
OWN = tuple(name for name, method in METHODS.items() if "budget" in method.rules)
ROUNDED = ("bfloat16", *(f"{name} {count} bits" for count in (8, 4) for name in UNIFORM_METHODS))
# Methods that read no calibration data.
UNSEEDED = ("prune-heads", "bfloat16", *(name for name in OWN if not METHODS[name].reads_data))


class Cell(NamedTuple):
    """One compressed model: the logarithms of its errors over the dense model's, by "group/set"."""

    model: str
    method: str
    share: float
    seed: int
    logs: dict[str, float]


class Race:
    """A dense model with its scored windows, errors and calibration data."""

    def __init__(self, name: str, pairs: Sequence[tuple[Part, Windows]], options: Options) -> None:
        self.name, self.base, self.pairs = name, load(name), pairs
        self.data = Calibration(self.base, options)
        self.dense = scores(self.base, pairs)

    def cell(self, method: str, size: float) -> Cell:
        """Compress the model and score it; without errors if the method cannot compress it to this size."""
        model, share, logs = copy.deepcopy(self.base), size, {}
        try:
            if method in ROUNDED:
                share = round(round_attention(model, method, self.data), 3)
            elif method in OWN:
                own = Method.model_validate({"method": method, "ranks": Ranks(budget=size)})
                compress_model(model, own, base_model=self.name, tables={}, calibration=self.data.options)
            else:
                (MATRIX_METHODS | STRUCTURE_METHODS)[method](model, size, self.data)
            found = scores(model, self.pairs)
            logs = {"/".join(key): math.log(found[key][0] / loss) for key, (loss, *_) in self.dense.items() if loss}
        # LEMS measures nothing in layers after the last hidden state (VisionTS). Not all families can be sliced.
        except (BudgetError, ModelError):
            pass
        return Cell(self.name, method, share, self.data.options.seed, logs)


def round_attention(model: Family, method: str, data: Calibration) -> float:
    """Round the attention matrices in place by one of ROUNDED; return their bytes over those in float32."""
    full = taken = 0
    for layer in model.attentions():
        for name in NAMES:
            weight = layer.linear(name).weight
            rounded, size = weight.bfloat16(), 2 * weight.numel()
            if method != "bfloat16":
                moments = data.statistics[layer.name][name].inputs
                way, count, _ = method.split()
                # Zeros are the moments of a matrix without effect on the loss.
                known = moments if moments.any() else None
                numbers, size = round_uniformly(weight.detach().numpy(), way, int(count), known)
                rounded = torch.from_numpy(numbers)
            full, taken = full + 4 * weight.numel(), taken + size
            with torch.no_grad():
                weight.copy_(rounded)
    return taken / full


def run(
    models: Sequence[str], sizes: Sequence[float], seeds: Sequence[int], finished: set[Any],
    pairs: Sequence[tuple[Part, Windows]], windows: int,
) -> Iterator[Cell]:  # fmt: skip
    """Yield the cells that are not finished, model by model; print the seconds of each."""
    for name, seed in itertools.product(models, seeds):
        options = Options(windows=windows, context=CONTEXT, horizon=HORIZON, seed=seed, held_out=0, synthetic=SETS)
        race = None
        for size, method in itertools.product(sizes, (*OWN, *MATRIX_METHODS, *STRUCTURE_METHODS, *ROUNDED)):
            is_repeated = (method in UNSEEDED and seed != seeds[0]) or (method in ROUNDED and size != sizes[0])
            if is_repeated or (name, method, None if method in ROUNDED else size, seed) in finished:
                continue
            race, began = race or Race(name, pairs, options), time.monotonic()
            yield race.cell(method, size)
            print(f"{name}, {method}, {size}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)


def compare(cells: Sequence[Cell], group: str, size: float) -> list[dict[str, Any]]:
    """Return one row per method, the least error first."""
    seeded: dict[str, dict[tuple[str, str], list[float]]] = {}
    shares: dict[str, list[float]] = {}
    for cell in cells:
        if cell.logs and (cell.method in ROUNDED or cell.share == size):
            shares.setdefault(cell.method, []).append(cell.share)
            for key, log in cell.logs.items():
                if key.startswith(f"{group}/"):
                    seeded.setdefault(cell.method, {}).setdefault((cell.model, key), []).append(log)
    logs = {method: {pair: float(np.mean(of)) for pair, of in found.items()} for method, found in seeded.items()}
    rows = []
    for method, found in logs.items():
        worst = max(found, key=lambda pair: found[pair])
        ours = {pair: logs[OURS][pair] - log for pair, log in found.items() if pair in logs.get(OURS, {})}
        rows.append(
            {"group": group, "size": size, "method": method, "share": float(np.mean(shares[method])),
             "models": len({model for model, _ in found}), "error": interval(found), "worst": math.exp(found[worst]),
             "worst_model": worst[0], "worst_set": worst[1].partition("/")[2], "ours": interval(ours)}
        )  # fmt: skip
    return sorted(rows, key=lambda row: row["error"][0])


def interval(logs: Mapping[tuple[str, str], float]) -> tuple[float, float, float]:
    """Return the geometric mean and its 95 % interval over sets; logs: by model and set."""
    by_set: dict[str, list[float]] = {}
    for (_, dataset), log in logs.items():
        by_set.setdefault(dataset, []).append(log)
    found = means.mean(np.array([np.mean(of) for of in by_set.values()]))
    estimate, low, high = np.exp([found.estimate, found.low, found.high])
    return float(estimate), float(low), float(high)


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
    parser.add_argument("--quick", action="store_true", help="one model, a quarter of the size, few windows")
    parser.add_argument("--cells", type=Path, help="file of finished cells")
    parser.add_argument("--models", nargs="*", default=MODELS, help="bundled models, or folders of TSFMSCOPE_WEIGHTS")
    parser.add_argument("--sizes", nargs="+", type=float, default=SIZES)
    parser.add_argument("--seeds", nargs="+", type=int, default=(0,))
    parser.add_argument("--groups", nargs="+", default=["guided"], help="guided, tune, report")
    parser.add_argument("--corpus", type=Path, default=ROOT.parent / "shared" / "corpus", help="folder of the corpus")
    options = parser.parse_args()
    torch.set_num_threads(1)
    models, sizes, count, windows = options.models, options.sizes, COUNT, WINDOWS
    if options.quick:
        models, sizes, count, windows = ["patchtst-mini"], [0.25], 1, 2
    parts = [part for group in options.groups if models
             for part in (guided_parts() if group == "guided" else corpus_parts(options.corpus, group))]  # fmt: skip
    pairs = list(spread_parts(cut_windows(parts), count))
    cells = read_cells(options.cells)
    finished = {(cell.model, cell.method, None if cell.method in ROUNDED else cell.share, cell.seed) for cell in cells}
    for cell in run(models, sizes, options.seeds, finished, pairs, windows):
        cells.append(cell)
        if options.cells:
            with options.cells.open("a") as file:
                file.write(json.dumps(cell._asdict()) + "\n")
    rows = [row for group in options.groups for size in sizes for row in compare(cells, group, size)]
    for row in rows:
        if row is next(one for one in rows if (one["group"], one["size"]) == (row["group"], row["size"])):
            print(f"\n{row['group']}, {row['size']:g} of the attention\n")
            print("| method | share | models | error | worst | ours over it |\n| --- | --- | --- | --- | --- | --- |")
        error, ours = ("{:.3f} [{:.3f}, {:.3f}]".format(*row[key]) for key in ("error", "ours"))
        ours = "–" if row["method"] == OURS else ours
        worst = "{worst:.2f} {worst_set}, {worst_model}".format(**row)
        print(f"| `{row['method']}` | {row['share']:.3f} | {row['models']} | {error} | {worst} | {ours} |")
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
