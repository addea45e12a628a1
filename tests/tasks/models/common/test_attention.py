"""Compression's view of attention: reading and writing change nothing, any width runs, saves and loads."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.tasks.models.families import COMPRESSED, example_model
from tsfmscope.tasks.errors import ModelError
from tsfmscope.tasks.models.base import Forecaster
from tsfmscope.tasks.models.common.attention import BLOCK, Projections, Widths, apply_shapes, shapes
from tsfmscope.tasks.models.timesfm.versions import TimesFM25
from tsfmscope.tasks.models.vit import ViT
from tsfmscope.tasks.series.types import Windows

# Models of further shapes: fixtures of this module.
SHAPES = ["timesfm_25_grouped", "vit_bare"]
# Families of networks that this project wrote, or that need their own tests: test_attention_own.py.
OWN = {"lag-llama", "moirai", "tabular", "time-moe"}
FAMILIES = [name for name in COMPRESSED if name not in OWN]
ROTARY = {"timesfm-2.5": "self", "timesfm_25_grouped": "self", "chronos-2": "time"}  # kind of their rotary attention
SHARES = [(0.4, 0.7), (1.0, 0.5), (0.5, 0.5)]  # of the keys' and of the values' width


@pytest.fixture(scope="session")
def timesfm_25_grouped() -> TimesFM25:
    """Four heads of queries that share two of keys and values."""
    config = {"hidden_size": 16, "intermediate_size": 24, "head_dim": 6, "num_hidden_layers": 2, "patch_length": 8}
    config |= {"num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.2}
    config |= {"context_length": 48, "horizon_length": 12, "output_quantile_len": 12}
    return TimesFM25.new(config, seed=1)


@pytest.fixture(scope="session")
def vit_bare(vit: ViT) -> ViT:
    """Without the head for masked images, as a ViT of another head is read."""
    return ViT(copy.deepcopy(vit.network.vit))


@pytest.fixture(params=[*FAMILIES, *SHAPES])
def model(request: pytest.FixtureRequest) -> Any:
    """A small model of each family that can be compressed; biases and scales, which are alike at first, are drawn."""
    found = copy.deepcopy(
        request.getfixturevalue(request.param) if request.param in SHAPES else example_model(request.param)
    )
    rng = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for layer in found.attentions():
            for name, value in layer.module.named_parameters():
                if name.endswith("bias") or name == "scaling":
                    value.add_(torch.randn(value.shape, generator=rng) * 0.5)
    return found


@pytest.fixture
def answers(items: Callable[..., Windows]) -> Callable[[Any], list[np.ndarray]]:
    """Hidden states of every layer, what attention is given, and the forecast where no sample is drawn."""

    def answer(model: Any) -> list[np.ndarray]:
        windows = items(model)
        tokens = model.tokenize(windows)
        found = [layer.states for layer in (*model.hidden_states(tokens), *model.attention_inputs(tokens))]
        if isinstance(model, Forecaster) and model.direct_quantiles:
            found.append(model.forecast(windows, seeds=list(range(len(windows)))).values)
        return found

    return answer


def test_the_kinds_of_attention_that_are_rotary_are_not_plain(model: Any, request: pytest.FixtureRequest) -> None:
    rotary = ROTARY.get(request.node.callspec.params["model"])
    assert {layer.kind for layer in model.attentions() if not layer.plain} == ({rotary} if rotary else set())


def test_writing_what_was_read_changes_nothing(model: Any, answers: Callable[[Any], list[np.ndarray]]) -> None:
    before = answers(model)
    for layer in model.attentions():
        layer.write(layer.read())
    assert_same(answers(model), before)


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
    for (stack, layer, kind, what), weight in matrices.items():
        part = getattr(layers[stack, layer, kind].read(), what)
        whole = np.concatenate(list(part), axis=1 if what == "o" else 0)
        assert np.array_equal(whole.astype(np.float32), weight.matrix)
        assert len(part) == weight.heads


def test_absorbed_at_full_rank_is_the_same_model(model: Any, answers: Callable[[Any], list[np.ndarray]]) -> None:
    before = answers(model)
    for layer in model.attentions():
        layer.write(absorbed(layer.read(), layer.plain))
    assert_same(answers(model), before)


@pytest.mark.parametrize(("key", "value"), SHARES)
def test_zero_padded_heads_make_the_same_output(
    model: Any, answers: Callable[[Any], list[np.ndarray]], key: float, value: float
) -> None:
    """Zeros up to the old width are the same function, and run through the original forward."""
    full = narrow(model, key, value)
    narrower, deep = answers(model), copy.deepcopy(model)
    for layer in deep.attentions():
        layer.write(padded(layer.read(), full[layer.name]))
        assert layer.widths == full[layer.name]
    assert_same(answers(deep), narrower)
    assert_same(answers(model), narrower)  # the copy's were taken from it alone


def test_a_padded_model_is_an_ordinary_checkpoint(
    model: Any, answers: Callable[[Any], list[np.ndarray]], tmp_path: Path
) -> None:
    full = narrow(model, 0.5, 0.7)
    before = answers(model)
    for layer in model.attentions():
        layer.write(padded(layer.read(), full[layer.name]))
    model.save(tmp_path)
    assert BLOCK not in json.loads((tmp_path / "config.json").read_text())
    assert_same(answers(type(model).load(tmp_path)), before)


@pytest.mark.parametrize(("key", "value"), SHARES[:2])
def test_saves_and_loads_at_its_widths(
    model: Any, answers: Callable[[Any], list[np.ndarray]], tmp_path: Path, key: float, value: float
) -> None:
    before = narrow(model, key, value)
    model.compression = {"widths": shapes(model.attentions())}
    model.save(tmp_path)
    again = type(model).load(tmp_path)
    assert shapes(again.attentions()) == shapes(model.attentions())
    assert {layer.name: layer.widths for layer in again.attentions()} != before
    for mine, other in zip(answers(again), answers(model), strict=True):
        assert np.array_equal(mine, other)


def test_every_head_may_lose_its_biases_and_gain_them(
    model: Any, answers: Callable[[Any], list[np.ndarray]], tmp_path: Path
) -> None:
    """A block says which projections have a bias; those of a bias of zero are the same as without."""
    for layer in model.attentions():
        layer.write(layer.read()._replace(q_bias=None, k_bias=None, v_bias=None, o_bias=None))
    before = answers(model)
    model.compression = {"widths": shapes(model.attentions())}
    model.save(tmp_path)
    again = type(model).load(tmp_path)
    assert all(one["biases"] == [] for one in shapes(again.attentions()).values())
    for layer in again.attentions():
        read = layer.read()
        zeros = [np.zeros(part.shape[:2]) for part in (read.q, read.k, read.v)]
        layer.write(Projections(*read[:4], *zeros, np.zeros(read.o.shape[1])))
    assert_same(answers(again), before)


def test_a_projection_may_be_any_module(model: Any, answers: Callable[[Any], list[np.ndarray]]) -> None:
    """Such as two factors, once `resize` has been told."""
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


def test_trains_at_its_widths(patchtst: Any, timesfm: Any) -> None:
    """Gradients reach every weight of a narrow layer; none flows into what fills a head up."""
    for family in (patchtst, timesfm):
        model = copy.deepcopy(family)
        narrow(model, 0.4, 0.7)
        walks = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 60)).cumsum(axis=1).astype(np.float32))
        model.loss(walks[:, :48], walks[:, 48:]).backward()
        for layer in model.attentions():
            for what in ("q", "k", "v", "o"):
                gradient = layer.linear(what).weight.grad
                assert gradient.shape == layer.linear(what).weight.shape
                assert gradient.abs().max() > 0


def test_keys_that_are_not_plain_keep_their_width(timesfm_25: TimesFM25) -> None:
    layer = next(copy.deepcopy(timesfm_25).attentions())
    with pytest.raises(ValueError, match=r"decoder\.1\.self: got keys of width 3, expected 6"):
        layer.write(layer.read().slice_heads(Widths(3, 6)))


@pytest.mark.parametrize(
    ("said", "match"),
    [
        ({"STACK.9.self": {"key": 1, "value": 1}}, r"\.9\.self"),
        ({"NAME": {"key": 99, "value": 1}}, "expected widths of"),
        ({"NAME": {"key": 1, "value": 0}}, "expected widths of"),
        ({"NAME": {"key": 1.5, "value": 1}}, "expected widths of"),
        ({"NAME": {}}, "expected widths of"),
        ({"NAME": [1, 1]}, "expected widths of"),
    ],
)
def test_a_shape_that_does_not_fit_is_named(model: Any, said: dict[str, Any], match: str) -> None:
    name = next(model.attentions()).name
    said = {key.replace("NAME", name): value for key, value in said.items()}
    with pytest.raises(ModelError, match=match):
        apply_shapes(model.attentions(), said, "config.json")


def test_rotary_keys_of_another_width_do_not_load(timesfm_25: TimesFM25) -> None:
    said = {"decoder.1.self": {"key": 3, "value": 3}}
    with pytest.raises(ModelError, match=r"expected widths of \(6, 1\) to \(6, 6\)"):
        apply_shapes(copy.deepcopy(timesfm_25).attentions(), said, "config.json")


@pytest.mark.parametrize("block", [{"widths": {"encoder.9.self": {"key": 1, "value": 1}}}, {"widths": 3}, "narrow"])
def test_a_folder_whose_block_does_not_fit_is_a_model_error(model: Any, tmp_path: Path, block: Any) -> None:
    model.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {BLOCK: block}))
    with pytest.raises(ModelError, match=rf"{BLOCK} (names|.* expected an object)"):
        type(model).load(tmp_path)


def narrow(model: Any, key: float, value: float) -> dict[str, Widths]:
    """Give every head these shares of its width, rotary keys kept; the widths that it had, by layer."""
    full = {}
    for layer in model.attentions():
        read = layer.read()
        full[layer.name] = read.widths
        shares = (key if layer.plain else 1.0, value)
        widths = Widths(*(max(1, round(old * share)) for old, share in zip(read.widths, shares, strict=True)))
        layer.write(read.slice_heads(widths))
        assert layer.widths == widths
    return full


def padded(one: Projections, widths: Widths) -> Projections:
    key, value = (new - old for new, old in zip(widths, one.widths, strict=True))
    q, k, v = (np.pad(part, ((0, 0), (0, by), (0, 0))) for part, by in ((one.q, key), (one.k, key), (one.v, value)))
    q_bias, k_bias, v_bias = (
        None if bias is None else np.pad(bias, ((0, 0), (0, by)))
        for bias, by in ((one.q_bias, key), (one.k_bias, key), (one.v_bias, value))
    )
    o = np.pad(one.o, ((0, 0), (0, 0), (0, value)))
    return Projections(q, k, v, o, q_bias, k_bias, v_bias, one.o_bias)


def absorbed(one: Projections, plain: bool) -> Projections:
    """Factors, by SVD, of every head's W_Q^T W_K (where it makes the scores) and of every group's W_O W_V.

    A bias is a column that reads a constant 1.
    """
    q, k, v = (
        np.concatenate((part, (np.zeros(part.shape[:2]) if bias is None else bias)[..., None]), axis=2)
        for part, bias in ((one.q, one.q_bias), (one.k, one.k_bias), (one.v, one.v_bias))
    )
    o = one.o.reshape(len(v), -1, one.o.shape[2])  # [g, heads of a group * out, value]
    o, v = factors(o @ v, v.shape[1])
    if plain:
        assert len(q) == len(k)
        q_out, k = factors(np.swapaxes(q, 1, 2) @ k, k.shape[1])
        q = np.swapaxes(q_out, 1, 2)
    biases = (
        None if bias is None else part[..., -1] for part, bias in ((q, one.q_bias), (k, one.k_bias), (v, one.v_bias))
    )
    return Projections(q[..., :-1], k[..., :-1], v[..., :-1], o.reshape(one.o.shape), *biases, one.o_bias)


def factors(product: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    left, values, right = np.linalg.svd(product, full_matrices=False)
    root = np.sqrt(values[:, :rank])
    return left[:, :, :rank] * root[:, None], root[..., None] * right[:, :rank]


def assert_same(got: list[np.ndarray], expected: list[np.ndarray]) -> None:
    """To 1e-5 of the largest."""
    for mine, other in zip(got, expected, strict=True):
        assert np.allclose(mine, other, rtol=0, atol=1e-5 * np.abs(other).max())
