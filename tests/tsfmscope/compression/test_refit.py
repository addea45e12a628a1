"""Fit of the output projections: the least squares are made again by hand, and nothing else of the model changes."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsfmscope.compression import refit, two_step
from tsfmscope.compression.calibration import gather
from tsfmscope.compression.candidates import count_parameters
from tsfmscope.compression.options import Method
from tsfmscope.compression.refit import (
    RIDGE,
    OutputLoss,
    best_weights,
    eliminate,
    find_mlps,
    fit_outputs,
    gather_losses,
    solve_ridge,
)
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


def loss_of(inputs: np.ndarray, weights: np.ndarray, *, penalty: float = 1e-6, n_free: int = 0) -> OutputLoss:
    """The squared error of `inputs @ weights`, as defined."""
    matrix = inputs.T @ inputs
    free = np.arange(len(matrix)) < n_free
    matrix = matrix + np.diag(np.where(free, 0.0, penalty))
    return OutputLoss(matrix, weights, n_free, float(np.square(inputs @ weights).sum()))


def least_error(
    inputs: np.ndarray, weights: np.ndarray, neuron_ids: tuple[int, ...], penalty: float, n_free: int
) -> float:
    """The least error with these neurons alone, by least squares over stacked rows; an independent definition."""
    rows = list(range(n_free)) + [neuron + n_free for neuron in neuron_ids]
    gone = [row for row in range(len(weights)) if row not in rows]
    ridge = np.sqrt(penalty) * np.eye(len(weights))
    ridge[:n_free] = 0
    stacked = np.concatenate((inputs, ridge))
    target = stacked[:, gone] @ weights[gone]
    change = np.linalg.lstsq(stacked[:, rows], target, rcond=None)[0]
    return float(np.square(target - stacked[:, rows] @ change).sum())


@pytest.mark.parametrize("n_free", [0, 1])
def test_each_removal_costs_the_least_among_all_of_the_rest(n_free: int) -> None:
    rng = np.random.default_rng(n_free)
    inputs = rng.normal(size=(50, 6 + n_free)) @ rng.normal(size=(6 + n_free, 6 + n_free))
    if n_free:
        inputs[:, 0] = 1.0
    weights, penalty = rng.normal(size=(6 + n_free, 3)), 0.5
    loss = loss_of(inputs, weights, penalty=penalty, n_free=n_free)
    found = eliminate(loss)
    assert sorted(found.order) == list(range(6)) and found.errors[0] == 0
    kept = tuple(range(6))
    for removed, neuron in enumerate(found.order, start=1):
        options = {
            left_out: least_error(inputs, weights, tuple(set(kept) - {left_out}), penalty, n_free) / loss.output
            for left_out in kept
        }
        assert min(options, key=lambda left_out: options[left_out]) == neuron
        np.testing.assert_allclose(found.errors[removed], options[neuron], rtol=1e-7)
        kept = tuple(sorted(set(kept) - {int(neuron)}))
        assert found.remaining_neurons(len(kept)).tolist() == list(kept)


@pytest.mark.parametrize("n_free", [0, 1])
def test_the_weights_of_the_kept_neurons_are_those_of_least_squares(n_free: int) -> None:
    rng = np.random.default_rng(1)
    inputs, weights = rng.normal(size=(40, 5 + n_free)), rng.normal(size=(5 + n_free, 2))
    loss = loss_of(inputs, weights, penalty=0.1, n_free=n_free)
    for kept in itertools.combinations(range(5), 3):
        fitted = best_weights(loss, np.array(kept))
        change = np.zeros_like(weights)
        rows = [*range(n_free), *(neuron + n_free for neuron in kept)]
        change[rows] = fitted
        change -= weights
        found = float(np.trace(change.T @ loss.matrix @ change))
        assert found == pytest.approx(least_error(inputs, weights, kept, 0.1, n_free), rel=1e-9)
    np.testing.assert_allclose(best_weights(loss, np.arange(5)), weights, rtol=1e-12)


@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-150, 1e-3, 1.0, 1e6, 1e150]))
def test_scale_and_order_of_neurons_change_nothing_else(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    inputs, weights = rng.normal(size=(30, 7)), rng.normal(size=(7, 2))
    found = eliminate(loss_of(inputs, weights))
    scaled = eliminate(loss_of(inputs * scale, weights / scale, penalty=1e-6 * scale**2))
    assert scaled.order.tolist() == found.order.tolist()
    np.testing.assert_allclose(scaled.errors, found.errors, rtol=1e-6)
    shuffle = rng.permutation(7)
    assert shuffle[eliminate(loss_of(inputs[:, shuffle], weights[shuffle])).order].tolist() == found.order.tolist()
    assert (np.diff(found.errors) >= 0).all()


def test_a_dead_neuron_and_one_of_two_twins_go_first_and_cost_the_penalty_at_most() -> None:
    rng = np.random.default_rng(2)
    inputs, weights = rng.normal(size=(60, 6)), rng.normal(size=(6, 3))
    inputs[:, 4], inputs[:, 5] = 0.0, inputs[:, 0]
    found = eliminate(loss_of(inputs, weights, penalty=1e-9))
    assert set(found.order[:2]) < {0, 4, 5} and 4 in found.order[:2]
    assert found.errors[2] < 1e-9 < found.errors[3]


def test_a_bias_takes_over_a_constant_neuron() -> None:
    rng = np.random.default_rng(3)
    inputs, weights = rng.normal(size=(60, 4)), rng.normal(size=(4, 2))
    inputs[:, 0], inputs[:, 2] = 1.0, 5.0  # the bias, and neuron 1
    loss = loss_of(inputs, weights, penalty=1e-9, n_free=1)
    found = eliminate(loss)
    assert found.order[0] == 1 and found.errors[1] < 1e-9
    np.testing.assert_allclose(
        best_weights(loss, found.remaining_neurons(2))[0], weights[0] + 5 * weights[2], rtol=1e-6
    )


def test_groups_remove_nearly_what_single_neurons_do(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    inputs, weights = rng.normal(size=(200, 40)) @ rng.normal(size=(40, 40)), rng.normal(size=(40, 4))
    single = eliminate(loss_of(inputs, weights))
    monkeypatch.setattr(refit, "SINGLE", 4)
    monkeypatch.setattr(refit, "GROUPS", 10)
    grouped = eliminate(loss_of(inputs, weights))
    assert sorted(grouped.order) == list(range(40)) and len(grouped.errors) == 41
    # Groups of 4, 3, 3, 3, 2, 2 and 2 leave 21. The error after a group is that of the best weights of the rest.
    exact = least_error(inputs, weights, tuple(grouped.remaining_neurons(21)), 1e-6, 0)
    np.testing.assert_allclose(grouped.errors[19], exact / loss_of(inputs, weights).output, rtol=1e-6)
    assert single.errors[20] <= grouped.errors[20] * (1 + 1e-9) <= 2 * single.errors[20]


def test_moments_are_those_of_all_tokens_but_padding(toy: Any, windows: Windows) -> None:
    tokens = toy.tokenize(windows)
    every = find_mlps(toy)
    found = gather_losses(toy, every, [tokens.take(np.arange(2)), tokens.take(np.arange(2, 6))])
    for mlp in every:
        output, rows = toy.network.get_submodule(mlp.output), []
        handle = output.register_forward_pre_hook(lambda _, inputs, rows=rows: rows.append(inputs[0].double().numpy()))
        for _ in toy.hidden_states(tokens):
            pass
        handle.remove()
        values = np.concatenate(rows)[tokens.kinds[mlp.stack] != TokenKind.PADDING]
        loss = found[mlp.name]
        expected = values.T @ values
        penalty = refit.RIDGE * np.trace(expected) / len(expected)
        np.testing.assert_allclose(loss.matrix, expected + penalty * np.eye(len(expected)), rtol=1e-5, atol=1e-6)
        weight = output.weight.detach().double().numpy()
        assert loss.output == pytest.approx(np.square(values @ weight.T).sum(), rel=1e-6)


def test_an_mlp_without_tokens_keeps_the_largest_columns(toy: Any, windows: Windows) -> None:
    every = find_mlps(toy)
    found = gather_losses(toy, every, [])[every[0].name]
    lengths = np.linalg.norm(found.weights, axis=1)
    assert eliminate(found).order.tolist() == np.argsort(lengths).tolist()
