"""Time and memory of forecasts: dense heads against narrow ones, the stock pipeline against our sampler.

    python -m bench.compression [--quick] [--device cuda] [--threads N] [--rounds N] [--seconds N]

Released shapes of Chronos-T5 with random weights (speed needs no training), context 512, horizon 64. `stock` is
chronos.ChronosPipeline.predict, transformers' generate inside; `ours` is the family's forecast, quantiles included.
`narrow`: every head has the ranks ceil(3 (1 + l)^0.27) of layer l, "size ratio 0.075" in print; `ratio` is the mean
rank over the full width. Of Chronos-Bolt and Moirai, which forecast in one go, dense and narrow.
Every line is a process of its own, so that peaks don't mix; the lines of a shape take turns, and the median over the
rounds counts. Before it measures, a process has forecast with a toy of the family, so that imports and thread pools are
`idle`. Memory is in MiB above idle: `peak` while forecasting, weights included, and of it `weights` (the parameters),
`cache` (keys and values, by tensor) and the rest. The encoder's time is from a hook on it in the stock pipeline; ours
is that of a second encoding of the same windows, cross-attention's keys and values included, after the clock stopped.
`cpu s` is processor time, which other load moves less. On a GPU memory is what torch allocated there.
Last line JSON, of the base shape (--quick: tiny, 16 steps) at 4 series x 20 samples, over the stock pipeline with dense
heads: time_ratio, cpu_ratio and memory_ratio of our sampler with narrow heads, *_stock_sampler of the stock pipeline
with narrow heads, *_dense of our sampler with dense heads; *_8x20 is the first at 8 series.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tasks.compression import schedules
from tasks.models.attention import Widths
from tasks.models.base import Forecaster
from tasks.models.registry import family_class
from tasks.series.types import Windows

ROOT = Path(__file__).resolve().parents[1]
MIB = 2**20
FIRST, GROWTH, ORIGIN = 3, 0.27, 2  # rank_structure.md, Fig. 7, at the printed size ratio 0.075
STEPS = {"context_length": 512, "prediction_length": 64}
PATCHES = {"patch_sizes": [8, 16, 32, 64, 128]}


def _t5(width: int, inner: int, heads: int, layers: int) -> dict[str, Any]:
    shape = {"d_model": width, "d_ff": inner, "d_kv": 64, "num_heads": heads}
    return {**shape, "num_layers": layers, "num_decoder_layers": layers, **STEPS}


T5 = {"tiny": _t5(256, 1024, 4, 4), "small": _t5(512, 2048, 8, 6), "base": _t5(768, 3072, 12, 12)}
T5["toy"] = _t5(64, 128, 2, 2)
SHAPES: dict[str, dict[str, dict[str, Any]]] = {
    "chronos-t5": {name: {**shape, "n_tokens": 4096} for name, shape in T5.items()},  # amazon/chronos-t5-*
    "chronos-bolt": T5,  # amazon/chronos-bolt-*
    "moirai": {  # Salesforce/moirai-1.0-R-*
        "toy": {"d_model": 128, "num_layers": 2, **PATCHES},
        "small": {"d_model": 384, "num_layers": 6, **PATCHES},
        "base": {"d_model": 768, "num_layers": 12, **PATCHES},
    },
}
HEADER = (
    f"{'family':12s} {'shape':6s} {'side':6s} {'heads':7s} {'series':>6s} {'ratio':>6s}"
    f" {'wall s':>8s} {'encoder':>8s} {'decoder':>8s} {'cpu s':>8s}"
    f" {'peak':>7s} {'weights':>7s} {'cache':>7s} {'rest':>7s} {'idle':>5s}"
)


Lines = dict[tuple[str, str], dict[str, float]]  # of the table, by side and heads


@dataclass(frozen=True)
class Case:
    """What one process measures. `repeats`: forecasts, of which the median counts."""

    family: str
    shape: str
    side: str  # stock or ours
    heads: str  # dense or narrow
    series: int = 4
    samples: int = 20
    horizon: int = 64
    repeats: int = 1
    threads: int = 1
    device: str = "cpu"


def windows(count: int, horizon: int) -> Windows:
    """Seasonal random walks, 512 steps each."""
    rng = np.random.default_rng(0)
    steps = np.arange(STEPS["context_length"])
    context = rng.normal(size=(count, len(steps))).cumsum(axis=1) + 5 * np.sin(steps / 24 * 2 * np.pi)
    future = np.full((count, horizon), np.nan, dtype=np.float32)
    names = [str(number) for number in range(count)]
    return Windows(context.astype(np.float32), future, names, np.full(count, len(steps)), "walks", "h", 24)


def narrow(model: Forecaster) -> float:
    """Give the heads of every attention layer the schedule's ranks; the mean share of their width that is left.

    Where something lies between q and k and their product (a rotation), only the values become narrower, and only
    their share counts.
    """
    shares = []
    for layer in model.attentions():
        full = layer.read()
        ranks = schedules.flow(FIRST, GROWTH, model.layers[layer.stack], origin=ORIGIN)
        key, value = (min(ranks[layer.layer - 1], width) for width in full.widths)
        layer.write(full.sliced(Widths(key if layer.plain else full.widths.key, value)))
        shares.append(value / full.widths.value)
    return float(np.mean(shares))


def wait(gpu: bool) -> None:
    """Until the GPU has done what it was given."""
    import torch

    if gpu:
        torch.cuda.synchronize()


class Watch:
    """Of forecasts by transformers' generate: seconds in the encoder, bytes of the caches at the end."""

    def __init__(self, network: Any, gpu: bool) -> None:
        self.encoder, self.cache, self._gpu = 0.0, 0, gpu
        network.encoder.register_forward_pre_hook(lambda *_: self._clock(-1))
        network.encoder.register_forward_hook(lambda *_: self._clock(1))
        network.decoder.register_forward_hook(self._weigh, with_kwargs=True)

    def _clock(self, sign: int) -> None:
        wait(self._gpu)
        self.encoder += sign * time.perf_counter()

    def _weigh(self, module: Any, args: Any, options: dict[str, Any], output: Any) -> None:
        both = options["past_key_values"]
        layers = [*both.self_attention_cache.layers, *both.cross_attention_cache.layers]
        self.cache = sum(part.nbytes for layer in layers for part in (layer.keys, layer.values))


