"""The zero-sum rule against a literal form of its text, and its predicted changes against finite differences."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tsfmscope.compression.test_loss_statistics import seeded_loss
from tsfmscope.compression.budget import BudgetError
from tsfmscope.compression.candidates import Candidate, matrices_candidate
from tsfmscope.compression.loss_statistics import LossStatistics, gather_gradients, loss_batches
from tsfmscope.compression.matrices import weighted_factors
from tsfmscope.compression.methods.peers import svd_llm
from tsfmscope.compression.methods.zero_sum import _changes, zero_sum
from tsfmscope.models.common.attention import AttentionLayer
from tsfmscope.series.types import Windows

SHAPES = [(12, 12), (9, 14), (14, 9), (1, 5), (10, 10)]


def make_candidates(seed: int, idle: int | None = None) -> tuple[list[Candidate], dict[str, Any]]:
    """Matrices of random layers with random inputs and gradients, one per layer."""
    rng, candidates, statistics = np.random.default_rng(seed), [], {}
    for index, (rows, columns) in enumerate(SHAPES):
        matrix, x = rng.normal(size=(rows, columns)), rng.normal(size=(30, columns))
        gradients = (rng.normal(size=(3, rows, 30)) @ x).astype(np.float32)
        inputs = x.T @ x / 30
        one = LossStatistics(inputs, np.abs(x).mean(axis=0), np.eye(rows), gradients)
        costs = np.array([min(rank * (rows + columns), matrix.size) for rank in range(1, min(rows, columns) + 1)])
        costs[-1] = matrix.size
        layer: Any = SimpleNamespace(name=f"layer {index}")
        shares = [0.0 if index == idle else 1.0]
        candidates.append(Candidate(layer, ("q",), [svd_llm(matrix, one)], len(costs), costs, matrix.size, shares))
        statistics[layer.name] = {"q": one}
    return candidates, statistics


def literal_zero_sum(
    sigmas: list[np.ndarray], slopes: list[np.ndarray], shapes: list[tuple[int, int]], remove: int, keep: float
) -> list[int]:
    """The public code's rule for singular values and the loss' derivatives by them, with lists instead of heaps."""
    ranks, total, removed = [len(one) for one in sigmas], 0.0, 0
    turn, turns = 0, list(range(len(shapes)))
    while removed < remove:
        choices = []
        for index, (m, n) in enumerate(shapes):
            break_even = max(1, (m * n - 1) // (m + n))
            if ranks[index] > max(1, int(np.ceil(keep * break_even))):
                last = ranks[index] - 1
                choices.append((-sigmas[index][last] * slopes[index][last], turns[index], index))
        positive = [one for one in choices if one[0] >= 0]
        negative = [one for one in choices if one[0] < 0]
        preferred, other = (positive, negative) if total <= 0 else (negative, positive)
        change, _, index = min(preferred or other, key=lambda one: (abs(one[0]), one[1]))
        (m, n), total, ranks[index] = shapes[index], total + change, ranks[index] - 1
        turns[index], turn = len(shapes) + turn, turn + 1
        break_even = max(1, (m * n - 1) // (m + n))
        if ranks[index] == break_even:
            removed += m * n - ranks[index] * (m + n)
        elif ranks[index] < break_even:
            removed += m + n
    kept = []
    for rank, (m, n) in zip(ranks, shapes, strict=True):
        kept.append(min(m, n) if rank > max(1, (m * n - 1) // (m + n)) else rank)
    return kept


def derivatives(candidate: Candidate, one: LossStatistics) -> tuple[np.ndarray, np.ndarray]:
    """σ and uᵀ G S⁻ᵀ v of every singular value of W S, with the Cholesky factor S of the moments."""
    matrix = candidate.factors[0].left @ candidate.factors[0].right
    root = np.linalg.cholesky(one.inputs)
    u, sigma, vt = np.linalg.svd(matrix @ root, full_matrices=False)
    gradient = one.gradients.astype(float).mean(axis=0)
    return sigma, np.diag(u.T @ gradient @ np.linalg.inv(root).T @ vt.T)


@pytest.mark.parametrize("seed", range(4))
def test_predicted_changes_are_those_of_the_published_formula(seed: int) -> None:
    candidates, statistics = make_candidates(seed)
    for candidate in candidates:
        one = statistics[candidate.layer.name]["q"]
        sigma, slope = derivatives(candidate, one)
        found = _changes(candidate, statistics)
        assert np.allclose(found[: candidate.full], -sigma * slope)
        assert np.allclose(found[candidate.full :], 0, atol=1e-9)


@settings(max_examples=15)
@given(st.integers(0, 999), st.floats(0.12, 1))
def test_ranks_are_those_of_the_literal_rule(seed: int, budget: float) -> None:
    candidates, statistics = make_candidates(seed)
    whole = sum(one.before for one in candidates)
    pairs = [derivatives(one, statistics[one.layer.name]["q"]) for one in candidates]
    sigmas, slopes = map(list, zip(*pairs, strict=True))
    ranks = zero_sum(candidates, least := max(int(budget * whole), 98), statistics)
    keep = 0.1 if least >= 98 else 0.0
    assert ranks == literal_zero_sum(sigmas, slopes, SHAPES, whole - least, keep)
    assert sum(int(one.costs[rank - 1]) for one, rank in zip(candidates, ranks, strict=True)) <= least


def test_smallest_ranks_are_kept_until_a_budget_is_too_small_for_them() -> None:
    layer: Any = SimpleNamespace(name="layer")
    rng = np.random.default_rng(0)
    matrix, statistics = rng.normal(size=(60, 60)), {}
    one = LossStatistics(np.eye(60), np.ones(60), np.eye(60), rng.normal(size=(1, 60, 60)).astype(np.float32))
    costs = np.minimum(120 * np.arange(1, 61), 3600)
    candidates = [Candidate(layer, ("q",), [svd_llm(matrix, one)], 60, costs, 3600, [1.0])]
    statistics["layer"] = {"q": one}
    assert zero_sum(candidates, 360, statistics) == [3]
    assert zero_sum(candidates, 359, statistics) == [2]
    assert zero_sum(candidates, 120, statistics) == [1]
    with pytest.raises(BudgetError, match="got 119, expected at least 120"):
        zero_sum(candidates, 119, statistics)


def test_idle_matrices_get_rank_one_and_matrices_without_gradient_share_the_removals() -> None:
    candidates, statistics = make_candidates(0, idle=1)
    whole = sum(one.before for one in candidates) - candidates[1].before + int(candidates[1].costs[0])
    assert zero_sum(candidates, whole, statistics) == [12, 1, 9, 1, 10]
    zeros: Any = {
        name: {"q": LossStatistics(one["q"].inputs, one["q"].magnitudes, one["q"].outputs, 0 * one["q"].gradients)}
        for name, one in statistics.items()
    }
    # Removals take turns: ranks 4 and 2 cost 136 numbers, 3 and 2 cost 112, 3 and 1 cost 92.
    assert zero_sum([candidates[0], candidates[4]], 111, zeros) == [3, 1]


def test_a_predicted_change_is_the_singular_value_times_the_derivative_of_the_loss(
    toys: dict[str, Any], windows: Windows
) -> None:
    """W + t u uᵀ W changes σ to (1 + t) σ and no other singular value of W S."""
    model = copy.deepcopy(toys["chronos-bolt"])
    statistics = gather_gradients(model, [windows], group=len(windows))
    layer: AttentionLayer = next(iter(model.attentions()))
    linear, one = layer.linear("v"), statistics[layer.name]["v"]
    matrix = linear.weight.detach().double().numpy()
    factors = weighted_factors(matrix, np.linalg.cholesky(one.inputs + 1e-9 * np.eye(len(matrix))).T)
    candidate = matrices_candidate(layer, {"v": matrix}, [factors], min(matrix.shape))
    (parts,) = loss_batches(model, [windows], len(windows))
    changes = _changes(candidate, statistics)
    for number in np.argsort(-np.abs(changes))[:3]:
        direction, losses = np.outer(factors.left[:, number], factors.right[number]), []
        for step in (-0.02, 0.02):
            with torch.no_grad():
                linear.weight.copy_(torch.from_numpy(matrix + step * direction))
            losses.append(float(seeded_loss(model, parts).detach()))
        assert -(losses[1] - losses[0]) / 0.04 == pytest.approx(changes[number], rel=0.02)
