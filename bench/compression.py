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

The shapes tiny, small and base are the headline: a table has seconds and peak memory at 4 series x 20 samples over
those of the stock pipeline with dense heads. Neurons stay: `compress` removes none. Random weights have no loss, so the
loss of the same schedule of ranks stands next to it: `chronos-t5-mini`, whose heads are truncated by `activation-aware`
with synthetic calibration, over the dense model, by WQL on the guided sets (bench/skill.py), with Student's 95 %
interval over sets and the worst set. The models of the paper were trained with their heads.

Last line JSON: time_ratio, cpu_ratio and memory_ratio of the headline by side, heads and shape, and the loss.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bench.bits import CONTEXT, HORIZON, SETS, load, scores
from bench.compression_race import interval
from bench.forecast_case import FIRST, GROWTH, ORIGIN, Case, build, measure
from bench.skill import SLOW, cut_windows, guided_parts, spread_parts
from tsfmscope.compression.compress import compress_model
from tsfmscope.compression.options import WINDOWS, Calibration, Method

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
COLUMNS = {"time": "wall", "cpu": "cpu", "memory": "peak"}


def lose(is_quick: bool) -> dict[str, Any]:
    """Return WQL of chronos-t5-mini with narrow heads over dense, its limits, and the worst set; print them."""
    name = "chronos-t5-mini"
    model, flow = load(name), {"first": FIRST, "growth": GROWTH, "origin": ORIGIN}
    parts = list(itertools.islice(guided_parts(), 5 if is_quick else None))
    pairs = list(spread_parts(cut_windows(parts), 1 if is_quick else SLOW[name]))
    dense = scores(model, pairs)
    method = Method.model_validate({"method": "activation-aware", "ranks": {"flow": flow}})
    calibration = Calibration(
        windows=2 if is_quick else WINDOWS, context=CONTEXT, horizon=HORIZON, seed=0, held_out=0, synthetic=SETS
    )
    rows = compress_model(model, method, base_model=name, tables={}, calibration=calibration)
    narrow = scores(model, pairs)
    logs = {(name, key[1]): math.log(narrow[key][0] / loss) for key, (loss, *_) in dense.items() if loss}
    ratio, low, high = interval(logs)
    worst = max(logs, key=lambda key: logs[key])
    share = statistics.mean(row["rank"] / row["full_width"] for row in rows)
    print(f"{name}, heads of {share:.2f} of the width: WQL over dense {ratio:.3f} [{low:.3f}, {high:.3f}], worst "
          f"{math.exp(logs[worst]):.2f} {worst[1]}, {len(logs)} guided sets")  # fmt: skip
    return {"loss_ratio": ratio, "loss_low": low, "loss_high": high, "loss_worst": math.exp(logs[worst])}


def main() -> None:
    """Run the table, or one line of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny shape, 16 steps, one round, five sets")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda for a GPU")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of torch; default: cores")
    parser.add_argument("--rounds", type=int, default=2, help="of the headline")
    parser.add_argument("--seconds", type=float, default=450, help="after so many no other shape is begun")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure(Case(**json.loads(options.case)))))
        return
    print(f"{options.device}, {options.threads} threads\n{HEADER}", flush=True)
    case = Case("chronos-t5", "base", *OURS[0], threads=options.threads, device=options.device)
    if options.quick:
        case = replace(case, horizon=16)
    began, values = time.perf_counter(), {}
    for shape in ("tiny",) if options.quick else ("tiny", "small", "base"):
        lines = compare(replace(case, shape=shape), BOTH, 1 if options.quick else options.rounds)
        for side, heads in BOTH[1:]:
            part = {name: lines[side, heads][key] / lines[BOTH[0]][key] for name, key in COLUMNS.items()}
            print(f"{shape}, {side} {heads} over stock dense: time {part['time']:.3f}, memory {part['memory']:.3f}")
            values |= {f"{name}_ratio_{side}_{heads}_{shape}": value for name, value in part.items()}
    values |= lose(options.quick)
    for extra, sides in () if options.quick else extra_cases(case):
        if time.perf_counter() - began > options.seconds:
            print(f"{extra.family} {extra.shape} {extra.series} x {extra.samples}: left out for time")
        elif next(build(replace(extra, shape="toy", device="cpu", heads="dense"))[0].attentions(), None) is None:
            print(f"{extra.family}: its attention layers cannot be read or written")
        else:
            compare(extra, sides, 1)
    print(json.dumps({name: round(value, 4) for name, value in values.items()}))


def extra_cases(case: Case) -> Iterator[tuple[Case, tuple[tuple[str, str], ...]]]:
    """Yield the other cases to measure and their sides, the most important first."""
    yield replace(case, series=8), ENDS
    yield replace(case, precision="bfloat16"), ENDS
    for family in ("chronos-bolt", "moirai"):
        yield replace(case, family=family, series=32, repeats=5), OURS
    for shape in ("small", "tiny"):
        yield replace(case, shape=shape, series=8), ENDS
    for family in ("chronos-bolt", "moirai"):
        yield replace(case, family=family, shape="small", series=32, repeats=5), OURS


if __name__ == "__main__":
    main()
