"""Compression's view of attention: reading and writing change nothing, any width runs, saves and loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tasks.errors import ModelError
from tasks.models.attention import BLOCK, Projections, Widths, shape_as, shapes
from tasks.models.registry import family_class

T5: dict[str, Any] = {"d_model": 16, "d_ff": 32, "d_kv": 8, "num_heads": 2, "num_layers": 2, "num_decoder_layers": 2}
T5 |= {"context_length": 32, "prediction_length": 8, "dropout_rate": 0.0}
CONFIGS = {"chronos-t5": {**T5, "n_tokens": 64}, "chronos-bolt": {**T5, "input_patch_size": 8, "input_patch_stride": 8}}


@pytest.fixture(params=sorted(CONFIGS))
def model(request: pytest.FixtureRequest) -> Any:
    return family_class(request.param).new(CONFIGS[request.param], seed=0)


def test_writing_what_was_read_changes_nothing(model: Any) -> None:
    before = loss(model)
    for layer in model.attentions():
        layer.write(layer.read())
    assert loss(model) == pytest.approx(before, rel=1e-7)


def test_every_attention_matrix_of_weights_is_a_part_of_a_layer(model: Any) -> None:
    matrices = {(w.stack, w.layer, w.attention, w.what): w.matrix for w in model.weights() if w.attention}
    read = {(a.stack, a.layer, a.kind): a.read() for a in model.attentions()}
    assert {key[:3] for key in matrices} == set(read)
    for (stack, layer, kind, what), matrix in matrices.items():
        part = getattr(read[stack, layer, kind], what)
        whole = np.concatenate(list(part), axis=1 if what == "o" else 0)
        assert np.array_equal(whole.astype(np.float32), matrix)


def test_zero_padded_heads_make_the_same_output(model: Any) -> None:
    """Zeros up to the old width are the same function, and run through the original forward."""
    for layer in model.attentions():
        layer.write(layer.read().sliced(Widths(3, 5)))
    narrow = loss(model)
    for layer in model.attentions():
        layer.write(padded(layer.read(), 8))
    assert loss(model) == pytest.approx(narrow, rel=1e-6)


def test_saves_and_loads_at_its_widths(model: Any, tmp_path: Path) -> None:
    for index, layer in enumerate(model.attentions()):
        layer.write(layer.read().sliced(Widths(1 + index, 8 - index)))
    model.network.config.update({BLOCK: {"widths": shapes(model.attentions())}})
    model.save(tmp_path)
    again = type(model).load(tmp_path)
    assert shapes(again.attentions()) == shapes(model.attentions())
    assert loss(again) == loss(model)


@pytest.mark.parametrize(
    "said", [{"encoder.9.self": {"key": 1, "value": 1}}, {"encoder.1.self": {"key": 9, "value": 1}}]
)
def test_a_shape_that_does_not_fit_is_named(model: Any, said: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=r"encoder\.[19]\.self"):
        shape_as(model.attentions(), said, "config.json")


def padded(one: Projections, width: int) -> Projections:
    q, k, v = (np.pad(part, ((0, 0), (0, width - part.shape[1]), (0, 0))) for part in (one.q, one.k, one.v))
    return Projections(q, k, v, np.pad(one.o, ((0, 0), (0, 0), (0, width - one.o.shape[2]))))


def loss(model: Any) -> float:
    rng = np.random.default_rng(0)
    values = torch.from_numpy(rng.normal(size=(3, 40)).cumsum(axis=1).astype(np.float32))
    with torch.no_grad():
        return float(model.loss(values[:, :32], values[:, 32:]))
