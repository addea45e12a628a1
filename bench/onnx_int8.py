"""Size and speed of ONNX models, in float32 and in int8, relative to the same forecast by torch.

    python -m bench.onnx_int8 [--quick]

Each checkpoint of a family with an ONNX model, and a Chronos-Bolt of width 512 with six layers per stack (that of
amazon/chronos-bolt-small) with random weights, forecasts eight series from 512 steps with one thread; `write_onnx`
measures the fewest seconds of several forecasts. `difference` is the mean difference of the int8 forecasts from the
model's own, in standard deviations of the context. `--quick` takes one small checkpoint.

Last line JSON: the columns by model.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import torch

from tsfmscope.compression.onnx_export import write_onnx
from tsfmscope.models import registry
from tsfmscope.models.base import Family
from tsfmscope.models.chronos import ChronosBolt
from tsfmscope.models.registry import family_of_folder

CHECKPOINTS = Path(__file__).parents[1] / "tsfmscope" / "checkpoints"
QUICK = "chronos-bolt-mini"
MODELS = ("chronos-bolt-mini", "chronos-2-mini", "patchtst-mini", "timesfm-mini", "timesfm-2.5-mini")
WIDE = "chronos-bolt, width 512"
SHAPE = {"d_model": 512, "d_ff": 2048, "d_kv": 64, "num_heads": 8, "num_layers": 6, "num_decoder_layers": 6}
SHAPE |= {"context_length": 2048, "prediction_length": 64, "input_patch_size": 16, "input_patch_stride": 16}
COLUMNS = ("bytes", "seconds_float", "seconds_int8", "difference")


def load(name: str) -> Family:
    """Return the model of a line."""
    if name == WIDE:
        return ChronosBolt.new(SHAPE, seed=0)
    folder = CHECKPOINTS / name
    return registry.load(str(family_of_folder(folder)), folder, options={})


def measure(name: str) -> dict[str, float]:
    """Return the columns of a model: ratios of int8 bytes to float32 bytes, and of seconds to those of torch."""
    with tempfile.TemporaryDirectory() as folder:
        made = write_onnx(load(name), Path(folder), context=512, horizon=None, origin={}, bits=8)
    seconds = (made.float_seconds / made.torch_seconds, made.onnxruntime_seconds / made.torch_seconds)
    return dict(zip(COLUMNS, (made.bytes / made.float_bytes, *seconds, made.mean_difference), strict=True))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'model':24s} {'bytes':>8s} {'float32':>8s} {'int8':>8s}  difference")
    rows = {}
    for name in [QUICK] if options.quick else [*MODELS, WIDE]:
        rows[name] = row = measure(name)
        print(f"{name:24s} {row['bytes']:8.3f} {row['seconds_float']:8.2f} {row['seconds_int8']:8.2f}", end="  ")
        print(f"{row['difference']:.4f}", flush=True)
    print(json.dumps({name: {key: round(value, 4) for key, value in row.items()} for name, row in rows.items()}))


if __name__ == "__main__":
    main()
