"""Two thin factors in the place of a Linear: what reads a Linear reads them, and a checkpoint holds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tsfmscope.errors import ModelError
from tsfmscope.models.common.layers import LowRank, apply_factors, compression_entries, factors, put_product
from tsfmscope.models.registry import family_class

CONFIG: dict[str, Any] = {"d_model": 8, "d_ff": 16, "d_kv": 4, "num_heads": 2, "num_layers": 1, "num_decoder_layers": 1}
CONFIG |= {"context_length": 16, "prediction_length": 4, "dropout_rate": 0.0, "n_tokens": 32}


@pytest.fixture(scope="module")
def base() -> Any:
    return family_class("chronos-t5").new(CONFIG, seed=0)


@pytest.fixture
def model(base: Any) -> Any:
    import copy

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
