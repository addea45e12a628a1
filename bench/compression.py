"""Time and memory of forecasts: dense heads against narrow ones, the stock pipeline against our sampler.

    python -m bench.compression [--quick] [--device cuda] [--threads N] [--rounds N] [--seconds N]

Models have released shapes of Chronos-T5 and random weights (speed needs no training), context 512 and
horizon 64. `stock` is chronos.ChronosPipeline.predict, with transformers' generate inside. `ours` is the
family's forecast, quantiles included. In `narrow`, the heads of layer l have rank ceil(3 (1 + l)^0.27),
printed as "size ratio 0.075"; `ratio` is the mean rank over the full width. Chronos-Bolt and Moirai, which
forecast in one pass, are measured with ours only.

Every line is a process of its own, so that memory peaks do not mix. The lines of a shape take turns, and the
median over the rounds counts. Each process first forecasts with a toy model of the family, so that imports
and thread pools are part of `idle`. Memory is in MiB above idle: `peak` while forecasting, weights included;
its parts are `weights` (the parameters), `cache` (keys and values, by tensor) and the rest. On a GPU, memory
is what torch allocated there. The encoder's time comes from a hook in the stock pipeline. For ours it is the
time of a second encoding of the same windows after the timed forecast, keys and values of cross-attention
included. `cpu s` is processor time, which other load changes less.

Last line JSON, for the base shape (--quick: tiny, 16 steps) at 4 series x 20 samples, relative to the stock
pipeline with dense heads: time_ratio, cpu_ratio and memory_ratio of our sampler with narrow heads. Suffixes:
*_stock_sampler is the stock pipeline with narrow heads, *_dense is our sampler with dense heads, *_8x20 is
our sampler with narrow heads at 8 series, *_bfloat16 is our sampler with narrow heads whose matrices are in
bfloat16 (tsfmscope/models/common/layers.py), and *_bfloat16_both is the same relative to the stock pipeline
loaded in bfloat16.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from bench.forecast_case import Case, build, measure

ROOT = Path(__file__).resolve().parents[1]
HEADER = (
    f"{'family':12s} {'shape':6s} {'side':6s} {'heads':10s} {'precision':9s} {'series':>6s} {'ratio':>6s}"
    f" {'wall s':>8s} {'encoder':>8s} {'decoder':>8s} {'cpu s':>8s}"
    f" {'peak':>7s} {'weights':>7s} {'cache':>7s} {'rest':>7s} {'idle':>5s}"
)
# lines of the table, by side and heads
Lines = dict[tuple[str, str], dict[str, float]]


def in_process(case: Case) -> dict[str, float]:
    """Run `measure` in a process of its own."""
    command = [sys.executable, "-m", "bench.compression", "--case", json.dumps(asdict(case))]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if process.returncode:
        raise RuntimeError(f"{case}: {process.stderr}")
    measurement: dict[str, float] = json.loads(process.stdout.splitlines()[-1])
    return measurement


def compare(case: Case, sides: tuple[tuple[str, str], ...], rounds: int) -> Lines:
    """Measure the lines of one shape in turns; return medians over the rounds, by side and heads."""
    rows_by_side: dict[tuple[str, str], list[dict[str, float]]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, heads in sides:
            rows_by_side[side, heads].append(in_process(replace(case, side=side, heads=heads)))
    medians = {
        side: {name: statistics.median(row[name] for row in rows) for name in rows[0]}
        for side, rows in rows_by_side.items()
    }
    for (side, heads), row in medians.items():
        print(line(replace(case, side=side, heads=heads), row), flush=True)
    return medians


def line(case: Case, row: dict[str, float]) -> str:
    """Return a line of the table."""
    head = f"{case.family:12s} {case.shape:6s} {case.side:6s} {case.heads:10s} {case.precision:9s}"
    head += f" {case.series:6d} {row['ratio']:6.3f}"
    encoder, cache = row.get("encoder"), row.get("cache")
    parts = f"{'':8s} {'':8s}" if encoder is None else f"{encoder:8.3f} {row['wall'] - encoder:8.3f}"
    other_bytes = row["peak"] - row["weights"] - (cache or 0.0)
    cache_cell = f"{'':7s}" if cache is None else f"{cache:7.1f}"
    return (
        f"{head} {row['wall']:8.3f} {parts} {row['cpu']:8.3f}"
        f" {row['peak']:7.1f} {row['weights']:7.1f} {cache_cell} {other_bytes:7.1f} {row['idle']:5.0f}"
    )


BOTH = tuple((side, heads) for side in ("stock", "ours") for heads in ("dense", "narrow"))
ENDS = (BOTH[0], BOTH[3])
OURS = BOTH[2:]


def ratios(dense: Lines, wide: Lines, rounded: Lines) -> dict[str, float]:
    """Return the ratios of time, processor time and peak memory to the stock pipeline with dense heads.

    That pipeline is in float32, except for the ratios with `_both`.
    """
    stock, columns = dense[BOTH[0]], {"time": "wall", "cpu": "cpu", "memory": "peak"}
    sides = {"": BOTH[3], "_stock_sampler": BOTH[1], "_dense": BOTH[2]}
    values = {
        f"{name}_ratio{suffix}": dense[side][column] / stock[column]
        for suffix, side in sides.items()
        for name, column in columns.items()
    }
    values |= {f"{name}_ratio_8x20": wide[BOTH[3]][column] / wide[BOTH[0]][column] for name, column in columns.items()}
    for suffix, whole in (("_bfloat16", stock), ("_bfloat16_both", rounded[BOTH[0]])):
        values |= {
            f"{name}_ratio{suffix}": rounded[BOTH[3]][column] / whole[column] for name, column in columns.items()
        }
    return {name: round(value, 4) for name, value in values.items()}


def main() -> None:
    """Run the table, or one line of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny shapes and 16 steps, one round; under a minute")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda for a GPU")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of torch; default: cores")
    parser.add_argument("--rounds", type=int, default=2, help="of the base shape at 4 x 20")
    parser.add_argument("--seconds", type=float, default=450, help="after so many no other shape is begun")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure(Case(**json.loads(options.case)))))
        return
    print(f"{options.device}, {options.threads} threads\n{HEADER}", flush=True)
    case = Case("chronos-t5", "base", *OURS[0], threads=options.threads, device=options.device)
    if options.quick:
        case = replace(case, shape="tiny", horizon=16)
    began = time.perf_counter()
    dense = compare(case, BOTH, 1 if options.quick else options.rounds)
    wide = compare(replace(case, series=8), ENDS, 1)
    rounded = compare(replace(case, precision="bfloat16"), ENDS, 1)
    for extra, sides in () if options.quick else extra_cases(case):
        if time.perf_counter() - began > options.seconds:
            print(f"{extra.family} {extra.shape} {extra.series} x {extra.samples}: left out for time")
        elif next(build(replace(extra, shape="toy", device="cpu", heads="dense"))[0].attentions(), None) is None:
            print(f"{extra.family}: its attention layers cannot be read or written")
        else:
            compare(extra, sides, 1)
    print(json.dumps(ratios(dense, wide, rounded)))


def extra_cases(case: Case) -> Iterator[tuple[Case, tuple[tuple[str, str], ...]]]:
    """Yield the other cases to measure and their sides, the most important first."""
    for shape in ("small", "tiny"):
        yield replace(case, shape=shape), BOTH
    for family in ("chronos-bolt", "moirai"):
        yield replace(case, family=family, series=32, repeats=5), OURS
    for shape in ("small", "tiny"):
        yield replace(case, shape=shape, series=8), ENDS
    for family in ("chronos-bolt", "moirai"):
        yield replace(case, family=family, shape="small", series=32, repeats=5), OURS


if __name__ == "__main__":
    main()
