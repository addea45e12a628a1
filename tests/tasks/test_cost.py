"""Predicted operations against a hand-worked case and against torch's own counter; speeds add up."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tsfmscope.tasks import cost, lens
from tsfmscope.tasks.conformance.examples import EXAMPLES, prepare_model
from tsfmscope.tasks.models import registry
from tsfmscope.tasks.series.types import Series
from tsfmscope.tasks.speed import (
    CORE,
    GPUS,
    GeometryDraws,
    Work,
    geometry_seconds,
    gpu_speed,
    measure_core,
    speed_of,
)


def new_model(family: str) -> Any:
    return prepare_model(registry.family_class(family).new(EXAMPLES[family], seed=0))


def test_sizes_of_a_small_t5_by_hand() -> None:
    """Width 16, inner 24, three heads of 6; three blocks in the encoder, two in the decoder."""
    size = cost.model_size(new_model("chronos-t5"))
    encoder, decoder = size.stacks["encoder"], size.stacks["decoder"]
    projection, mlp = 16 * 18, 2 * 16 * 24
    assert (encoder.blocks, encoder.states, decoder.states) == (3, 5, 4)
    assert encoder.per_token == 3 * (4 * projection + mlp)
    assert decoder.per_token == 2 * (4 * projection + 2 * projection + mlp)
    assert decoder.per_read == 2 * 2 * projection
    assert (encoder.per_pair, decoder.per_pair, decoder.per_read_pair) == (3 * 36, 2 * 36, 2 * 36)
    assert (encoder.heads, encoder.outputs, encoder.cached) == (9, 3 * (3 * 18 + 16 + 24 + 16), 3 * 36)
    work = cost.states_work(size, {"encoder": 10, "decoder": 5}, 1)
    pairs = 10 * 10 * 108 + 5 * 5 * 72 + 5 * 10 * 72
    assert work.multiply_adds == 10 * encoder.per_token + 5 * decoder.per_token + 10 * decoder.per_read + pairs
    assert work.calls == 5
    # A head of 128 ids reads each path at each of 7 steps. Weights are read once per step, for any number of paths.
    none, few, many = (
        cost.forecast_work(size, {"encoder": 10, "decoder": 5}, 1, horizon=7, samples=n, batch=1) for n in (0, 4, 28)
    )
    path = 7 * (decoder.per_token + 3.5 * 72 + 10 * 72 + 128 * 16)
    assert few.multiply_adds - none.multiply_adds == pytest.approx(4 * path)
    assert many.multiply_adds - none.multiply_adds == pytest.approx(28 * path)
    assert few.reads == many.reads == encoder.weights + decoder.per_read + 7 * (decoder.per_token + 128 * 16)
    assert (encoder.weights, decoder.weights) == (encoder.per_token, decoder.per_token + decoder.per_read)


@pytest.mark.parametrize("family", ["chronos-t5", "chronos-bolt", "lag-llama", "patchtst", "timesfm"])
def test_matrices_have_the_multiply_adds_that_torch_counts(family: str) -> None:
    model = new_model(family)
    walk = np.cumsum(np.random.default_rng(0).normal(size=400)).astype(np.float32) + 50
    tokens = lens.tokenize(model, [Series("x", "x", walk, "", "")], context=48, horizon=12, rows=40, seed=0).tokens
    assert tokens is not None
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        model._pass(tokens).forward(slice(0, len(tokens)))
    size = cost.model_size(model)
    shape = {stack: kinds.shape[1] for stack, kinds in tokens.kinds.items()}
    first = next(iter(shape.values()))
    matrices = sum(n * size.stacks[stack].per_token + first * size.stacks[stack].per_read for stack, n in shape.items())
    # torch does not count its fused attention on a CPU. Embeddings are not predicted; at this width they are large.
    assert 0.6 < 2 * len(tokens) * matrices / counter.get_total_flops() <= 1.02


def test_experts_count_as_many_as_a_token_passes() -> None:
    size = cost.model_size(new_model("time-moe"))
    dense = sum(matrix.matrix.size for matrix in new_model("time-moe").weights())
    assert 0 < size.stacks["decoder"].per_token < size.stacks["decoder"].weights == dense


def test_the_rate_of_reading_is_what_few_rows_take_beyond_their_products() -> None:
    speed = speed_of(CORE.multiply_adds / 2, 4 / (CORE.multiply_adds / 2) + 1e-9)
    assert (speed.reads, speed.values) == (pytest.approx(1e9), CORE.values / 2)
    assert speed_of(1e9, 4e-9).reads == 1 / 2e-9  # noise: no time left beyond the products


def test_speeds_add_up_and_order_devices() -> None:
    work = Work(36e9, 6.5e8, 10) + Work(0, 0, 5, 1.3e9) * 2
    assert CORE.seconds(work) == pytest.approx(1 + 1 + 20 * CORE.call + 2)
    for threads in (1, 2):
        measured = measure_core(0.05, threads)
        assert min(measured.multiply_adds, measured.values, measured.reads) > 1e7
    assert all(gpu_speed(name).seconds(work) < CORE.seconds(work) for name in GPUS)


def test_seconds_of_geometry_grow_with_tokens_and_draws_and_are_few_for_a_thin_svd() -> None:
    default = GeometryDraws(restarts=10, permutations=39, repeats=5)
    seconds = functools.partial(geometry_seconds, core=CORE, draws=default, with_cai=False)
    assert seconds(1024, 64) < seconds(4096, 64) < seconds(4096, 64, with_cai=True)
    for fewer in ({"restarts": 2}, {"permutations": 4}, {"repeats": 2}):
        assert seconds(64, 768, draws=default._replace(**fewer)) < 0.95 * seconds(64, 768)
    # Half as many tokens as dimensions have a thin SVD; one token more has eigenvectors of 1024 x 1024.
    assert seconds(513, 1024) > 1.3 * seconds(512, 1024)
