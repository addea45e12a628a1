"""MLPs of every family: a neuron is one row of the inputs and one column of the output, and a checkpoint has fewer."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.tsfmscope.models.families import CLASSES, COMPRESSED, example_model
from tsfmscope.compression import whole_model
from tsfmscope.compression.compress import reduce_bits
from tsfmscope.compression.export import save
from tsfmscope.compression.options import Method, Ranks
from tsfmscope.compression.refit import find_mlps
from tsfmscope.errors import ModelError
from tsfmscope.models.common import int8
from tsfmscope.models.common.attention import shapes
from tsfmscope.models.common.compression_block import NEURONS, Mlp, apply_neurons, keep_neurons, neuron_entries
from tsfmscope.models.registry import family_class
from tsfmscope.series.types import Windows

CONFIG: dict[str, Any] = {"d_model": 8, "d_ff": 16, "d_kv": 4, "num_heads": 2, "num_layers": 1, "num_decoder_layers": 1}
CONFIG |= {"context_length": 16, "prediction_length": 4, "dropout_rate": 0.0, "n_tokens": 32}


def neuron_values(model: Any, mlp: Mlp, windows: Windows) -> torch.Tensor:
    """What the output Linear reads in one pass, by a hook of torch."""
    found: list[torch.Tensor] = []
    output = model.network.get_submodule(mlp.output)
    handle = output.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0].detach()))
    for _ in model.hidden_states(model.tokenize(windows)):
        pass
    handle.remove()
    return torch.cat(found)


@pytest.mark.parametrize("family", CLASSES)
def test_every_mlp_matrix_of_a_family_belongs_to_an_mlp(family: str) -> None:
    model = example_model(family)
    matrices = [matrix for matrix in model.weights() if matrix.name.startswith("mlp")]
    every = find_mlps(model)
    assert every and len({mlp.name for mlp in every}) == len(every)
    assert sum(len(mlp.inputs) + 1 for mlp in every) == len(matrices)
    for mlp in every:
        output = model.network.get_submodule(mlp.output)
        assert {model.network.get_submodule(path).out_features for path in mlp.inputs} == {output.in_features}


def test_a_neuron_that_is_kept_has_the_value_that_it_had(any_family: Any, items: Callable[..., Windows]) -> None:
    model, windows = copy.deepcopy(any_family), items(any_family)
    # The inputs of the first MLP do not depend on its own weights.
    mlp, *_ = find_mlps(model)
    before, output = neuron_values(model, mlp, windows), model.network.get_submodule(mlp.output)
    assert before.shape[-1] == output.in_features and before.std() > 0
    kept = np.arange(output.in_features)[::3]
    keep_neurons(model.network, mlp, kept, output.weight.detach().numpy()[:, kept], None)
    torch.testing.assert_close(neuron_values(model, mlp, windows), before[..., kept])


def narrowed() -> tuple[Any, list[Mlp]]:
    model = family_class("chronos-t5").new(CONFIG, seed=0)
    every = find_mlps(model)
    original = copy.deepcopy(model.network)
    for mlp, width in zip(every, (5, 16), strict=True):
        weight = model.network.get_submodule(mlp.output).weight.detach().numpy()
        keep_neurons(model.network, mlp, np.arange(width), weight[:, :width], None)
    model.compression = {"widths": shapes(model.attentions()), **neuron_entries(model.network, original, every)}
    return model, every


def test_a_folder_has_the_widths_and_loads_them(tmp_path: Path) -> None:
    model, every = narrowed()
    assert model.compression is not None
    # An MLP that lost no neuron needs no entry.
    assert model.compression[NEURONS] == {every[0].output: {"inputs": list(every[0].inputs), "width": 5}}
    model.save(tmp_path)
    again = family_class("chronos-t5").load(tmp_path)
    ours, theirs = model.network.state_dict(), again.network.state_dict()
    assert list(ours) == list(theirs) and all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert find_mlps(again) == every


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 0}, "expected inputs of 16 and 1 to 16 neurons"),
        ({"width": 17}, "expected inputs of 16 and 1 to 16 neurons"),
        ({"width": True}, "expected `inputs` and `width` by path"),
        ({"inputs": []}, "expected `inputs` and `width` by path"),
        ({"inputs": "shared"}, "expected `inputs` and `width` by path"),
        ({"inputs": ["shared"]}, "names neurons of 'shared', expected the path of a Linear"),
        ({"inputs": ["no.such.module"]}, "expected the path of a Linear"),
        ({"inputs": ["encoder.block.0.layer.0.SelfAttention.q"]}, "whose inputs have \\[8\\]"),
    ],
)
def test_an_entry_that_does_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    model = family_class("chronos-t5").new(CONFIG, seed=0)
    mlp = find_mlps(model)[0]
    entry = {mlp.output: {"inputs": list(mlp.inputs), "width": 5} | change}
    with pytest.raises(ModelError, match=f"config.json: .*{message}"):
        apply_neurons(model.network, entry, "config.json")
    with pytest.raises(ModelError, match="expected `inputs` and `width` by path"):
        apply_neurons(model.network, ["encoder"], "config.json")


@pytest.mark.parametrize("family", COMPRESSED)
def test_every_family_loses_neurons_and_loads_again(
    family: str, items: Callable[..., Windows], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = copy.deepcopy(example_model(family))
    tokens = model.tokenize(items(model))
    rounded, total = (int8.stored_bytes(model.network, rounded=rounded) for rounded in (True, False))
    monkeypatch.setattr(whole_model, "DIVISIONS", whole_model.DIVISIONS[:1])
    method = Method(method="whole-model", ranks=Ranks(bytes=0.97 * rounded / total), bits=8)
    rows = whole_model.compress(model, method, [tokens])
    assert any(row["rank"] < row["full_width"] for row in rows)
    reduce_bits(model, method)
    save(model, tmp_path / "small")
    again = type(model).load(tmp_path / "small")
    for ours, theirs in zip(model.hidden_states(tokens), again.hidden_states(tokens), strict=True):
        assert np.isfinite(ours.states).all() and np.array_equal(ours.states, theirs.states)
