"""Selection of neurons: every removal is made again by brute force, and hard cases."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsfmscope.compression import refit
from tsfmscope.compression.refit import OutputLoss, best_weights, eliminate, find_mlps, gather_losses
from tsfmscope.models.types import TokenKind
from tsfmscope.series.types import Windows


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
