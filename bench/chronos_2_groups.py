"""Time of Chronos-2's forecasts if attention over a group reads that group alone, relative to the stock pipeline.

    python -m bench.chronos_2_groups [--quick] [--rounds N] [--threads N] [--layers N]

The stock network computes group attention between all series of a batch and masks those of other groups, which is
quadratic in the batch. Here each group attends by itself, as pull request 442 of chronos-forecasting proposes; groups
of one size are computed together. In a group of one series the attention is its value, so queries and keys are left
out. Both sides are `Chronos2Pipeline.predict` with one network of base shape (width 768) and random weights, context
512 and horizon 64; they take turns, and the median over the rounds counts. The last case has contexts of different
lengths. `--quick`: a small network and batch, one round.

Last line JSON: for each case, ratio of wall and of processor seconds, and the largest difference of the forecasts over
the standard deviation of the stock pipeline's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from tsfmscope.models.chronos_2 import Chronos2

BASE = {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_heads": 12, "initializer_factor": 0.05}
SMALL = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_heads": 4, "initializer_factor": 0.05}
STEPS = {"context_length": 512, "max_output_patches": 4, "input_patch_size": 16, "use_arcsinh": True}
LEVELS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
CONTEXT, HORIZON = 512, 64


class Bucket(NamedTuple):
    """Groups of one size: their rows [group, series], and the additive mask [group * token, 1, 1, series]."""

    rows: torch.Tensor
    mask: torch.Tensor


def buckets(group_ids: torch.Tensor, attention_mask: torch.Tensor, dtype: torch.dtype) -> list[Bucket]:
    """Take the place of the encoder's mask: sort the rows of a batch by group and groups by size."""
    _, group_of, sizes = group_ids.unique(return_inverse=True, return_counts=True)
    order = group_of.argsort(stable=True)
    made = []
    for size in sizes.unique().tolist():
        rows = order[(sizes == size)[group_of[order]]].reshape(-1, size)
        mask = attention_mask[rows].transpose(1, 2).flatten(0, 1)[:, None, None].to(dtype)
        made.append(Bucket(rows, (1.0 - mask) * torch.finfo(dtype).min))
    return made


def attend(layer: Any, states: torch.Tensor, attention_mask: list[Bucket], output_attentions: bool = False) -> Any:
    """Take the place of the forward pass of a group attention layer, for states [batch, token, width]."""
    from chronos.chronos2.layers import AttentionOutput

    attention, normed, change = layer.self_attention, layer.layer_norm(states), torch.empty_like(states)
    for rows, mask in attention_mask:
        groups, size = rows.shape
        if size == 1:
            change[rows[:, 0]] = attention.o(attention.v(normed[rows[:, 0]]))
            continue
        # [group * token, series, width]
        by_token = normed[rows].transpose(1, 2).flatten(0, 1)
        attended = attention(by_token, mask=mask).hidden_states
        change[rows] = attended.unflatten(0, (groups, -1)).transpose(1, 2)
    return AttentionOutput(hidden_states=states + change, attn_weights=None)


@contextmanager
def by_group(network: Any) -> Iterator[None]:
    """Let every group attend by itself."""
    layers = [block.layer[1] for block in network.encoder.block]
    network.encoder._construct_and_invert_group_time_mask = buckets
    for layer in layers:
        layer.forward = partial(attend, layer)
    try:
        yield
    finally:
        del network.encoder._construct_and_invert_group_time_mask
        for layer in layers:
            del layer.forward


def walks(*shape: int) -> torch.Tensor:
    """Return random walks along the last dimension."""
    return torch.from_numpy(np.random.default_rng(0).normal(size=shape).cumsum(axis=-1).astype(np.float32))


def cases(*, quick: bool) -> dict[str, list[torch.Tensor]]:
    """Return the series of each case, [variate, step] or [step]."""
    large, small = (16, 4) if quick else (256, 32)
    lengths = np.random.default_rng(1).integers(64, CONTEXT + 1, size=large).tolist()
    return {
        f"{large} x 1": list(walks(large, CONTEXT)),
        f"{small} x 1": list(walks(small, CONTEXT)),
        f"{large // 4} x 4": list(walks(large // 4, 4, CONTEXT)),
        f"{large // 16} x 16": list(walks(large // 16, 16, CONTEXT)),
        f"{large} x 1, lengths 64 to {CONTEXT}": [
            series[-length:] for series, length in zip(walks(large, CONTEXT), lengths, strict=True)
        ],
    }


def timed(run: Callable[[], list[torch.Tensor]]) -> tuple[torch.Tensor, float, float]:
    """Return the forecasts [row, quantile, step], wall seconds and processor seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    quantiles = torch.cat(run())
    return quantiles, time.perf_counter() - wall, time.process_time() - cpu


def compare(pipeline: Any, series: list[torch.Tensor], rounds: int) -> dict[str, float]:
    """Return the ratios and the largest difference of a case."""
    predict = partial(pipeline.predict, series, prediction_length=HORIZON)
    stock, grouped = [], []
    for _ in range(rounds):
        stock.append(timed(predict))
        with by_group(pipeline.model):
            grouped.append(timed(predict))
    wall, cpu = (
        statistics.median(row[i] for row in grouped) / statistics.median(row[i] for row in stock) for i in (1, 2)
    )
    difference = (grouped[0][0] - stock[0][0]).abs().max() / stock[0][0].std()
    seconds = statistics.median(row[1] for row in stock)
    return {"wall_ratio": wall, "cpu_ratio": cpu, "difference": float(difference), "stock_seconds": seconds}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small network, one round")
    parser.add_argument("--rounds", type=int, default=3, help="forecasts of each side")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    parser.add_argument("--layers", type=int, default=12, help="blocks of the network; 12 in the released model")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    from chronos import Chronos2Pipeline

    shape = (SMALL | {"num_layers": 2}) if options.quick else (BASE | {"num_layers": options.layers})
    pipeline = Chronos2Pipeline(Chronos2.new(shape | STEPS | {"quantiles": LEVELS}, seed=0).network)
    print(f"width {shape['d_model']}, {shape['num_layers']} blocks, {options.threads} threads")
    print(f"{'groups x series':28s} {'stock s':>8s} {'wall':>6s} {'cpu':>6s}  difference", flush=True)
    rows = {}
    with torch.inference_mode():
        for name, series in cases(quick=options.quick).items():
            row = rows[name] = compare(pipeline, series, 1 if options.quick else options.rounds)
            ratios = f"{row['wall_ratio']:6.3f} {row['cpu_ratio']:6.3f}"
            print(f"{name:28s} {row['stock_seconds']:8.2f} {ratios}  {row['difference']:.1e}", flush=True)
    print(json.dumps({name: {key: round(value, 8) for key, value in row.items()} for name, row in rows.items()}))


if __name__ == "__main__":
    main()
