"""Narrow heads of Lag-Llama, tabular and Moirai, whose networks are not those of transformers, against loops."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from uni2ts.module.attention import GroupedQueryAttention

from tests.tsfmscope.models.families import example_model
from tests.tsfmscope.models.test_lag_llama_network import block_twin, numbers
from tsfmscope.compression.calibration import gather
from tsfmscope.models.base import Family
from tsfmscope.models.common.attention import AttentionLayer, Widths, any_width, shapes
from tsfmscope.models.lag_llama import LagLlama
from tsfmscope.models.lag_llama_network import features, sample_paths
from tsfmscope.models.types import TokenKind
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]


@pytest.fixture
def lag_llama() -> LagLlama:
    config = {"context_length": 16, "n_layer": 2, "n_head": 2, "n_embd_per_head": 8, "lags": (0, 1, 2, 7)}
    return LagLlama.new(config, seed=1)


def states(model: Family, windows: Windows) -> np.ndarray:
    """Return the states of every layer, one above another."""
    return np.stack([layer.states for layer in model.hidden_states(model.tokenize(windows))])


@pytest.mark.parametrize("biased", ["", "v", "kv", "qkvo"])
def test_keys_and_values_of_lag_llama_are_one_matrix_in_a_file_where_they_are_alike(
    lag_llama: LagLlama, biased: str, windows: Make, tmp_path: Path
) -> None:
    for layer in lag_llama.attentions():
        full = layer.read().slice_heads(Widths(8, 3))
        biases = {"q": (2, 8), "k": (2, 8), "v": (2, 3), "o": (16,)}
        layer.write(full._replace(**{f"{what}_bias": np.ones(biases[what]) for what in biased}))
    lag_llama.compression = {"widths": shapes(lag_llama.attentions())}
    names = {name.split("attn.")[1] for name in lag_llama.network.state_dict() if "attn." in name}
    apart = biased == "v"
    assert ("kv_proj.weight" in names, "k_proj.weight" in names, "v_proj.bias" in names) == (not apart, apart, apart)
    lag_llama.save(tmp_path)
    assert np.array_equal(states(LagLlama.load(tmp_path), windows()), states(lag_llama, windows()))
    copied = copy.deepcopy(lag_llama.network)
    copied.load_state_dict(lag_llama.network.state_dict())


def test_a_block_of_lag_llama_with_narrow_values_is_that_of_the_paper(lag_llama: LagLlama, windows: Make) -> None:
    """Queries and keys turned by their position, eight wide; values three wide, with biases."""
    layer, rng = next(lag_llama.attentions()), np.random.default_rng(0)
    heads = layer.read().slice_heads(Widths(8, 3))
    heads = heads._replace(v_bias=rng.normal(size=(2, 3)), o_bias=rng.normal(size=16))
    layer.write(heads)
    before, after = states(lag_llama, windows(count=2))[:2].astype(np.float64)
    weights = numbers(lag_llama.network.blocks[0])
    for window in range(2):
        np.testing.assert_allclose(after[window], block_twin(before[window], weights, heads), rtol=1e-4, atol=1e-4)


def test_paths_of_narrow_lag_llama_are_those_of_a_pass_without_caches(lag_llama: LagLlama, windows: Make) -> None:
    """The first drawn steps are the medians of a whole pass over the longer window."""
    model = lag_llama
    for layer in model.attentions():
        layer.write(layer.read().slice_heads(Widths(8, 2 * layer.layer - 1)))
    past = model._past(torch.from_numpy(windows(count=2).context))
    scaled = model._standardise(past, torch.ones(2, dtype=torch.float64))
    lags = torch.tensor(model.config["lags"])
    calendar = torch.rand(2, model.tokens + 4, 6, generator=torch.Generator().manual_seed(0)) - 0.5
    got = sample_paths(model.network, scaled, lags, model.tokens, calendar, np.full((2, 3, 4), 0.5), 1.0)
    steps = scaled.steps
    for drawn in range(4):
        positions = torch.arange(past.shape[1] - model.tokens, steps.shape[1])
        inputs = features(steps, scaled.static, lags, positions, calendar[:, : model.tokens + drawn])
        with torch.no_grad():
            median = model.network(inputs).loc[:, -1:]
        steps = torch.cat((steps, median), dim=1)
    for path in range(3):
        np.testing.assert_allclose(got[:, path], steps[:, -4:], rtol=1e-4, atol=1e-5)


def test_moments_of_a_table_are_of_what_each_block_s_projections_are_given(items: Make) -> None:
    """Down a column all cells ask and those of rows with labels are asked; along a row all ask all. No missing cell."""
    model = copy.deepcopy(example_model("tabular"))
    windows = items(model, count=3)
    windows.context[0, 5] = np.nan
    tokens = model.tokenize(windows)
    model.batch = 2
    moments_by_layer = gather(model, tokens)
    columns = int(windows.context[0, 0])
    shown = np.arange(tokens.kinds["encoder"].shape[1]) // columns < tokens.arrays["labels"].shape[1]
    valid = tokens.kinds["encoder"] != TokenKind.PADDING
    assert not valid.all()
    given = states(model, windows)
    for layer, block in enumerate(model.network.blocks, start=1):
        asked = shown if layer % 2 else np.full_like(shown, True)
        with torch.no_grad():
            x = block.norm(torch.from_numpy(given[layer - 1])).double().numpy()
        moments = moments_by_layer[f"encoder.{layer}.self"]
        for root, rows in ((moments.queries, valid), (moments.inputs, valid & asked)):
            one_and_x = np.pad(x[rows], ((0, 0), (1, 0)), constant_values=1.0)
            np.testing.assert_allclose(root.T @ root, one_and_x.T @ one_and_x, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("value", [3, 8])
@pytest.mark.parametrize("biased", [True, False])
def test_heads_that_share_keys_and_values_are_read_and_written_by_group(value: int, biased: bool) -> None:
    """uni2ts' attention, four heads over two groups, against a loop over heads."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = GroupedQueryAttention(32, 4, 2, bias=biased, norm_layer=None)
    parts = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}
    layer = AttentionLayer("encoder", 1, "self", module, 4, 2, module.softmax_scale, True, any_width, parts)
    new = layer.read().slice_heads(Widths(8, value))
    assert (new.q.shape, new.v.shape, new.o.shape) == ((4, 8, 32), (2, value, 32), (4, 32, value))
    layer.write(new)
    x = np.random.default_rng(0).normal(size=(5, 32))
    want = np.zeros((5, 32)) if new.o_bias is None else np.tile(new.o_bias, (5, 1))
    q_bias, k_bias, v_bias = (np.zeros((4, 1)) if b is None else b for b in (new.q_bias, new.k_bias, new.v_bias))
    for head in range(4):
        group = head // 2
        q, k = x @ new.q[head].T + q_bias[head], x @ new.k[group].T + k_bias[group]
        shares = np.exp(q @ k.T / np.sqrt(8))
        want += shares / shares.sum(axis=1, keepdims=True) @ (x @ new.v[group].T + v_bias[group]) @ new.o[head].T
    given = torch.from_numpy(x).float()[None]
    np.testing.assert_allclose(module(given, given, given)[0].detach(), want, rtol=1e-4, atol=1e-5)
