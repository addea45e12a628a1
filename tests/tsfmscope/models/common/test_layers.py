"""Thin factors in the place of a Linear, and Linears in bfloat16 against products of rounded numbers in float64."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.tsfmscope.models.test_t5_decoding import SAMPLES, STEPS, drawn, factored, inputs, narrow
from tsfmscope.errors import ModelError
from tsfmscope.models.chronos import PAD, ChronosT5
from tsfmscope.models.common.layers import (
    LowRank,
    RoundedLinear,
    apply_factors,
    compression_entries,
    factors,
    put_product,
    run_in,
)
from tsfmscope.models.registry import family_class
from tsfmscope.models.t5_decoding import StepDecoder, walk
from tsfmscope.series.types import Windows

CONFIG: dict[str, Any] = {"d_model": 8, "d_ff": 16, "d_kv": 4, "num_heads": 2, "num_layers": 1, "num_decoder_layers": 1}
CONFIG |= {"context_length": 16, "prediction_length": 4, "dropout_rate": 0.0, "n_tokens": 32}


@pytest.fixture(scope="module")
def base() -> Any:
    return family_class("chronos-t5").new(CONFIG, seed=0)


@pytest.fixture
def model(base: Any) -> Any:
    return copy.deepcopy(base)


@pytest.mark.parametrize("bias", [True, False])
def test_it_is_a_linear_of_the_product(bias: bool) -> None:
    torch.manual_seed(0)
    one = LowRank(5, 7, 2, bias=bias)
    same = torch.nn.Linear(5, 7, bias=bias)
    same.load_state_dict({"weight": one.weight.detach(), **({"bias": one.bias.detach()} if bias else {})})
    states = torch.randn(3, 4, 5)
    assert torch.allclose(one(states), same(states), atol=1e-6)
    assert (one.in_features, one.out_features, tuple(one.weight.shape)) == (5, 7, (7, 5))
    assert (one.bias is None) is not bias


def test_factors_where_they_are_thinner_and_a_dense_matrix_where_they_are_not(model: Any) -> None:
    layer = next(iter(model.attentions()))
    rng = np.random.default_rng(0)
    for what, rank in (("q", 3), ("k", 4)):  # 4 (8 + 8) = 8 * 8
        left, right = rng.normal(size=(8, rank)), rng.normal(size=(rank, 8))
        put_product(layer, what, left, right)
        assert isinstance(layer.linear(what), LowRank) is (what == "q")
        assert np.allclose(getattr(layer.read(), what).reshape(8, 8), left @ right, atol=1e-5)
    assert factors(model.attentions()) == {layer.name: {"q": 3}}
    matrices = {(w.stack, w.layer, w.attention, w.name): w.matrix for w in model.weights()}
    assert np.array_equal(matrices["encoder", 1, "self", "q"].reshape(2, 4, 8).astype(float), layer.read().q)


def test_a_folder_holds_the_factors_and_loads_them(model: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for layer in model.attentions():
        put_product(layer, "v", rng.normal(size=(8, 2)), rng.normal(size=(2, 8)))
    model.compression = compression_entries(model.attentions())
    model.save(tmp_path)
    again = type(model).load(tmp_path)
    assert again.compression == model.compression and again.compression["factors"]["decoder.1.cross"] == {"v": 2}
    ours, theirs = model.network.state_dict(), again.network.state_dict()
    assert list(ours) == list(theirs) and all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert [name for name in ours if name.endswith("v.narrow.weight")]


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ({"encoder.7.self": {"q": 1}}, r"encoder\.7\.self"),
        ({"encoder.1.self": {"mlp": 1}}, "mlp"),
        ({"encoder.1.self": {"q": 9}}, "rank 9 of encoder.1.self.q, expected 1 to 8"),
        ({"encoder.1.self": {"q": 0}}, "rank 0"),
        ({"encoder.1.self": {"q": True}}, "rank True"),
        ({"encoder.1.self": 3}, "expected ranks by layer and matrix"),
        ([1], "expected ranks by layer and matrix"),
    ],
)
def test_a_block_that_does_not_fit_is_named(model: Any, said: Any, wrong: str) -> None:
    with pytest.raises(ModelError, match=wrong):
        apply_factors(model.attentions(), said, "config.json")


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
