"""Time that caches save in autoregressive families: our samplers against networks without caches.

    python -m bench.sampling [--quick]

Models have random weights and run on the CPU: Lag-Llama at the released shape, Time-MoE at its 50M shape,
WaveToken at the shape of t5-efficient-tiny, and Chronos-T5 with four of base's twelve blocks and four paths of one
series. The other side of Lag-Llama and Time-MoE is a whole pass per step (or head) over rows of the same values, which
gives the same numbers. For WaveToken it is transformers' `generate`, with its cache and without; for Chronos-T5 it is
`generate` with its cache. Times are CPU seconds of the process, which stay comparable on a busy machine.

The last line is JSON: for each, the ratio of our time to the other side's, and except for Chronos-T5 the largest
difference of the results (WaveToken: of the logits at every step of the same ids) over their standard deviation.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tsfmscope.models.chronos import ChronosT5
from tsfmscope.models.lag_llama import LagLlama
from tsfmscope.models.lag_llama_network import StudentT, _quantiles_at, features, sample_paths
from tsfmscope.models.t5_decoding import StepDecoder, sample_ids, walk
from tsfmscope.models.time_moe import TimeMoE
from tsfmscope.models.time_moe_network import continue_values
from tsfmscope.models.wavetoken import SAMPLING, WaveToken
from tsfmscope.series.calendar import FEATURES

LAG_LLAMA = {"context_length": 32, "n_layer": 8, "n_head": 9, "n_embd_per_head": 16, "tokens": 256}
TIME_MOE = {"hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 12, "num_attention_heads": 12}
TINY = {"d_model": 256, "d_ff": 1024, "d_kv": 64, "num_heads": 4, "num_layers": 4, "num_decoder_layers": 4}
TINY |= {"n_tokens": 1024, "context_length": 512, "prediction_length": 64}
WIDE = {"d_model": 768, "d_ff": 3072, "d_kv": 64, "num_heads": 12, "num_layers": 4, "num_decoder_layers": 4}
WIDE |= {"n_tokens": 4096, "context_length": 512, "prediction_length": 64}


def time_call(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of `work` and its CPU seconds."""
    start = time.process_time()
    with torch.inference_mode():
        answer = work()
    return answer, time.process_time() - start


def lag_llama(series: int, paths: int, horizon: int) -> dict[str, float]:
    """Compare Lag-Llama's sample paths from the same uniform random numbers."""
    model, rng = LagLlama.new(LAG_LLAMA, seed=0), np.random.default_rng(0)
    walks = rng.normal(size=(series, model.max_context)).cumsum(axis=1)
    scaled = model._standardise(torch.from_numpy(walks).float(), torch.ones(series, dtype=torch.float64))
    lags, uniforms = torch.tensor(model.config["lags"]), rng.random((series, paths, horizon))
    calendar = torch.from_numpy(rng.uniform(-0.5, 0.5, (series, model.tokens + horizon, FEATURES))).float()

    def without_cache() -> np.ndarray:
        parts = (scaled.steps, scaled.static, calendar)
        steps, static, dates = (part.repeat_interleave(paths, dim=0) for part in parts)
        before = steps.shape[1]
        for step in range(horizon):
            positions = torch.arange(before - model.tokens, steps.shape[1])
            inputs = features(steps, static, lags, positions, dates[:, : model.tokens + step])
            last = StudentT(*(part[:, -1:] for part in model.network(inputs)))
            steps = torch.cat((steps, _quantiles_at(last, uniforms[:, :, step].reshape(-1, 1))), dim=1)
        return steps[:, before:].double().numpy().reshape(uniforms.shape)

    our_paths, our_s = time_call(
        lambda: sample_paths(model.network, scaled, lags, model.tokens, calendar, uniforms, 1.0)
    )
    their_paths, their_s = time_call(without_cache)
    return print_ratio("lag_llama", our_s, their_s) | {"lag_llama_difference": difference(our_paths, their_paths)}


def time_moe(series: int, context: int, horizon: int) -> dict[str, float]:
    """Compare Time-MoE's greedy forecasts, which use several heads one after another."""
    model = TimeMoE.new(TIME_MOE, seed=0)
    values = torch.from_numpy(np.random.default_rng(0).normal(size=(series, context)).astype(np.float32))
    lengths, start = model.config["horizon_lengths"], torch.zeros(series, dtype=torch.int64)

    def without_cache() -> torch.Tensor:
        steps = values
        while n_left := context + horizon - steps.shape[1]:
            number = max(i for i, length in enumerate(lengths) if length <= n_left)
            steps = torch.cat((steps, model.network.lm_heads[number](model.network(steps, start).states[:, -1])), dim=1)
        return steps[:, context:]

    our_steps, our_s = time_call(lambda: continue_values(model.network, values, start, horizon, lengths))
    their_steps, their_s = time_call(without_cache)
    return print_ratio("time_moe", our_s, their_s) | {
        "time_moe_difference": difference(our_steps.numpy(), their_steps.numpy())
    }