def forecaster(case: Case, model: Forecaster) -> Callable[[], object]:
    """The forecast that is timed."""
    import torch

    made = windows(case.series, case.horizon)
    if case.side == "ours":
        return lambda: model.forecast(made, samples=case.samples, seeds=list(range(case.series)))
    from chronos import ChronosPipeline
    from chronos.chronos import ChronosModel

    settings, network = model.chronos, model.network  # type: ignore[attr-defined]
    network.encoder.config._attn_implementation = "sdpa"  # transformers' own, which ours is too without gradients
    pipeline = ChronosPipeline(settings.create_tokenizer(), ChronosModel(settings, network))
    context = torch.from_numpy(made.context)
    return lambda: pipeline.predict(context, case.horizon, num_samples=case.samples)


class Memory:
    """Bytes that the process, or torch on the GPU, holds and has held at most (Linux with glibc)."""

    def __init__(self, gpu: bool) -> None:
        self._gpu = gpu

    def held(self) -> int:
        """Now, freed memory given back; the peak begins anew."""
        import torch

        gc.collect()
        if self._gpu:
            torch.cuda.reset_peak_memory_stats()
            return torch.cuda.memory_allocated()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        return self._status("VmRSS")

    def peak(self) -> int:
        """Since then."""
        import torch

        return torch.cuda.max_memory_allocated() if self._gpu else self._status("VmHWM")

    @staticmethod
    def _status(name: str) -> int:
        return int(Path("/proc/self/status").read_text().partition(f"{name}:")[2].split()[0]) * 1024


def build(case: Case) -> tuple[Any, float]:
    """The model on its device, and the share of its heads' width that is left."""
    model = family_class(case.family).new(SHAPES[case.family][case.shape], seed=0)
    ratio = narrow(model) if case.heads == "narrow" else 1.0
    model.network.to(case.device)
    return model, ratio


