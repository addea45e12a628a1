"""Compression's access to attention: any width runs, saves and loads, in every family that can be compressed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.tsfmscope.models.families import COMPRESSED, change_config, example_model
from tsfmscope.errors import ModelError
from tsfmscope.models.base import Forecaster
from tsfmscope.models.common.attention import BLOCK, Projections, Widths, apply_shapes, shapes
from tsfmscope.models.registry import family_class
from tsfmscope.models.timesfm import TimesFM25
from tsfmscope.models.vit import ViT
from tsfmscope.series.types import Windows

# Kind of the attention whose queries and keys are rotated or normed, and so keep their width.
ROTARY = {"timesfm-2.5": "self", "timesfm-2.5, grouped": "self", "chronos-2": "time", "lag-llama": "self"}
ROTARY |= {"moirai": "self", "moirai-2": "self", "time-moe": "self", "toto-2": "time"}
SHARES = [(0.4, 0.7), (1.0, 0.5)]  # of the keys' and of the values' width
Answers = Callable[[Any], list[np.ndarray]]


def grouped() -> TimesFM25:
    """Return a model whose four heads of queries share two of keys and values."""
    config = {"hidden_size": 16, "intermediate_size": 24, "head_dim": 6, "num_hidden_layers": 2, "patch_length": 8}
    config |= {"num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.2}
    config |= {"context_length": 48, "horizon_length": 12, "output_quantile_len": 12}
    return TimesFM25.new(config, seed=1)


# Models of further shapes. A ViT without the head for masked images is what a ViT of another head is read as.
SHAPES = {"timesfm-2.5, grouped": grouped, "vit, bare": lambda: ViT(example_model("vit").network.vit)}


@pytest.fixture(params=[*COMPRESSED, *SHAPES])
def model(request: pytest.FixtureRequest) -> Any:
    """A small model of each family that can be compressed, with noise on biases and scales."""
    name = request.param
    return with_biases(copy.deepcopy(SHAPES[name]() if name in SHAPES else example_model(name)))


def with_biases(model: Any) -> Any:
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for layer in model.attentions():
            for name, value in layer.module.named_parameters():
                if name.endswith(("bias", "per_dim_scale")) or name == "scaling":
                    value.add_(torch.randn(value.shape, generator=generator) * 0.5)
    return model


@pytest.fixture
def answers(items: Callable[..., Windows]) -> Answers:
    """Hidden states of every layer, inputs of attention, and the forecast where rounding flips no sampled id."""

    def answer(model: Any) -> list[np.ndarray]:
        windows = items(model)
        tokens = model.tokenize(windows)
        arrays = [layer.states for layer in (*model.hidden_states(tokens), *model.attention_inputs(tokens))]
        if isinstance(model, Forecaster) and not model.softmax_head:
            arrays.append(model.forecast(windows, seeds=list(range(len(windows))), samples=4).values)
        return arrays

    return answer


def assert_same(actual: list[np.ndarray], expected: list[np.ndarray]) -> None:
    """Compare up to 1e-5 of the largest number."""
    for mine, other in zip(actual, expected, strict=True):
        assert np.allclose(mine, other, rtol=0, atol=1e-5 * np.abs(other).max())


def test_the_kinds_of_attention_that_are_rotary_are_not_plain(model: Any, request: pytest.FixtureRequest) -> None:
    rotary = ROTARY.get(request.node.callspec.params["model"])
    assert {layer.kind for layer in model.attentions() if not layer.plain} == ({rotary} if rotary else set())


@pytest.mark.parametrize(("key", "value"), SHARES)
def test_reads_what_was_written(model: Any, key: float, value: float) -> None:
    wanted = {layer.name: layer.read() for layer in model.attentions()}
    full = narrow(model, key, value)
    for layer in model.attentions():
        read = layer.read()
        assert read.widths.value < full[layer.name].value
        for got, expected in zip(read, wanted[layer.name].slice_heads(read.widths), strict=True):
            assert (got is None) == (expected is None)
            assert got is None or np.allclose(got, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_every_attention_matrix_of_weights_is_a_part_of_a_layer(model: Any, share: float) -> None:
    narrow(model, share, 0.7 * share)
    matrices = {(w.stack, w.layer, w.attention, w.name): w for w in model.weights() if w.attention}
    layers = {(a.stack, a.layer, a.kind): a for a in model.attentions()}
    assert {key[:3] for key in matrices} == set(layers)
    assert len(matrices) == 4 * len(layers)
    for (stack, layer, kind, what), weight in matrices.items():
        part = getattr(layers[stack, layer, kind].read(), what)
        whole = np.concatenate(list(part), axis=1 if what == "o" else 0)
        assert np.array_equal(whole.astype(np.float32), weight.matrix)
        assert len(part) == weight.heads


def test_products_of_full_rank_make_the_same_model(model: Any, answers: Answers) -> None:
    before = answers(model)
    for layer in model.attentions():
        layer.write(factorize(layer.read(), layer.plain))
    assert_same(answers(model), before)


@pytest.mark.parametrize(("key", "value"), SHARES)
def test_zero_padded_heads_make_the_same_output(model: Any, answers: Answers, key: float, value: float) -> None:
    """Zeros up to the old width are the same function, and run through the original forward."""
    full = narrow(model, key, value)
    narrower, deep = answers(model), copy.deepcopy(model)
    for layer in deep.attentions():
        layer.write(pad(layer.read(), full[layer.name]))
        assert layer.widths == full[layer.name]
    assert_same(answers(deep), narrower)
    assert_same(answers(model), narrower)  # the copy's were taken from it alone


@pytest.mark.parametrize(("key", "value"), SHARES[:1])
def test_saves_and_loads_at_its_widths(model: Any, answers: Answers, tmp_path: Path, key: float, value: float) -> None:
    for layer in model.attentions():
        layer.write(factorize(layer.read(), layer.plain))  # other biases than a new network's
    before = narrow(model, key, value)
    model.compression = {"widths": shapes(model.attentions())}
    model.save(tmp_path)
    again = type(model).load(tmp_path)
    assert again.compression == model.compression == json.loads((tmp_path / "config.json").read_text())[BLOCK]
    assert shapes(again.attentions()) == shapes(model.attentions())
    assert {layer.name: layer.widths for layer in again.attentions()} != before
    for mine, other in zip(answers(again), answers(model), strict=True):
        assert np.array_equal(mine, other)


def test_narrow_weights_without_their_block_are_refused(model: Any, tmp_path: Path) -> None:
    narrow(model, 0.5, 0.7)
    model.save(tmp_path)
    with pytest.raises(ModelError, match=r"of another shape|do not fit|cannot be read"):
        type(model).load(tmp_path)


def test_every_head_may_lose_its_biases_and_gain_them(model: Any, answers: Answers, tmp_path: Path) -> None:
    """A block names the projections with a bias; a bias of zero is the same function as none."""
    for layer in model.attentions():
        layer.write(layer.read()._replace(q_bias=None, k_bias=None, v_bias=None, o_bias=None))
    before = answers(model)
    model.compression = {"widths": shapes(model.attentions())}
    model.save(tmp_path)
    again = type(model).load(tmp_path)
    assert all(shape["biases"] == [] for shape in shapes(again.attentions()).values())
    for layer in again.attentions():
        read = layer.read()
        zeros = [np.zeros(part.shape[:2]) for part in (read.q, read.k, read.v)]
        layer.write(Projections(*read[:4], *zeros, np.zeros(read.o.shape[1])))
    assert_same(answers(again), before)


def test_a_projection_may_be_any_module(model: Any, answers: Answers) -> None:
    """Such as two factors, once `resize` was called with the widths."""
    narrow(model, 0.4, 0.7)
    before = answers(model)
    for layer in model.attentions():
        widths = layer.widths
        for part in layer.parts.values():
            last = getattr(layer.module, part)
            first = torch.nn.Linear(last.in_features, last.in_features, bias=False)
            torch.nn.init.eye_(first.weight)
            setattr(layer.module, part, torch.nn.Sequential(first, last))
        layer.resize(layer.module, widths)
    assert_same(answers(model), before)


@pytest.mark.parametrize("model", COMPRESSED, indirect=True)
def test_a_narrow_model_learns(model: Any, items: Callable[..., Windows]) -> None:
    """Gradients reach every weight of a narrow layer that has an effect."""
    narrow(model, 0.4, 0.7)
    windows = items(model)
    model.network.train()
    model.loss(torch.from_numpy(windows.context), torch.from_numpy(windows.future)).backward()
    for layer in model.attentions():
        for what in "qkvo":
            weight = layer.linear(what).weight
            assert torch.isfinite(weight.grad).all() and weight.grad.shape == weight.shape
            idle = (layer.stack, layer.kind, what) in model.inert_projections
            assert idle or weight.grad.abs().max() > 0, (layer.name, what)


@pytest.mark.parametrize("name", [name for name in ROTARY if name in COMPRESSED])
def test_rotary_keys_keep_their_width_in_writing_and_loading(name: str) -> None:
    layers = list(copy.deepcopy(example_model(name)).attentions())
    layer = next(layer for layer in layers if not layer.plain)
    key, value = layer.widths
    with pytest.raises(ValueError, match=rf"{layer.name}: got keys of width 2, expected {key}"):
        layer.write(layer.read().slice_heads(Widths(2, value)))
    with pytest.raises(ModelError, match=rf"expected widths of \({key}, 1\) to \({key}, {value}\)"):
        apply_shapes(layers, {layer.name: {"key": 2, "value": 1}}, "config.json")


@pytest.mark.parametrize("name", COMPRESSED)
def test_the_stacks_of_every_family_are_as_deep_as_their_attention(name: str) -> None:
    """Rank schedules count a stack's layers by its attention, since VisionTS' decoder is none of `layers`."""
    model, depths = example_model(name), dict[str, int]()
    for layer in model.attentions():
        depths[layer.stack] = max(depths.get(layer.stack, 0), layer.layer)
    assert depths.items() >= dict(model.layers).items()
    assert set(depths) - set(model.layers) == ({"decoder"} if name == "visionts" else set())
    assert next(iter(depths)) == next(iter(model.layers)), "cross-attention reads the first"


def test_a_family_saves_a_block_forgets_it_and_names_one_that_does_not_fit(model: Any, tmp_path: Path) -> None:
    block = {"widths": shapes(model.attentions()), "method": "svd"}
    assert model.compression is None
    model.compression = block
    model.save(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())[BLOCK] == block
    assert type(model).load(tmp_path).compression == model.compression == block
    name = next(model.attentions()).name
    for wrong, text in (
        ("narrow", "expected an object"),
        ({"widths": {name: {"key": 999, "value": 1}}}, f"999.*{name}"),
    ):
        change_config(tmp_path, compression=wrong)
        with pytest.raises(ModelError, match=text):
            type(model).load(tmp_path)
    model.compression = None
    model.save(tmp_path)
    assert model.compression is None and BLOCK not in json.loads((tmp_path / "config.json").read_text())


MISFITS = [
    ([], "expected an object with `widths`"),
    ({"rank": 3}, "expected an object with `widths`"),
    ({"widths": 3}, "expected an object with"),
    ({"widths": {"STACK.9.self": {"key": 1, "value": 1}}}, r"\.9\.self"),
    ({"widths": {"NAME": {"key": 8, "value": 99}}}, r"99.*NAME, expected widths of \("),
    ({"widths": {"NAME": {"key": 8, "value": 0}}}, r"NAME, expected widths"),
    ({"widths": {"NAME": {"key": 8, "value": True}}}, r"NAME, expected widths"),
    ({"widths": {"NAME": {"key": 1.5, "value": 1}}}, r"NAME, expected widths"),
    ({"widths": {"NAME": {"key": 8}}}, r"NAME, expected widths"),
    ({"widths": {"NAME": [1, 1]}}, r"NAME, expected widths"),
    ({"widths": {"NAME": {"key": 8, "value": 3, "biases": 3}}}, "biases among"),
    ({"widths": {"NAME": {"key": 8, "value": 3, "biases": ["w"]}}}, "biases among"),
    ({"widths": {"NAME": {"key": 8, "value": 3}}}, "weights do not fit|weights or config.json cannot be read"),
]


@pytest.mark.parametrize("name", ["lag-llama", "time-moe", "totem"])
@pytest.mark.parametrize(("block", "text"), MISFITS)
def test_a_block_that_does_not_fit_is_named(name: str, block: Any, text: str, tmp_path: Path) -> None:
    model = example_model(name)
    model.save(tmp_path)
    layer = next(model.attentions()).name
    change_config(tmp_path, compression=json.loads(json.dumps(block).replace("NAME", layer)))
    with pytest.raises(ModelError, match=text.replace("NAME", layer)):
        family_class(name).load(tmp_path)


def narrow(model: Any, key: float, value: float) -> dict[str, Widths]:
    """Give every head these shares of its width, rotary keys kept; return the widths that it had, by layer."""
    full = {}
    for layer in model.attentions():
        read = layer.read()
        full[layer.name] = read.widths
        shares = (key if layer.plain else 1.0, value)
        widths = Widths(*(max(1, round(old * share)) for old, share in zip(read.widths, shares, strict=True)))
        layer.write(read.slice_heads(widths))
        assert layer.widths == widths
    return full


def pad(projections: Projections, widths: Widths) -> Projections:
    """Return heads of these widths, filled up with zeros."""
    key, value = (new - old for new, old in zip(widths, projections.widths, strict=True))
    by = {"q": key, "k": key, "v": value}
    padded = {name: np.pad(getattr(projections, name), ((0, 0), (0, more), (0, 0))) for name, more in by.items()}
    for name, more in by.items():
        bias = getattr(projections, f"{name}_bias")
        padded[f"{name}_bias"] = None if bias is None else np.pad(bias, ((0, 0), (0, more)))
    return projections._replace(o=np.pad(projections.o, ((0, 0), (0, 0), (0, value))), **padded)


def factorize(projections: Projections, plain: bool) -> Projections:
    """Return factors, by SVD, of every head's W_Q^T W_K (where it makes the scores) and of every group's W_O W_V.

    A bias is a column that reads a constant 1.
    """
    q, k, v = (
        np.concatenate((part, (np.zeros(part.shape[:2]) if bias is None else bias)[..., None]), axis=2)
        for part, bias in zip(projections[:3], projections[4:7], strict=True)
    )
    o = projections.o.reshape(len(v), -1, projections.o.shape[2])  # [g, heads of a group * out, value]
    o, v = factors(o @ v, v.shape[1])
    if plain:
        assert len(q) == len(k)
        q_out, k = factors(np.swapaxes(q, 1, 2) @ k, k.shape[1])
        q = np.swapaxes(q_out, 1, 2)
    biases = (None if bias is None else part[..., -1] for part, bias in zip((q, k, v), projections[4:7], strict=True))
    o = o.reshape(projections.o.shape)
    return Projections(q[..., :-1], k[..., :-1], v[..., :-1], o, *biases, projections.o_bias)


def factors(product: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    left, values, right = np.linalg.svd(product, full_matrices=False)
    root = np.sqrt(values[:, :rank])
    return left[:, :, :rank] * root[:, None], root[..., None] * right[:, :rank]
