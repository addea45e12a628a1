"""Attention layers of the networks without a transformers config: read, written, run, saved and loaded at any width."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from uni2ts.module.attention import GroupedQueryAttention

from tests.tasks.models.families import COMPRESSED
from tsfmscope.tasks.compression.calibration import gather
from tsfmscope.tasks.errors import ModelError
from tsfmscope.tasks.models.base import Family, Forecaster
from tsfmscope.tasks.models.common.attention import AttentionLayer, Projections, Widths, any_width, shapes
from tsfmscope.tasks.models.lag_llama.family import LagLlama
from tsfmscope.tasks.models.lag_llama.network import features
from tsfmscope.tasks.models.lag_llama.sampling import sample_paths
from tsfmscope.tasks.models.registry import family_class
from tsfmscope.tasks.models.types import TokenKind
from tsfmscope.tasks.series.types import Windows

Make = Callable[..., Windows]
LAG_LLAMA = {"context_length": 16, "n_layer": 2, "n_head": 2, "n_embd_per_head": 8, "lags": (0, 1, 2, 7)}
TIME_MOE = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
TIME_MOE |= {"num_experts": 4, "horizon_lengths": [1, 8], "max_position_embeddings": 48, "initializer_range": 0.2}
CONFIGS: dict[str, dict[str, Any]] = {
    "moirai": {"d_model": 128, "num_layers": 2, "patch_sizes": [8], "patch_size": 8},
    "lag-llama": LAG_LLAMA,
    "time-moe": TIME_MOE,
    "tabular": {"dim": 16, "n_layers": 1, "n_heads": 2},
}
FORECASTERS = sorted(set(CONFIGS) - {"tabular"})


def made(name: str, seed: int = 1) -> Any:
    """A random model, its biases no zeros."""
    model = family_class(name).new(CONFIGS[name], seed=seed)
    for layer in model.attentions():
        biases = [layer.linear(what).bias for what in "qkvo"]
        with torch.no_grad():
            for bias in biases:
                if bias is not None:
                    bias.copy_(torch.linspace(-0.5, 0.5, len(bias)))
    return model


@pytest.fixture(params=sorted(CONFIGS))
def model(request: pytest.FixtureRequest) -> Any:
    return made(request.param)


def narrow(model: Family) -> None:
    """Heads of several widths, the keys too where nothing turns them; the block says so."""
    for index, layer in enumerate(model.attentions()):
        layer.write(layer.read().slice_heads(Widths(3 + index if layer.plain else layer.widths.key, 1 + 2 * index)))
    model.compression = {"widths": shapes(model.attentions()), "rank": 0.25}


def states(model: Family, windows: Windows) -> np.ndarray:
    """Of every layer, one above another."""
    return np.stack([layer.states for layer in model.hidden_states(model.tokenize(windows))])


def forecast(model: Forecaster, windows: Windows) -> np.ndarray:
    return model.forecast(windows, seeds=list(range(len(windows))), samples=4).values


def test_writing_what_was_read_changes_nothing(model: Any, items: Make) -> None:
    before = states(model, items(model))
    for layer in model.attentions():
        layer.write(layer.read())
    assert np.array_equal(states(model, items(model)), before)


@pytest.mark.parametrize("full", [True, False])
def test_every_attention_matrix_of_weights_is_a_part_of_a_layer(model: Any, full: bool) -> None:
    if not full:
        narrow(model)
    matrices = {(w.stack, w.layer, w.attention, w.name): w.matrix for w in model.weights() if w.attention}
    read = {(a.stack, a.layer, a.kind): a.read() for a in model.attentions()}
    assert {key[:3] for key in matrices} == set(read)
    assert len(matrices) == 4 * len(read)
    for (stack, layer, kind, what), matrix in matrices.items():
        whole = np.concatenate(list(getattr(read[stack, layer, kind], what)), axis=1 if what == "o" else 0)
        assert np.array_equal(whole.astype(np.float32), matrix)


def test_zero_padded_heads_make_the_same_states(model: Any, items: Make) -> None:
    """Zeros up to the old width are the same function, scale included."""
    widths = [layer.widths for layer in model.attentions()]
    full = states(model, items(model))
    narrow(model)
    narrowed = states(model, items(model))
    for layer, old in zip(model.attentions(), widths, strict=True):
        layer.write(padded(layer.read(), old))
        assert layer.widths == old
    np.testing.assert_allclose(states(model, items(model)), narrowed, rtol=1e-4, atol=1e-5)
    assert not np.allclose(full, narrowed, rtol=1e-2)


def padded(one: Projections, widths: Widths) -> Projections:
    key, value = widths.key - one.widths.key, widths.value - one.widths.value
    room = {"q": ((0, 0), (0, key), (0, 0)), "k": ((0, 0), (0, key), (0, 0)), "v": ((0, 0), (0, value), (0, 0))}
    room |= {"o": ((0, 0), (0, 0), (0, value)), "q_bias": room["q"][:2], "k_bias": room["k"][:2]}
    room |= {"v_bias": room["v"][:2]}
    parts = {name: getattr(one, name) for name in room}
    return one._replace(**{name: np.pad(part, room[name]) for name, part in parts.items() if part is not None})


def absorbed(one: Projections) -> Projections:
    """The heads' products W_O W_V by their SVD, of all heads that share values at once, the values' bias in o's."""
    shared = len(one.o) // len(one.v)
    v, o = [], []
    for group, value in enumerate(one.v):
        tall = np.concatenate(list(one.o[group * shared : (group + 1) * shared]))
        left, sizes, right = np.linalg.svd(tall @ value, full_matrices=False)
        rank = len(value)
        v.append(right[:rank])
        o += np.split(left[:, :rank] * sizes[:rank], shared)
    added = 0.0 if one.v_bias is None else sum(one.o[i] @ one.v_bias[i // shared] for i in range(len(one.o)))
    bias = None if one.v_bias is None and one.o_bias is None else added + (0.0 if one.o_bias is None else one.o_bias)
    return one._replace(v=np.stack(v), o=np.stack(o), v_bias=None, o_bias=bias)


def test_absorbed_products_of_full_rank_make_the_same_states(model: Any, items: Make) -> None:
    before = states(model, items(model))
    for layer in model.attentions():
        layer.write(absorbed(layer.read()))
    np.testing.assert_allclose(states(model, items(model)), before, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", FORECASTERS)
def test_absorbed_products_of_full_rank_make_the_same_forecasts_of_the_same_seeds(name: str, windows: Make) -> None:
    model = made(name)
    before = forecast(model, windows())
    for layer in model.attentions():
        layer.write(absorbed(layer.read()))
    np.testing.assert_allclose(forecast(model, windows()), before, rtol=1e-3, atol=1e-3)


def test_saves_and_loads_at_its_widths(model: Any, items: Make, tmp_path: Path) -> None:
    for layer in model.attentions():
        layer.write(absorbed(layer.read()))  # other biases than a new network's
    narrow(model)
    model.save(tmp_path)
    again = type(model).load(tmp_path)
    assert again.compression == model.compression == json.loads((tmp_path / "config.json").read_text())["compression"]
    assert shapes(again.attentions()) == shapes(model.attentions())
    assert np.array_equal(states(again, items(model)), states(model, items(model)))
    if isinstance(model, Forecaster):
        assert np.array_equal(forecast(again, items(model)), forecast(model, items(model)))


@pytest.mark.parametrize("biased", ["", "v", "kv", "qkvo"])
def test_keys_and_values_of_lag_llama_are_one_matrix_in_a_file_where_they_are_alike(
    biased: str, windows: Make, tmp_path: Path
) -> None:
    model = made("lag-llama")
    for layer in model.attentions():
        full = layer.read().slice_heads(Widths(8, 3))
        biases = {"q": (2, 8), "k": (2, 8), "v": (2, 3), "o": (16,)}
        layer.write(full._replace(**{f"{what}_bias": np.ones(biases[what]) for what in biased}))
    model.compression = {"widths": shapes(model.attentions())}
    names = {name.split("attn.")[1] for name in model.network.state_dict() if "attn." in name}
    apart = biased == "v"
    assert ("kv_proj.weight" in names, "k_proj.weight" in names, "v_proj.bias" in names) == (not apart, apart, apart)
    model.save(tmp_path)
    assert np.array_equal(states(LagLlama.load(tmp_path), windows()), states(model, windows()))
    copied = copy.deepcopy(model.network)
    copied.load_state_dict(model.network.state_dict())


@pytest.mark.parametrize("any_family", COMPRESSED, indirect=True)
def test_the_stacks_of_every_family_are_as_deep_as_their_attention(any_family: Family) -> None:
    """Rank schedules count a stack's layers off its attention, since VisionTS' decoder is none of `layers`."""
    depths: dict[str, int] = {}
    for layer in any_family.attentions():
        depths[layer.stack] = max(depths.get(layer.stack, 0), layer.layer)
    assert depths.items() >= dict(any_family.layers).items()
    assert set(depths) - set(any_family.layers) == ({"decoder"} if any_family.name == "visionts" else set())
    assert next(iter(depths)) == next(iter(any_family.layers)), "cross-attention asks the first"


@pytest.mark.parametrize("any_family", COMPRESSED, indirect=True)
def test_every_family_keeps_and_saves_a_block_and_forgets_it(any_family: Family, tmp_path: Path) -> None:
    block = {"widths": shapes(any_family.attentions()), "method": "svd"}
    assert any_family.compression is None
    try:
        any_family.compression = block
        assert any_family.compression == block
        any_family.save(tmp_path)
        assert json.loads((tmp_path / "config.json").read_text())["compression"] == block
        assert type(any_family).load(tmp_path).compression == block
    finally:
        any_family.compression = None
    any_family.compression = None
    assert any_family.compression is None
    any_family.save(tmp_path)
    assert "compression" not in json.loads((tmp_path / "config.json").read_text())


FIRST = {"key": 8, "value": 3}
MISFITS = [
    ([], "expected an object with `widths`"),
    ({"rank": 3}, "expected an object with `widths`"),
    ({"widths": {"decoder.9.self": FIRST}}, r"decoder\.9\.self"),
    ({"widths": {"decoder.1.self": FIRST | {"value": 9}}}, r"9.*decoder\.1\.self, expected widths of \(8, 1\)"),
    ({"widths": {"decoder.1.self": FIRST | {"value": 0}}}, r"decoder\.1\.self, expected"),
    ({"widths": {"decoder.1.self": FIRST | {"value": True}}}, r"decoder\.1\.self, expected"),
    ({"widths": {"decoder.1.self": FIRST | {"key": 4}}}, r"decoder\.1\.self, expected"),
    ({"widths": {"decoder.1.self": {"key": 8}}}, r"decoder\.1\.self, expected"),
    ({"widths": {"decoder.1.self": 3}}, r"decoder\.1\.self, expected"),
    ({"widths": {"decoder.1.self": FIRST | {"biases": 3}}}, r"biases among"),
    ({"widths": {"decoder.1.self": FIRST | {"biases": ["w"]}}}, r"biases among"),
    ({"widths": {"decoder.1.self": FIRST}}, "weights do not fit"),
]


@pytest.mark.parametrize("name", ["lag-llama", "time-moe"])
@pytest.mark.parametrize(("block", "text"), MISFITS)
def test_a_block_that_does_not_fit_is_named(name: str, block: Any, text: str, tmp_path: Path) -> None:
    made(name).save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"compression": block}))
    with pytest.raises(ModelError, match=text):
        family_class(name).load(tmp_path)


