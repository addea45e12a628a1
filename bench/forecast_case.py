"""Measurement in one process of bench/compression.py: time and memory of a forecast, random weights."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bench import memory
from bench.memory import MIB
from tsfmscope.compression import schedules
from tsfmscope.models.base import Forecaster
from tsfmscope.models.common.attention import Widths
from tsfmscope.models.common.layers import run_in
from tsfmscope.models.registry import family_class
from tsfmscope.series.types import Windows

# Yu et al. 2026, Fig. 7, at the printed size ratio 0.075
FIRST, GROWTH, ORIGIN = 3, 0.27, 2
STEPS = {"context_length": 512, "prediction_length": 64}
PATCHES = {"patch_sizes": [8, 16, 32, 64, 128]}


def _t5(width: int, inner: int, heads: int, layers: int) -> dict[str, Any]:
    shape = {"d_model": width, "d_ff": inner, "d_kv": 64, "num_heads": heads}
    return {**shape, "num_layers": layers, "num_decoder_layers": layers, **STEPS}


T5 = {"tiny": _t5(256, 1024, 4, 4), "small": _t5(512, 2048, 8, 6), "base": _t5(768, 3072, 12, 12)}
T5["toy"] = _t5(64, 128, 2, 2)
SHAPES: dict[str, dict[str, dict[str, Any]]] = {
    # amazon/chronos-t5-*
    "chronos-t5": {name: {**shape, "n_tokens": 4096} for name, shape in T5.items()},
    # amazon/chronos-bolt-*
    "chronos-bolt": T5,
    # Salesforce/moirai-1.0-R-*
    "moirai": {
        "toy": {"d_model": 128, "num_layers": 2, **PATCHES},
        "small": {"d_model": 384, "num_layers": 6, **PATCHES},
        "base": {"d_model": 768, "num_layers": 12, **PATCHES},
    },
}


@dataclass(frozen=True)
class Case:
    """Settings of the measurement in one process.

    side: stock or ours. heads: dense or narrow. repeats: number of forecasts, whose median counts. precision: for ours,
    of the products with matrices; for the stock pipeline, of the whole network.
    """

    family: str
    shape: str
    side: str
    heads: str
    series: int = 4
    samples: int = 20
    horizon: int = 64
    repeats: int = 1
    threads: int = 1
    device: str = "cpu"
    precision: str = "float32"


def windows(count: int, horizon: int) -> Windows:
    """Return windows of seasonal random walks with 512 steps each."""
    rng = np.random.default_rng(0)
    steps = np.arange(STEPS["context_length"])
    context = rng.normal(size=(count, len(steps))).cumsum(axis=1) + 5 * np.sin(steps / 24 * 2 * np.pi)
    future = np.full((count, horizon), np.nan, dtype=np.float32)
    names = [str(number) for number in range(count)]
    return Windows(context.astype(np.float32), future, names, np.full(count, len(steps)), "walks", "h", 24)


def narrow(model: Forecaster) -> float:
    """Narrow the heads of every attention layer to the schedule; return the mean share of width that is left.

    If something lies between the projections q and k and their product (a rotation), only the values become
    narrower. The share is always the one of the values.
    """
    values = []
    for layer in model.attentions():
        full = layer.read()
        ranks = schedules.flow(FIRST, GROWTH, model.layers[layer.stack], origin=ORIGIN)
        key, value = (min(ranks[layer.layer - 1], width) for width in full.widths)
        layer.write(full.slice_heads(Widths(key if layer.plain else full.widths.key, value)))
        values.append(value)
    # The heads of all layers have the same width.
    return float(np.mean(values)) / full.widths.value


def wait(gpu: bool) -> None:
    """Wait until the GPU has finished its work."""
    import torch

    if gpu:
        torch.cuda.synchronize()


class Watch:
    """Hooks on transformers' generate: seconds in the encoder, bytes of the caches at the end."""

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
    """Return a function that makes the forecast to be timed."""
    import torch

    batch = windows(case.series, case.horizon)
    if case.side == "ours":
        return lambda: model.forecast(batch, samples=case.samples, seeds=list(range(case.series)))
    from chronos import ChronosPipeline
    from chronos.chronos import ChronosModel

    settings, network = model.chronos, model.network  # type: ignore[attr-defined]
    # The implementation of transformers itself, which ours also uses without gradients.
    network.encoder.config._attn_implementation = "sdpa"
    pipeline = ChronosPipeline(settings.create_tokenizer(), ChronosModel(settings, network))
    context = torch.from_numpy(batch.context)
    return lambda: pipeline.predict(context, case.horizon, num_samples=case.samples)


def resident_bytes(gpu: bool) -> int:
    """Return the bytes in use by the process, or by torch on the GPU, and reset the peak."""
    import torch

    if not gpu:
        return memory.resident_bytes()
    gc.collect()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def peak(gpu: bool) -> int:
    """Return the peak of these bytes since the last call of `resident_bytes`."""
    import torch

    return torch.cuda.max_memory_allocated() if gpu else memory.peak()


def build(case: Case) -> tuple[Any, float]:
    """Return the model on its device, and the share of its heads' width that is left."""
    import torch

    model = family_class(case.family).new(SHAPES[case.family][case.shape], seed=0)
    ratio = 1.0 if case.heads == "dense" else narrow(model)
    model.network.to(case.device)
    if case.side == "ours":
        run_in(model.network, case.precision)
    else:
        model.network.to(getattr(torch, case.precision))
    return model, ratio


def measure(case: Case) -> dict[str, float]:
    """Measure one line of the table in this process, which must be a fresh one."""
    import torch

    torch.set_num_threads(case.threads)
    gpu = case.device != "cpu"
    toy = replace(case, shape="toy", series=1, samples=2)
    forecaster(toy, build(toy)[0])()
    idle = resident_bytes(gpu)
    model, ratio = build(case)
    watch = Watch(model.network, gpu) if case.side == "stock" else None
    run = forecaster(case, model)
    resident_bytes(gpu)
    walls, cpus = [], []
    for _ in range(case.repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        wait(gpu)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    growth = peak(gpu) - idle
    values = {"ratio": ratio, "wall": statistics.median(walls), "cpu": statistics.median(cpus), "idle": idle / MIB}
    values |= {"peak": growth / MIB, "weights": sum(parameter.nbytes for parameter in model.network.parameters()) / MIB}
    if watch is not None:
        values |= {"encoder": watch.encoder / case.repeats, "cache": watch.cache / MIB}
    elif case.family == "chronos-t5":
        values |= encoding(case, model)
    return values


def encoding(case: Case, model: Any) -> dict[str, float]:
    """Return the seconds of our sampler's encoder, and the size of the caches after it, in MiB."""
    import torch

    from tsfmscope.models.t5_decoding import StepDecoder

    arrays = model.tokenize(windows(case.series, case.horizon)).arrays
    ids, mask = (torch.from_numpy(arrays[name].astype(kind)) for name, kind in (("ids", np.int64), ("mask", bool)))
    start = time.perf_counter()
    with torch.inference_mode():
        decoder = StepDecoder(model.network, ids.to(case.device), mask.to(case.device), case.samples, case.horizon)
    wait(case.device != "cpu")
    return {"encoder": time.perf_counter() - start, "cache": sum(part.nbytes for part in decoder.caches) / MIB}
