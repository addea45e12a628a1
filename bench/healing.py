"""Forecast error of an externally trained Chronos-Bolt before and after healing, on data sets not used for either.

    python -m bench.healing [--quick]

The model, the data sets and the ratio are those of bench/truncation_trained.py: the geometric mean, over the data
sets that were not used for calibration, of the pooled WQL divided by the dense model's, with its 95 % interval
(Student's t over data sets). The method is activation-aware-2step, and activation-aware-refit where eight synthetic
sets calibrate, so that every data set is unseen. Healing trains on random series; other random
series and the calibration windows choose among its checkpoints. `steps` is the step of the chosen checkpoint,
`seconds` the processor time of all steps with one thread. `--quick` heals one model for 20 steps.

Last line JSON: the numbers by calibration and size.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from typing import Any

import torch

from bench.truncation_trained import CALIBRATION, SETS, Benchmark, ratio
from tsfmscope.compression import two_step
from tsfmscope.compression.compress import compress_model
from tsfmscope.compression.options import Calibration, Method
from tsfmscope.functions.compress import SYNTHETIC
from tsfmscope.series.tables import series_table
from tsfmscope.training.healing import STEPS, healer

# Without data sets, synthetic series calibrate.
CALIBRATIONS: list[list[str]] = [["covid_deaths", "nn5_weekly", "pedestrian"], ["dominick", "fred_md"], []]
SIZES = (0.25, 0.1)


def heal_line(benchmark: Benchmark, calibration: list[str], size: float, steps: int) -> dict[str, Any]:
    """Compress and heal a copy of the dense model, print a line of the table and return its numbers."""
    synthetic = {"synthetic": 0 if calibration else SYNTHETIC}
    model, settings = copy.deepcopy(benchmark.base), Calibration(**CALIBRATION | {"datasets": calibration} | synthetic)
    tables = {name: series_table(benchmark.series[name]) for name in calibration}
    name = "activation-aware-2step" if calibration else two_step.REFIT
    method = Method.model_validate({"method": name, "ranks": {"budget": size}, "heal": steps})
    heal = healer(model, method, tables, settings)
    assert heal is not None, "the method has steps of healing"
    compress_model(model, method, base_model=model.name, tables=tables, calibration=settings)
    unseen = [name for name in SETS if name not in calibration]
    before, start = ratio(benchmark.errors(model, unseen)), time.process_time()
    checks = heal(model)
    seconds = time.process_time() - start
    after = ratio(benchmark.errors(model, unseen))
    chosen = min(checks, key=lambda check: check.error).step
    columns = " ".join(f"{estimate:7.3f} [{low:5.3f}, {high:5.3f}]" for estimate, low, high in (before, after))
    print(
        f"{size:5.2f} {columns} {chosen:6d} {seconds:8.0f}  {', '.join(calibration) or 'synthetic series'}", flush=True
    )
    numbers = {"before": round(before[0], 4), "after": round(after[0], 4), "steps": chosen, "seconds": round(seconds)}
    return {"calibration": calibration, "size": size, **numbers}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one calibration, the quarter alone, 20 steps")
    options = parser.parse_args()
    torch.set_num_threads(1)
    benchmark = Benchmark.load()
    print(f"{'size':>5s} {'before':>22s} {'after':>22s} {'steps':>6s} {'seconds':>8s}  calibrated on")
    rows = [
        heal_line(benchmark, calibration, size, 20 if options.quick else STEPS)
        for calibration in (CALIBRATIONS[:1] if options.quick else CALIBRATIONS)
        for size in (SIZES[:1] if options.quick else SIZES)
    ]
    print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
