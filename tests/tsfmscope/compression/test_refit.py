"""Fit of the output projections: the least squares are made again by hand, and nothing else of the model changes."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from tsfmscope.compression import two_step
from tsfmscope.compression.calibration import gather
from tsfmscope.compression.candidates import count_parameters
from tsfmscope.compression.options import Method
from tsfmscope.compression.refit import RIDGE, fit_outputs, solve_ridge
from tsfmscope.models.types import TokenKind, Tokens
from tsfmscope.series.types import Windows

METHOD = Method.model_validate({"method": two_step.REFIT, "ranks": {"budget": 0.4}})


def test_the_ridge_is_that_of_the_normal_equations() -> None:
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(30, 5)), rng.normal(size=(30, 3))
    square = inputs.T @ inputs
    penalty = 0.1 * np.trace(square) / 5 * np.eye(5)
    expected = np.linalg.solve(square + penalty, inputs.T @ targets)
    np.testing.assert_allclose(solve_ridge(inputs, targets, 0.1), expected, rtol=1e-9)


def test_a_constant_without_penalty_takes_the_mean_and_inputs_of_zeros_change_nothing() -> None:
    targets = np.random.default_rng(0).normal(size=(30, 3))
    inputs = np.concatenate([np.ones((30, 1)), np.zeros((30, 2))], axis=1)
    change = solve_ridge(inputs, targets, 0.1, n_free=1)
    np.testing.assert_allclose(change, [targets.mean(axis=0), np.zeros(3), np.zeros(3)], atol=1e-12)


def outputs_of(model: Any, tokens: Tokens, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and outputs of an output projection, one row per token without padding, by a hook of torch."""
    layer = {one.name: one for one in model.attentions()}[name]
    rows: list[tuple[np.ndarray, np.ndarray]] = []

    def keep(_: Any, inputs: tuple[Any, ...], output: Any) -> None:
        rows.append((inputs[0].detach().double().numpy(), output.detach().double().numpy()))

    handle = layer.linear("o").register_forward_hook(keep)
    for _ in model.hidden_states(tokens):
        pass
    handle.remove()
    valid = tokens.kinds[layer.stack] != TokenKind.PADDING
    return tuple(np.concatenate([row[at] for row in rows])[valid] for at in (0, 1))  # type: ignore[return-value]


def truncated(toy: Any, tokens: Tokens, heads: float) -> Any:
    small = copy.deepcopy(toy)
    two_step.apply_split(small, METHOD, heads, gather(toy, tokens), [tokens])
    return small


def test_the_first_layer_is_fitted_as_by_hand_to_the_outputs_of_the_base(toy: Any, windows: Windows) -> None:
    tokens = toy.tokenize(windows)
    small = truncated(toy, tokens, 0.4)
    first = next(iter(toy.attentions())).name
    (inputs, before), (_, expected) = (outputs_of(model, tokens, first) for model in (small, toy))
    weight = {one.name: one for one in small.attentions()}[first].linear("o").weight.detach().double().numpy()
    square = inputs.T @ inputs
    penalty = RIDGE * np.trace(square) / len(square) * np.eye(len(square))
    change = np.linalg.solve(square + penalty, inputs.T @ (expected - before)).T
    fit_outputs(toy, small, [tokens])
    found = {one.name: one for one in small.attentions()}[first].linear("o").weight.detach().numpy()
    np.testing.assert_allclose(found, weight + change, atol=1e-5)
    after = outputs_of(small, tokens, first)[1]
    assert np.square(expected - after).sum() < np.square(expected - before).sum()


@pytest.mark.parametrize("heads", [0.4, 1.0])
def test_only_the_last_factor_of_an_output_projection_changes(toy: Any, windows: Windows, heads: float) -> None:
    tokens = toy.tokenize(windows)
    small = truncated(toy, tokens, heads)
    before = {name: tensor.clone() for name, tensor in small.network.state_dict().items()}
    fit_outputs(toy, small, [tokens])
    outputs = {id(one.linear("o")) for one in small.attentions()}
    names = {name for name, module in small.network.named_modules() if id(module) in outputs}
    changed = {name for name, tensor in small.network.state_dict().items() if not tensor.equal(before[name])}
    assert changed and {name.removesuffix(".weight").removesuffix(".wide") for name in changed} <= names
    assert not any("narrow" in name for name in changed)
    assert count_parameters(list(small.attentions())) <= 0.4 * count_parameters(list(toy.attentions()))


def test_a_model_that_was_not_truncated_stays_as_it_is(toy: Any, windows: Windows) -> None:
    twin = copy.deepcopy(toy)
    fit_outputs(toy, twin, [toy.tokenize(windows)])
    for name, tensor in twin.network.state_dict().items():
        np.testing.assert_allclose(tensor, toy.network.state_dict()[name], atol=1e-6)
