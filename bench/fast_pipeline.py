"""Time of `ts.fast(pipeline).predict` relative to `predict` of the stock ChronosPipeline, in one process.

    python -m bench.fast_pipeline [--quick] [--rounds N] [--threads N]

Both pipelines share one network of a released shape of Chronos-T5 with random weights (speed needs no training). They
forecast the same contexts of 512 steps over 64 steps (--quick: the shape tiny and 16 steps). They take turns, and the
median over the rounds counts. `cpu s` is processor time, which other load changes less than wall time. The stock
pipeline runs with transformers' own attention, sdpa.

Last line JSON: time_ratio and cpu_ratio at 4 series x 20 samples, seconds of ours over seconds of the stock pipeline;
the suffix _1x20 is for 1 series.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import torch

import tsfmscope as ts
from bench.forecast_case import SHAPES, windows
from tsfmscope.models.registry import family_class

SAMPLES = 20
# Smaller shapes run in less time, but a smaller share of it is spent in matrix products.
SHAPE, QUICK_SHAPE = "base", "tiny"


def time_forecast(pipeline: Any, context: torch.Tensor, horizon: int) -> tuple[float, float]:
    """Return wall and processor seconds of one forecast."""
    wall, cpu = time.perf_counter(), time.process_time()
    pipeline.predict(context, horizon, num_samples=SAMPLES)
    return time.perf_counter() - wall, time.process_time() - cpu


def compare(stock: Any, series: int, horizon: int, rounds: int) -> dict[str, float]:
    """Print a line for both pipelines, and return the ratios of their median seconds."""
    context, fast = torch.from_numpy(windows(series, horizon).context), ts.fast(stock)
    seconds: dict[str, list[tuple[float, float]]] = {"stock": [], "fast": []}
    for _ in range(rounds):
        for name, pipeline in (("stock", stock), ("fast", fast)):
            seconds[name].append(time_forecast(pipeline, context, horizon))
    wall, cpu = (
        {name: statistics.median(pair[i] for pair in pairs) for name, pairs in seconds.items()} for i in (0, 1)
    )
    ratios = {"time_ratio": wall["fast"] / wall["stock"], "cpu_ratio": cpu["fast"] / cpu["stock"]}
    for name in seconds:
        ratio = ratios["cpu_ratio"] if name == "fast" else 1.0
        print(f"{series:>6} {name:<6} {wall[name]:>8.2f} {cpu[name]:>8.2f} {ratio:>10.3f}", flush=True)
    return ratios


def main() -> None:
    """Print a table and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="shape tiny, 16 steps, one round")
    parser.add_argument("--rounds", type=int, default=3, help="forecasts of each pipeline")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    shape, horizon, rounds = (QUICK_SHAPE, 16, 1) if options.quick else (SHAPE, 64, options.rounds)
    model = family_class("chronos-t5").new(SHAPES["chronos-t5"][shape], seed=0)
    stock = model.stock_model()
    stock.model.model.encoder.config._attn_implementation = "sdpa"
    # Imports and thread pools are not part of the times.
    for pipeline in (stock, ts.fast(stock)):
        pipeline.predict(torch.ones(1, 16), 1, num_samples=1)
    print(f"shape {shape}, {horizon} steps, {SAMPLES} samples, {options.threads} threads")
    print(f"{'series':>6} {'':<6} {'wall s':>8} {'cpu s':>8} {'cpu ratio':>10}")
    values = compare(stock, 4, horizon, rounds)
    values |= {f"{name}_1x20": value for name, value in compare(stock, 1, horizon, rounds).items()}
    print(json.dumps({name: round(value, 4) for name, value in values.items()} | {"threads": options.threads}))


if __name__ == "__main__":
    main()
