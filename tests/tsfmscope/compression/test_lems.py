"""LEMS: its budget, its depth weights, ranks by measured errors, and a model that trials leave as it is."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tests.tsfmscope.compression.conftest import TOYS
from tests.tsfmscope.compression.test_calibration import VISIONTS
from tsfmscope.compression import lems
from tsfmscope.compression.budget import BudgetError
from tsfmscope.compression.candidates import count_parameters
from tsfmscope.compression.loss_statistics import gather_gradients
from tsfmscope.compression.options import Method
from tsfmscope.compression.truncation import compress
from tsfmscope.errors import ModelError
from tsfmscope.models.registry import family_class
from tsfmscope.series.types import Windows


@pytest.fixture(scope="module")
def toys() -> dict[str, Any]:
    """The toy models with one layer per stack, since every matrix takes a pass."""
    one = {"num_layers": 1, "num_decoder_layers": 1}
    return {name: family_class(name).new(config | one, seed=0) for name, config in TOYS.items()}


@pytest.fixture(autouse=True)
def few_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lems, "TRIALS", 3)


def search(model: Any, windows: Windows, budget: float) -> list[dict[str, Any]]:
    method = Method.model_validate({"method": lems.METHOD, "ranks": {"budget": budget}})
    return lems.compress(model, method, [model.tokenize(windows)], gather_gradients(model, [windows]))


def harmonic_weight(layer: int, layers: int, alpha: float, gamma: float) -> float:
    """The sum of the public code, normalised by its first and its last value."""
    first, own, last = (sum(1 / (k + 1) ** alpha for k in range(at, layers)) for at in (0, layer, layers - 1))
    return 1 + gamma * (own - last) / (first - last)


@pytest.mark.parametrize(("alpha", "gamma"), [(0.0, 0.0), (0.0, 7.0), (3.0, 7.0), (1.2, 0.4)])
@pytest.mark.parametrize("layers", [2, 5, 24])
def test_depth_weights_are_those_of_the_published_sum(layers: int, alpha: float, gamma: float) -> None:
    expected = [harmonic_weight(layer, layers, alpha, gamma) for layer in range(layers)]
    found = lems.depth_weights(layers, alpha, gamma)
    assert found == pytest.approx(expected)
    assert found[0] == pytest.approx(1 + gamma) and found[-1] == pytest.approx(1)


def test_a_single_layer_has_the_weight_one() -> None:
    assert lems.depth_weights(1, 2.0, 5.0).tolist() == [1.0]


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_a_budget_is_kept_and_the_search_errs_no_more_than_its_first_trial(
    toys: dict[str, Any], windows: Windows, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    model = copy.deepcopy(toys["chronos-bolt"])
    tokens, size = model.tokenize(windows), count_parameters(list(model.attentions()))
    expected, errors = lems.last_states(model, tokens), []
    rows = search(model, windows, share)
    assert share * size - 64 < count_parameters(list(model.attentions())) <= share * size
    assert [row["rank"] for row in rows if row["stack"] == "decoder" and row["attention"] == "self"][:2] == [1, 1]
    errors.append(np.square(lems.window_errors(model, expected, tokens)).mean())
    monkeypatch.setattr(lems, "TRIALS", 1)
    first = copy.deepcopy(toys["chronos-bolt"])
    search(first, windows, share)
    errors.append(np.square(lems.window_errors(first, expected, tokens)).mean())
    assert errors[0] <= errors[1] * (1 + 1e-9)


def test_the_whole_budget_changes_nothing_and_less_than_rank_one_is_an_error(
    toys: dict[str, Any], windows: Windows
) -> None:
    model = copy.deepcopy(toys["chronos-bolt"])
    before = copy.deepcopy(model.network.state_dict())
    with pytest.raises(BudgetError, match=r"ranks budget: got 0\.01"):
        search(model, windows, 0.01)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.network.state_dict().items())
    search(model, windows, 1.0)
    forecasts = [one.forecast(windows, seeds=[0] * 6).values for one in (model, toys["chronos-bolt"])]
    assert np.array_equal(*forecasts)


def test_a_matrix_that_matters_more_gets_a_larger_rank(
    toys: dict[str, Any], windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors that are measured a thousand times larger for one matrix move the budget to it."""
    measure, ranks = lems._measure_weight, []

    def measure_more(candidates: Sequence[Any], index: int, error: Any) -> float:
        return measure(candidates, index, error) * (1000 if index == 2 else 1)

    for function in (measure, measure_more):
        monkeypatch.setattr(lems, "_measure_weight", function)
        ranks.append([row["rank"] for row in search(copy.deepcopy(toys["chronos-t5"]), windows, 0.3)])
    assert ranks[1][2] > ranks[0][2] and sum(ranks[1]) <= sum(ranks[0]) + 16


def test_errors_alone_are_those_of_the_model_with_one_truncated_matrix(
    toys: dict[str, Any], windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D over the matrix's own error, at a tenth of its parameters; trials do not change the model."""
    model = copy.deepcopy(toys["chronos-t5"])
    tokens, before = model.tokenize(windows), copy.deepcopy(model.network.state_dict())
    seen: list[tuple[Any, int, float]] = []
    measure = lems._measure_weight

    def keep(candidates: Sequence[Any], index: int, error: Any) -> float:
        seen.append((candidates[index], index, measure(candidates, index, error)))
        assert all(torch.equal(tensor, before[name]) for name, tensor in model.network.state_dict().items())
        return seen[-1][2]

    monkeypatch.setattr(lems, "_measure_weight", keep)
    search(model, windows, 0.5)
    for candidate, _, found in (seen[0], seen[-1]):
        twin = copy.deepcopy(toys["chronos-t5"])
        expected = lems.last_states(twin, tokens)
        layer = next(one for one in twin.attentions() if one.name == candidate.layer.name)
        linear = layer.linear(candidate.parts[0])
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(np.matmul(*candidate.factors[0].truncate(1))))
        error = np.square(lems.window_errors(twin, expected, tokens)).mean()
        assert found == pytest.approx(error / candidate.error(1) ** 2, rel=1e-4)


def test_layers_that_the_last_states_do_not_depend_on_are_an_error() -> None:
    model = family_class("visionts").new(VISIONTS, seed=1)
    with pytest.raises(ModelError, match=r"after its last hidden states, decoder.*use method kfac-svd"):
        lems.compress(model, Method.model_validate({"method": lems.METHOD, "ranks": {"budget": 0.5}}), [], {})


def test_ranks_are_those_of_the_factors_that_are_written(toys: dict[str, Any], windows: Windows) -> None:
    model = copy.deepcopy(toys["chronos-bolt"])
    rows = search(model, windows, 0.5)
    assert model.compression is not None and model.compression["method"] == lems.METHOD
    with pytest.raises(ModelError, match="are thin factors"):
        compress(model, Method.model_validate({"method": "svd", "ranks": {"share": 0.5}}))
    thin = model.compression["factors"]
    for row in rows:
        name = f"{row['stack']}.{row['layer']}.{row['attention']}"
        assert thin.get(name, {}).get(row["part"], 16) == row["rank"]