@pytest.mark.parametrize("name", ["moirai", "tabular"])
def test_a_block_of_another_network_is_named(name: str, tmp_path: Path) -> None:
    made(name).save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    wrong = {"widths": {"encoder.1.self": {"key": 999, "value": 1}}}
    (tmp_path / "config.json").write_text(json.dumps(config | {"compression": wrong}))
    with pytest.raises(ModelError, match=r"999.*encoder\.1\.self"):
        family_class(name).load(tmp_path)


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_narrow_weights_without_their_block_are_refused(name: str, tmp_path: Path) -> None:
    model = made(name)
    narrow(model)
    model.compression = None
    model.save(tmp_path)
    with pytest.raises(ModelError, match="of another shape"):
        type(model).load(tmp_path)


@pytest.mark.parametrize("name", FORECASTERS)
def test_keys_that_are_turned_keep_their_width(name: str) -> None:
    layer = next(iter(made(name).attentions()))
    assert not layer.plain
    with pytest.raises(ValueError, match=r"got keys of width 2, expected \d+"):
        layer.write(layer.read().slice_heads(Widths(2, 4)))


def test_a_narrow_model_learns(model: Any, items: Make) -> None:
    narrow(model)
    windows = items(model)
    model.network.train()
    model.loss(torch.from_numpy(windows.context), torch.from_numpy(windows.future)).backward()
    for layer in model.attentions():
        for what in ("v", "o"):
            gradient = getattr(layer.module, layer.parts[what]).weight.grad
            assert torch.isfinite(gradient).all()
            assert gradient.abs().max() > 0