def wavetoken(series: int, paths: int) -> dict[str, float]:
    """Compare WaveToken: the time in which both sides draw ids of the future, and logits of the same ids."""
    model = WaveToken.new(TINY, seed=0)
    network, config = model.network.eval(), model.network.config.wavetoken_config
    rng, horizon = np.random.default_rng(0), model.prediction_length
    ids = torch.from_numpy(rng.integers(2, TINY["n_tokens"], (series, 513)))
    mask = torch.ones_like(ids, dtype=torch.bool)
    warp = argparse.Namespace(**{key: config[key] for key in SAMPLING}, eos_token_id=[0, 1])
    uniforms = torch.from_numpy(rng.random((series, paths, horizon)))
    options = sampling_options(paths, horizon) | {key: config[key] for key in SAMPLING}

    draws, our_s = time_call(lambda: sample_ids(network, ids, mask, uniforms, warp))
    seconds = {
        name: time_call(lambda cached=cached: network.generate(ids, attention_mask=mask, use_cache=cached, **options))[
            1
        ]
        for name, cached in (("wavetoken", False), ("wavetoken_generate", True))
    }
    logits_by_step: list[torch.Tensor] = []

    def follow(logits: torch.Tensor, step: int) -> torch.Tensor:
        logits_by_step.append(logits.clone())
        return draws[:, :, step]

    with torch.inference_mode():
        walk(StepDecoder(network, ids, mask, paths, horizon), follow)
        read = torch.nn.functional.pad(draws.flatten(0, 1), (1, 0), value=0)[:, :-1]
        encoded, repeated_mask = (part.repeat_interleave(paths, dim=0) for part in (ids, mask))
        expected = network(encoded, attention_mask=repeated_mask, decoder_input_ids=read, use_cache=False).logits
    our_logits = torch.stack(logits_by_step, dim=2).flatten(0, 1)
    ratios = print_ratio("wavetoken", our_s, seconds["wavetoken"])
    ratios |= print_ratio("wavetoken_generate", our_s, seconds["wavetoken_generate"])
    return ratios | {"wavetoken_difference": difference(our_logits.numpy(), expected.numpy())}


def few_paths(paths: int, horizon: int) -> dict[str, float]:
    """Compare the time in which both sides draw a few paths of one series."""
    model = ChronosT5.new(WIDE, seed=0)
    network, rng = model.network.eval(), np.random.default_rng(0)
    ids = torch.from_numpy(rng.integers(2, WIDE["n_tokens"], (1, 513)))
    mask = torch.ones_like(ids, dtype=torch.bool)
    warp = {"temperature": 1.0, "top_k": 50, "top_p": 1.0}
    config, options = argparse.Namespace(**warp, eos_token_id=1), sampling_options(paths, horizon) | warp
    uniforms = torch.from_numpy(rng.random((1, paths, horizon)))

    def decode_paths() -> torch.Tensor:
        return sample_ids(network, ids, mask, uniforms, config)

    def generate_paths() -> torch.Tensor:
        return network.generate(ids, attention_mask=mask, use_cache=True, **options)

    # The second call of each counts.
    our_s, their_s = ([time_call(work)[1] for _ in range(2)][1] for work in (decode_paths, generate_paths))
    return print_ratio("few_paths", our_s, their_s)


def sampling_options(paths: int, horizon: int) -> dict[str, Any]:
    """Return the options with which transformers' `generate` draws paths of `horizon` ids."""
    return {"do_sample": True, "num_return_sequences": paths, "min_new_tokens": horizon, "max_new_tokens": horizon}


def print_ratio(name: str, our_s: float, their_s: float) -> dict[str, float]:
    """Print both times, and return their ratio."""
    print(f"{name}: ours {our_s:.2f} s, other {their_s:.2f} s of CPU, ratio {our_s / their_s:.3f}", flush=True)
    return {f"{name}_ratio": round(our_s / their_s, 4)}


def difference(our_values: np.ndarray, their_values: np.ndarray) -> float:
    """Return the largest difference over the other side's standard deviation."""
    return float(f"{np.abs(our_values - their_values).max() / their_values.std():.1e}")


def main() -> None:
    """Print the ratios and differences of each family."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer series and steps")
    quick = parser.parse_args().quick
    series, paths, horizon = (1, 5, 8) if quick else (4, 20, 24)
    values = lag_llama(series, paths, horizon)
    values |= time_moe(series, 256 if quick else 512, 30)
    values |= wavetoken(series, paths)
    values |= few_paths(4, horizon)
    print(json.dumps(values | {"threads": torch.get_num_threads()}))


if __name__ == "__main__":
    main()
