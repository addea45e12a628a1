"""Loss of ONNX models with int8 or four bits: their WQL over that of the same export in float32.

    python -m bench.onnx_bits [--quick] [--models NAME ...] [--group GROUP] [--corpus FOLDER]

Contexts of 512 steps, horizon 48 (a shorter one is the beginning of it), at most COUNT windows a data set. Prints, for
each model, the geometric mean over data sets, its 95 % interval (Student's t), the worst data set and the bytes over
those in float32. `--quick`: one model in four bits. Last line JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from bench.bits import scores
from bench.skill import CONTEXT, Part, corpus_parts, cut_windows, spread_parts
from tsfmscope.compression.onnx_forecaster import OnnxForecaster
from tsfmscope.errors import ModelError
from tsfmscope.functions.export import export
from tsfmscope.series.types import Windows
from tsfmscope.statistics.means import mean

MODELS = (
    *("chronos-bolt-mini", "chronos-2-mini", "patchtst-mini", "timesfm-2.5-mini", "moirai-2-mini", "toto-2-mini"),
    *("patchtst-fm-mini", "flowstate-mini"),
)
HORIZON, COUNT = 48, 16
Bits = Literal[4, 8, 32]


def measure(name: str, pairs: Sequence[tuple[Part, Windows]], choices: Sequence[Bits]) -> dict[str, dict[str, Any]]:
    """Print a line for each number of bits, and return its figures by name of the bits."""
    found: dict[str, dict[str, Any]] = {}
    losses, sizes = {}, {}
    with tempfile.TemporaryDirectory() as temporary:
        for bits in (32, *choices):
            folder = Path(temporary, str(bits))
            try:
                export(name, folder, onnx=True, context=CONTEXT, horizon=HORIZON, bits=bits)
            except ModelError as error:
                print(f"{name:18s} {bits:2d} bits  not exported: {error}", flush=True)
                continue
            losses[bits] = {key: loss for key, (loss, _, _) in scores(OnnxForecaster.load(folder), pairs).items()}
            sizes[bits] = sum(path.stat().st_size for path in folder.glob("model.onnx*"))
            if bits == 32:
                continue
            logs = {key[1]: float(np.log(loss / losses[32][key])) for key, loss in losses[bits].items()}
            estimate, worst = mean(np.array(list(logs.values()))), max(logs, key=lambda dataset: logs[dataset])
            ratio, low, high = (float(np.exp(value)) for value in estimate[:3])
            share = sizes[bits] / sizes[32]
            print(
                f"{name:18s} {bits:2d} bits  {ratio:.3f} [{low:.3f}, {high:.3f}], worst {np.exp(logs[worst]):.2f} "
                f"{worst}, {len(logs)} data sets, {share:.2f} of the bytes", flush=True,
            )  # fmt: skip
            found[str(bits)] = {"ratio": round(ratio, 4), "low": round(low, 4), "high": round(high, 4)}
    return found


def main() -> None:
    """Print the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--group", default="tune")
    parser.add_argument("--corpus", type=Path, default=Path("../shared/corpus"))
    options = parser.parse_args()
    pairs = list(spread_parts(cut_windows(list(corpus_parts(options.corpus, options.group))), COUNT))
    names, choices = (MODELS[:1], (4,)) if options.quick else (options.models, get_args(Bits)[:2])
    print(json.dumps({name: measure(name, pairs, choices) for name in names}))


if __name__ == "__main__":
    main()