def test_a_block_of_lag_llama_with_narrow_values_is_that_of_the_paper(windows: Make) -> None:
    """Queries and keys turned by their position, eight wide; values three wide, with biases."""
    model = made("lag-llama")
    layer = next(iter(model.attentions()))
    wide, rng = layer.read(), np.random.default_rng(0)
    v_bias, o_bias = rng.normal(size=(2, 3)), rng.normal(size=16)
    layer.write(wide.slice_heads(Widths(8, 3))._replace(v_bias=v_bias, o_bias=o_bias))
    before, after = states(model, windows(count=2))[:2].astype(np.float64)
    block = model.network.blocks[0]
    norm_1, norm_2 = (norm.scale.detach().double().numpy() for norm in (block.rms_1, block.rms_2))
    fc1, fc2, back = (
        one.weight.detach().double().numpy() for one in (block.mlp.c_fc1, block.mlp.c_fc2, block.mlp.c_proj)
    )
    for window in range(2):
        x = rms(before[window]) * norm_1
        output = np.tile(o_bias, (len(x), 1))
        for head in range(2):
            q, k, v = x @ wide.q[head].T, x @ wide.k[head].T, x @ wide.v[head, :3].T + v_bias[head]
            for t in range(len(x)):
                scores = np.array([turned(q[t], t) @ turned(k[s], s) / np.sqrt(8) for s in range(t + 1)])
                shares = np.exp(scores - scores.max())
                output[t] += wide.o[head, :, :3] @ (shares @ v[: t + 1] / shares.sum())
        grown = before[window] + output
        y = rms(grown) * norm_2
        gate = y @ fc1.T
        grown = grown + (gate / (1 + np.exp(-gate)) * (y @ fc2.T)) @ back.T
        np.testing.assert_allclose(after[window], grown, rtol=1e-4, atol=1e-4)


