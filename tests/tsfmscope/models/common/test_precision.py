"""Linears in bfloat16 against numpy's products of the rounded numbers in float64; what is left as it was."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.tsfmscope.models.t5.test_decoding import SAMPLES, STEPS, drawn, factored, inputs, narrow
from tsfmscope.models.chronos import PAD, ChronosT5
from tsfmscope.models.common.layers import LowRank, RoundedLinear, run_in
from tsfmscope.models.t5_decoding import StepDecoder, walk
from tsfmscope.series.types import Windows

EPS = 2.0**-8  # of bfloat16: the most that rounding to it changes a number, relative
SIZES = st.integers(1, 40)


def nearest(values: np.ndarray) -> np.ndarray:
    """Each float32 as the nearest number of seven mantissa bits, ties to even: its upper sixteen bits, rounded."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    kept = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16
    found: np.ndarray = kept.astype(np.uint32).view(np.float32)
    return found


def rounded(rows: int, columns: int, *, bias: bool = True) -> RoundedLinear:
    network = nn.Sequential(nn.Linear(columns, rows, bias=bias))
    assert run_in(network, "bfloat16") == 1
    (linear,) = network
    assert isinstance(linear, RoundedLinear)
    return linear


@given(SIZES, SIZES, SIZES, st.booleans(), st.floats(1e-30, 1e30), st.integers(0, 1000))
def test_it_is_the_product_of_rounded_numbers(
    n: int, rows: int, columns: int, bias: bool, size: float, seed: int
) -> None:
    rng, linear = np.random.default_rng(seed), nn.Linear(columns, rows, bias=bias)
    weight = linear.weight.detach().numpy().copy()
    given_bias = linear.bias.detach().numpy().astype(np.float64) if bias else np.zeros(rows)
    states = (size * rng.normal(size=(n, columns))).astype(np.float32)
    run_in(network := nn.Sequential(linear), "bfloat16")
    with torch.inference_mode():
        found = network(torch.from_numpy(states)).numpy()
    left, right = nearest(states).astype(np.float64), nearest(weight).astype(np.float64)
    exact = left @ right.T
    summed = (columns + 1) * np.finfo(np.float32).eps * (np.abs(left) @ np.abs(right).T)  # in any order
    bound = EPS * (np.abs(exact) + summed) + summed + 1e-6 * np.abs(given_bias) + 1e-37
    assert found.dtype == np.float32
    assert (np.abs(found - (exact + given_bias)) <= bound).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_it_answers_in_the_dtype_that_it_is_given(dtype: torch.dtype) -> None:
    linear = rounded(3, 5, bias=False)
    states = torch.randn(2, 4, 5).to(dtype)
    assert linear(states).dtype == dtype and linear(states).shape == (2, 4, 3)


def test_zero_nan_and_infinity_are_what_they_were() -> None:
    linear = rounded(3, 2)
    assert torch.equal(linear(torch.zeros(1, 2))[0], linear.bias)
    assert linear(torch.tensor([[float("nan"), 0.0]])).isnan().all()
    assert not linear(torch.tensor([[float("inf"), 0.0]])).isfinite().any()
    assert linear(torch.zeros(0, 2)).shape == (0, 3)


def test_what_is_no_plain_linear_stays() -> None:
    """A matrix that an embedding shares would be held twice; torch's own layers read their weights themselves."""

    class Own(nn.Linear):
        pass

    embedding, head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
    head.weight = embedding.weight
    theirs = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()
    network = nn.ModuleList([embedding, head, Own(4, 4), nn.LayerNorm(4), LowRank(4, 6, 2, bias=True), theirs])
    before = embedding.weight.detach().clone()
    assert run_in(network, "bfloat16") == 2  # two thin factors
    dtypes = {name: one.dtype for name, one in network.named_parameters()}
    assert {name for name, dtype in dtypes.items() if dtype == torch.bfloat16} == {"4.narrow.weight", "4.wide.weight"}
    assert torch.equal(embedding.weight, before) and head.weight is embedding.weight
    with torch.inference_mode():
        assert theirs(torch.randn(2, 3, 4)).isfinite().all()


def test_two_rounded_factors_have_no_more_ranks_than_before() -> None:
    """Their product, which no forward pass makes, is not rounded again."""
    factored = LowRank(64, 48, 3, bias=False)
    run_in(nn.Sequential(factored), "bfloat16")
    wide, narrow = (part.weight.detach().double().numpy() for part in (factored.wide, factored.narrow))
    np.testing.assert_allclose(factored.weight.detach().numpy(), wide @ narrow, rtol=0, atol=1e-6)
    values = np.linalg.svd(factored.weight.detach().numpy(), compute_uv=False)
    assert (values > 1e-4 * values[0]).sum() == 3


def test_float32_changes_nothing_and_others_are_refused() -> None:
    network = nn.Sequential(nn.Linear(3, 3))
    assert run_in(network, "float32") == 0 and type(network[0]) is nn.Linear
    with pytest.raises(ValueError, match="precision: got 'float16', expected one of float32, bfloat16"):
        run_in(network, "float16")
    assert (run_in(network, "bfloat16"), run_in(network, "bfloat16")) == (1, 0), "once is enough"


@pytest.mark.parametrize("make", [lambda: narrow(3, 4, bias=True), lambda: factored(bias=True)])
def test_the_sampler_multiplies_as_the_network_does(
    make: Callable[[], ChronosT5], windows: Callable[..., Windows]
) -> None:
    """Logits at every step, ours against transformers' with the same rounded Linears, and against float32's."""
    model = make()
    ids, mask = inputs(model, windows(count=3), gaps=True)
    forced, whole = drawn(3), copy.deepcopy(model)
    run_in(model.network, "bfloat16")
    seen = []

    def choose(logits: torch.Tensor, step: int) -> torch.Tensor:
        seen.append(logits.clone())
        return forced[:, :, step]

    with torch.inference_mode():
        walk(StepDecoder(model.network, ids, mask, SAMPLES, STEPS), choose)
    ours = torch.stack(seen, dim=2)
    for sample in range(SAMPLES):
        read = torch.cat((torch.full((3, 1), PAD), forced[:, sample, :-1]), dim=1)
        with torch.inference_mode():
            theirs, exact = (
                one.network(input_ids=ids, attention_mask=mask, decoder_input_ids=read).logits for one in (model, whole)
            )
        size = exact.abs().max().item()
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours[:, sample], theirs, rtol=0, atol=4 * EPS * size)
        assert 0 < (ours[:, sample] - exact).abs().max().item() < 8 * EPS * size