def measure(case: Case) -> dict[str, float]:
    """One line of the table, in this process; it must be a fresh one."""
    import torch

    torch.set_num_threads(case.threads)
    gpu = case.device != "cpu"
    toy = replace(case, shape="toy", series=1, samples=2)
    forecaster(toy, build(toy)[0])()
    memory = Memory(gpu)
    idle = memory.held()
    model, ratio = build(case)
    watch = Watch(model.network, gpu) if case.side == "stock" else None
    run = forecaster(case, model)
    memory.held()
    walls, cpus = [], []
    for _ in range(case.repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        wait(gpu)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    peak = memory.peak() - idle
    found = {"ratio": ratio, "wall": statistics.median(walls), "cpu": statistics.median(cpus), "idle": idle / MIB}
    found |= {"peak": peak / MIB, "weights": sum(one.nbytes for one in model.network.parameters()) / MIB}
    if watch is not None:
        found |= {"encoder": watch.encoder / case.repeats, "cache": watch.cache / MIB}
    elif case.family == "chronos-t5":
        found |= encoding(case, model)
    return found


def encoding(case: Case, model: Any) -> dict[str, float]:
    """Seconds that our sampler's encoder takes, and the MB of caches that it then holds."""
    import torch

    from tasks.models.t5_steps import StepDecoder

    arrays = model.tokenize(windows(case.series, case.horizon)).arrays
    ids, mask = (torch.from_numpy(arrays[name].astype(kind)) for name, kind in (("ids", np.int64), ("mask", bool)))
    begun = time.perf_counter()
    with torch.inference_mode():
        decoder = StepDecoder(model.network, ids.to(case.device), mask.to(case.device), case.samples, case.horizon)
    wait(case.device != "cpu")
    return {"encoder": time.perf_counter() - begun, "cache": sum(one.nbytes for one in decoder.caches) / MIB}


def in_process(case: Case) -> dict[str, float]:
    """`measure` in a process of its own."""
    command = [sys.executable, "-m", "bench.compression", "--case", json.dumps(asdict(case))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{case}: {done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(case: Case, sides: tuple[tuple[str, str], ...], rounds: int) -> Lines:
    """Lines of one shape, by side and heads, in turns; medians over the rounds."""
    found: dict[tuple[str, str], list[dict[str, float]]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, heads in sides:
            found[side, heads].append(in_process(replace(case, side=side, heads=heads)))
    medians = {
        side: {name: statistics.median(one[name] for one in rows) for name in rows[0]} for side, rows in found.items()
    }
    for (side, heads), row in medians.items():
        print(line(replace(case, side=side, heads=heads), row), flush=True)
    return medians


def line(case: Case, row: dict[str, float]) -> str:
    """Of the table."""
    head = f"{case.family:12s} {case.shape:6s} {case.side:6s} {case.heads:7s} {case.series:6d} {row['ratio']:6.3f}"
    encoder, cache = row.get("encoder"), row.get("cache")
    parts = f"{'':8s} {'':8s}" if encoder is None else f"{encoder:8.3f} {row['wall'] - encoder:8.3f}"
    rest = row["peak"] - row["weights"] - (cache or 0.0)
    held = f"{'':7s}" if cache is None else f"{cache:7.1f}"
    return (
        f"{head} {row['wall']:8.3f} {parts} {row['cpu']:8.3f}"
        f" {row['peak']:7.1f} {row['weights']:7.1f} {held} {rest:7.1f} {row['idle']:5.0f}"
    )


BOTH = tuple((side, heads) for side in ("stock", "ours") for heads in ("dense", "narrow"))
ENDS = (BOTH[0], BOTH[3])
OURS = BOTH[2:]


def ratios(found: Lines, wide: Lines) -> dict[str, float]:
    """Of time, processor time and peak memory, over the stock pipeline with dense heads."""
    stock, columns = found[BOTH[0]], {"time": "wall", "cpu": "cpu", "memory": "peak"}
    sides = {"": BOTH[3], "_stock_sampler": BOTH[1], "_dense": BOTH[2]}
    over = {
        f"{name}_ratio{suffix}": found[side][column] / stock[column]
        for suffix, side in sides.items()
        for name, column in columns.items()
    }
    over |= {f"{name}_ratio_8x20": wide[BOTH[3]][column] / wide[BOTH[0]][column] for name, column in columns.items()}
    return {name: round(value, 4) for name, value in over.items()}


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
    found = compare(case, BOTH, 1 if options.quick else options.rounds)
    wide = compare(replace(case, series=8), ENDS, 1)
    for other, sides in () if options.quick else others(case):
        if time.perf_counter() - began > options.seconds:
            print(f"{other.family} {other.shape} {other.series} x {other.samples}: left out for time")
        elif next(build(replace(other, shape="toy", device="cpu", heads="dense"))[0].attentions(), None) is None:
            print(f"{other.family}: its attention layers cannot be read or written")
        else:
            compare(other, sides, 1)
    print(json.dumps(ratios(found, wide)))


def others(case: Case) -> Iterator[tuple[Case, tuple[tuple[str, str], ...]]]:
    """What is measured besides, and which sides of it: the first are wanted most."""
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