def rms(x: np.ndarray) -> np.ndarray:
    return np.asarray(x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-5))


def turned(head: np.ndarray, position: int) -> np.ndarray:
    """A head as complex numbers, coordinate i with i + d / 2, each turned by position / 10000^(2 i / d)."""
    half = len(head) // 2
    pairs = head[:half] + 1j * head[half:]
    pairs = pairs * np.exp(1j * position * 10_000.0 ** (-np.arange(half) / half))
    return np.concatenate((pairs.real, pairs.imag))


def test_paths_of_narrow_lag_llama_are_those_of_a_pass_without_caches(windows: Make) -> None:
    """The first drawn steps are what the median of a whole pass over the longer window says."""
    model: LagLlama = made("lag-llama")
    narrow(model)
    past = model._past(torch.from_numpy(windows(count=2).context))
    scaled = model._standardise(past, torch.ones(2, dtype=torch.float64))
    lags = torch.tensor(model.config.lags)
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
    model = made("tabular")
    windows = items(model, count=3)
    windows.context[0, 5] = np.nan
    tokens = model.tokenize(windows)
    model.batch = 2
    found = gather(model, tokens)
    columns = int(windows.context[0, 0])
    shown = np.arange(tokens.kinds["encoder"].shape[1]) // columns < tokens.arrays["labels"].shape[1]
    valid = tokens.kinds["encoder"] != TokenKind.PADDING
    assert not valid.all()
    given = states(model, windows)
    for layer, (block, asked) in enumerate(
        zip(model.network.blocks, (shown, np.full_like(shown, True)), strict=True), start=1
    ):
        with torch.no_grad():
            x = block.norm(torch.from_numpy(given[layer - 1])).double().numpy()
        moments = found[f"encoder.{layer}.self"]
        for root, rows in ((moments.queries, valid), (moments.inputs, valid & asked)):
            one_and_x = np.pad(x[rows], ((0, 0), (1, 0)), constant_values=1.0)
            np.testing.assert_allclose(root.T @ root, one_and_x.T @ one_and_x, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("value", [1, 3, 8])
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
