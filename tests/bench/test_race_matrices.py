"""Published methods against the formulas of their papers: statistics, factors, and ranks within a budget."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import race_matrices
from bench.race_matrices import (
    FACTORS,
    LARGEST_NORM,
    LEAST_NORM,
    MATRIX_METHODS,
    PROGRESSIVE,
    Calibration,
    LossStatistics,
    depth_weights,
    gather_gradients,
    kronecker_factors,
    loss_changes,
    one_share,
    svd_llm,
    zero_sum,
)
from tests.tsfmscope.compression.conftest import TOYS
from tests.tsfmscope.compression.test_calibration import VISIONTS
from tsfmscope.compression.budget import BudgetError
from tsfmscope.compression.candidates import Candidate, count_parameters, plain_factors
from tsfmscope.compression.fidelity import last_states, window_errors
from tsfmscope.compression.options import Calibration as Options
from tsfmscope.compression.outputs import loss_batches
from tsfmscope.errors import ModelError
from tsfmscope.models.common.attention import NAMES
from tsfmscope.models.registry import family_class
from tsfmscope.series.types import Windows

SHAPES = [(12, 12), (9, 14), (14, 9), (1, 5), (10, 10)]
Weights = tuple[np.ndarray, np.ndarray]
OPTIONS = Options(windows=6, context=32, horizon=8, seed=0, held_out=0, synthetic=1)


@pytest.fixture(scope="module")
def windows() -> Windows:
    """Six random walks, the first steps of two of them missing."""
    values = np.random.default_rng(0).normal(size=(6, 40)).cumsum(axis=1).astype(np.float32)
    values[:2, :13] = np.nan
    return Windows(values[:, :32], values[:, 32:], [f"s{i}" for i in range(6)], np.full(6, 32), "walks", "D", 1)


@pytest.fixture
def toy() -> Any:
    """Chronos-Bolt with one layer per stack, since LEMS takes a pass for every matrix."""
    config = TOYS["chronos-bolt"] | {"num_layers": 1, "num_decoder_layers": 1}
    return family_class("chronos-bolt").new(config, seed=0)


def calibrate(model: Any, windows: Windows) -> Calibration:
    """Return calibration data of these windows."""
    data = Calibration(model, OPTIONS)
    data.__dict__ |= {"tokens": [model.tokenize(windows)], "windows": [windows]}
    return data


def seeded_loss(model: Any, parts: tuple[torch.Tensor, ...]) -> torch.Tensor:
    torch.manual_seed(0)
    loss: torch.Tensor = model.loss(*parts)
    return loss


def trace(model: Any, linears: Sequence[Any], parts: Any) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Inputs of each matrix, gradients of the loss by zeros added to its outputs, and its `weight.grad`."""
    inputs, zeros = dict[int, torch.Tensor](), dict[int, torch.Tensor]()

    def add_zeros(module: Any, arguments: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
        inputs[id(module)] = arguments[0].detach().clone()
        zeros[id(module)] = torch.zeros_like(output, requires_grad=True)
        return output + zeros[id(module)]

    handles = [linear.register_forward_hook(add_zeros) for linear in linears]
    model.network.zero_grad(set_to_none=False)
    seeded_loss(model, parts).backward()
    for handle in handles:
        handle.remove()
    rows = [(inputs[id(one)], zeros[id(one)].grad, one.weight.grad) for one in linears]
    return [tuple(part.flatten(0, -2).double().numpy().copy() for part in one) for one in rows]  # type: ignore[misc]


def define_statistics(traced: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]], sizes: list[int]) -> LossStatistics:
    """Statistics of one matrix by their definitions, from the rows of each group and its number of windows."""
    xs, gs = [], []
    for (x, g, _), size in zip(traced, sizes, strict=True):
        x, g = x[g.any(axis=1)], g[g.any(axis=1)] * size
        norms = np.linalg.norm(g, axis=1)
        mean = norms.mean() if len(norms) else 0.0
        targets = np.minimum(np.maximum(norms, LEAST_NORM * mean), LARGEST_NORM * mean)
        xs.append(x)
        gs.append(g / norms[:, None] * targets[:, None])
    x, g = np.concatenate(xs), np.concatenate(gs)
    count = max(1, len(x))
    gradients = np.stack([gradient for *_, gradient in traced])
    return LossStatistics(x.T @ x / count, np.abs(x).sum(axis=0) / count, g.T @ g / count, gradients)


@pytest.mark.parametrize("group", [1, 4])
def test_statistics_are_those_of_their_definitions_and_the_model_stays_as_it_is(
    toy: Any, windows: Windows, group: int
) -> None:
    """Groups of four and of fewer windows: the loss of each is a mean over its windows."""
    before, parts = copy.deepcopy(toy.network.state_dict()), [windows, windows.take([0])]
    found = gather_gradients(toy, parts, group=group)
    assert all(torch.equal(tensor, before[name]) for name, tensor in toy.network.state_dict().items())
    points = [(layer.name, name) for layer in toy.attentions() for name in NAMES]
    linears = [layer.linear(name) for layer in toy.attentions() for name in NAMES]
    assert not any(linear._forward_hooks for linear in linears)
    batches = list(loss_batches(toy, parts, group))
    sizes = [len(batch[0]) for batch in batches]
    traced = [trace(toy, linears, batch) for batch in batches]
    for (layer, name), rows in zip(points, zip(*traced, strict=True), strict=True):
        expected = define_statistics(rows, sizes)
        for field in ("inputs", "magnitudes", "outputs", "gradients"):
            ours, theirs = getattr(found[layer][name], field), getattr(expected, field)
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4 * np.abs(theirs).max() + 1e-12, err_msg=field)


def draw_statistics(n_out: int, n_in: int, rows: int, seed: int) -> tuple[np.ndarray, LossStatistics]:
    """A matrix, and statistics of rows whose inputs and gradients have unequal directions."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, n_in)) @ (np.eye(n_in) + 0.3 * rng.normal(size=(n_in, n_in)))
    g = rng.normal(size=(rows, n_out)) @ (np.eye(n_out) + 0.3 * rng.normal(size=(n_out, n_out)))
    gradients = np.stack([g[one::3].T @ x[one::3] for one in range(3)]).astype(np.float32)
    statistics = LossStatistics(x.T @ x / rows, np.abs(x).mean(axis=0), g.T @ g / rows, gradients)
    return rng.normal(size=(n_out, n_in)), statistics


def published_weights(method: str, statistics: LossStatistics) -> Weights:
    """A and B of the table in `race_matrices`, from the papers' formulas."""
    n_out, n_in = statistics.gradients.shape[1:]
    fisher = np.mean([np.outer(one.T.ravel(), one.T.ravel()) for one in statistics.gradients.astype(float)], axis=0)
    if method == "asvd":
        return np.diag(statistics.magnitudes), np.eye(n_out)
    if method in ("svd-llm", "zs-svd"):
        return statistics.inputs, np.eye(n_out)
    if method == "fwsvd":
        return np.diag(np.diag(fisher).reshape(n_in, n_out).sum(axis=1)), np.eye(n_out)
    if method == "gfwsvd":
        left, right = nearest_kronecker(statistics.gradients.astype(float))
        return shrink_if_singular(right), shrink_if_singular(left)
    a, b = statistics.inputs, statistics.outputs
    return 0.9 * a + 0.1 * np.diag(a).mean() * np.eye(n_in), 0.7 * b + 0.3 * np.diag(b).mean() * np.eye(n_out)


def nearest_kronecker(gradients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Left and right factor from numpy's SVD of the rearranged Fisher information (Van Loan and Pitsianis)."""
    groups, n_out, n_in = gradients.shape
    fisher = np.einsum("kab,kcd->abcd", gradients, gradients) / groups
    u, values, vt = np.linalg.svd(fisher.transpose(0, 2, 1, 3).reshape(n_out**2, n_in**2))
    sign = np.sign(np.trace(u[:, 0].reshape(n_out, n_out)))
    scale = sign * np.sqrt(values[0])
    return scale * u[:, 0].reshape(n_out, n_out), scale * vt[0].reshape(n_in, n_in)


def shrink_if_singular(factor: np.ndarray) -> np.ndarray:
    if np.linalg.matrix_rank(factor) == len(factor):
        return factor
    return 0.8 * factor + 0.2 * np.diag(factor).mean() * np.eye(len(factor))


def whitened_svd(matrix: np.ndarray, weights: Weights, rank: int) -> np.ndarray:
    """S_B⁻¹ svd_r(S_B W S_A) S_A⁻¹ with Cholesky factors: A = S_A S_Aᵀ and B = S_Bᵀ S_B."""
    s_a, s_b = np.linalg.cholesky(weights[0]), np.linalg.cholesky(weights[1]).T
    u, values, vt = np.linalg.svd(s_b @ matrix @ s_a)
    left, right = np.linalg.solve(s_b, u[:, :rank] * values[:rank]), np.linalg.solve(s_a.T, vt[:rank].T).T
    product: np.ndarray = left @ right
    return product


def weighted_error(difference: np.ndarray, weights: Weights) -> float:
    """tr(B Δ A Δᵀ), the squared norm that a method minimises, without any square root."""
    a, b = weights
    return float(np.trace(b @ difference @ a @ difference.T))


@pytest.mark.parametrize("method", sorted(FACTORS))
@pytest.mark.parametrize(("n_out", "n_in"), [(6, 4), (4, 6), (7, 2)])
def test_a_method_equals_its_published_formula(method: str, n_out: int, n_in: int) -> None:
    """With seven outputs and two inputs, the left factor of three gradients is singular."""
    for seed in range(3):
        matrix, statistics = draw_statistics(n_out, n_in, 40, seed)
        weights = published_weights(method, statistics)
        factors = FACTORS[method](matrix, statistics)
        for rank in range(1, min(n_out, n_in)):
            ours = np.matmul(*factors.truncate(rank))
            np.testing.assert_allclose(ours, whitened_svd(matrix, weights, rank), rtol=0, atol=2e-5)
            error = weighted_error(matrix - ours, weights) / weighted_error(matrix, weights)
            assert factors.errors(6)[rank] == pytest.approx(error, rel=1e-4, abs=1e-9)


def test_a_fisher_information_that_is_a_kronecker_product_gives_its_factors() -> None:
    """Gradients of rank one, one for each pair of columns of two roots: their mean is exactly R ⊗ L."""
    rng = np.random.default_rng(0)
    left, right = (root @ root.T for root in (rng.normal(size=(4, 4)), rng.normal(size=(3, 3))))
    columns = [(a, b) for a in np.linalg.cholesky(left).T for b in np.linalg.cholesky(right).T]
    gradients = np.stack([np.outer(a, b) for a, b in columns]) * np.sqrt(len(columns))
    found = kronecker_factors(gradients)
    assert np.allclose(np.kron(found[1], found[0]), np.kron(right, left))


@pytest.mark.parametrize("method", sorted(FACTORS))
def test_statistics_of_zero_give_the_plain_svd(method: str) -> None:
    matrix, statistics = draw_statistics(4, 5, 9, 0)
    zeros = LossStatistics(*(np.zeros_like(part) for part in vars(statistics).values()))
    ours = np.matmul(*FACTORS[method](matrix, zeros).truncate(2))
    assert np.allclose(ours, np.matmul(*plain_factors(matrix).truncate(2)))
    assert FACTORS[method](np.zeros((4, 5)), statistics).errors(4).tolist() == [0.0] * 5


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
        found = loss_changes(candidate, statistics)
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


@pytest.mark.parametrize("share", [0.15, 0.25, 0.5, 0.9])
def test_one_share_gives_matrices_of_one_shape_its_rank(share: float) -> None:
    candidates = []
    for seed in range(4):
        factors = plain_factors(np.random.default_rng(seed).normal(size=(16, 12)))
        costs = np.minimum(28 * np.arange(1, 13), 192)
        layer: Any = SimpleNamespace(name="layer")
        candidates.append(Candidate(layer, ("q",), [factors], 12, costs, 192, [1.0]))
    assert one_share(candidates, int(share * 4 * 192)) == [int(share * 192 / 28)] * 4
    with pytest.raises(BudgetError, match="got 111, expected at least 112"):
        one_share(candidates, 111)


def harmonic_weight(layer: int, layers: int, alpha: float, gamma: float) -> float:
    """The sum of the public code, normalised by its first and its last value."""
    first, own, last = (sum(1 / (k + 1) ** alpha for k in range(at, layers)) for at in (0, layer, layers - 1))
    return 1 + gamma * (own - last) / (first - last)


@pytest.mark.parametrize(("alpha", "gamma"), [(0.0, 0.0), (0.0, 7.0), (3.0, 7.0), (1.2, 0.4)])
@pytest.mark.parametrize("layers", [2, 5, 24])
def test_depth_weights_are_those_of_the_published_sum(layers: int, alpha: float, gamma: float) -> None:
    expected = [harmonic_weight(layer, layers, alpha, gamma) for layer in range(layers)]
    found = depth_weights(layers, alpha, gamma)
    assert found == pytest.approx(expected)
    assert found[0] == pytest.approx(1 + gamma) and found[-1] == pytest.approx(1)


@pytest.mark.parametrize("method", sorted(MATRIX_METHODS))
def test_every_method_keeps_its_budget(
    toy: Any, windows: Windows, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(race_matrices, "TRIALS", 3)
    base, size = copy.deepcopy(toy), count_parameters(list(toy.attentions()))
    MATRIX_METHODS[method](toy, 0.3, calibrate(base, windows))
    assert 0.2 * size < count_parameters(list(toy.attentions())) <= 0.3 * size
    assert np.isfinite(toy.forecast(windows, seeds=[0] * 6).values).all()


@pytest.mark.parametrize("method", PROGRESSIVE)
def test_progressive_factors_of_a_layer_are_those_of_the_network_before_it(windows: Windows, method: str) -> None:
    """Twin: the matrices of each layer, made by the plain method in a network with the earlier ones replaced.

    The decoder has one token per window: few inputs leave some directions free, so errors are compared.
    """
    model = family_class("chronos-bolt").new(TOYS["chronos-bolt"], seed=0)
    base, data, plain = copy.deepcopy(model), calibrate(copy.deepcopy(model), windows), copy.deepcopy(model)
    MATRIX_METHODS[f"{method}, progressive"](model, 0.5, data)
    MATRIX_METHODS[method](plain, 0.5, data)
    differences = []
    for layer, found, other in zip(base.attentions(), model.attentions(), plain.attentions(), strict=True):
        statistics = gather_gradients(base, data.windows, group=len(windows))[layer.name]
        for name in NAMES:
            weight, new, once = (one.linear(name).weight.detach().double().numpy() for one in (layer, found, other))
            # Both have the same rank.
            rank = getattr(other.linear(name), "rank", min(weight.shape))
            assert getattr(found.linear(name), "rank", min(weight.shape)) == rank
            expected = np.matmul(*FACTORS[method](weight, statistics[name]).truncate(rank))
            weights = published_weights(method, statistics[name])
            error, least, whole = (weighted_error(weight - one, weights) for one in (new, expected, 0 * new))
            assert error == pytest.approx(least, rel=1e-3, abs=1e-5 * whole + 1e-30), (layer.name, name)
            differences.append(np.abs(new - once).max())
        for name in NAMES:
            with torch.no_grad():
                layer.linear(name).weight.copy_(found.linear(name).weight)
    assert max(differences) > 1e-3


def test_lems_errs_no_more_than_its_first_trial(toy: Any, windows: Windows, monkeypatch: pytest.MonkeyPatch) -> None:
    data, errors = calibrate(copy.deepcopy(toy), windows), []
    expected = last_states(toy, data.tokens[0])
    for trials in (4, 1):
        monkeypatch.setattr(race_matrices, "TRIALS", trials)
        model = copy.deepcopy(toy)
        MATRIX_METHODS["kfac-svd-lems"](model, 0.4, data)
        errors.append(np.square(window_errors(model, expected, data.tokens[0])).mean())
    assert errors[0] <= errors[1] * (1 + 1e-9)


def test_lems_refuses_layers_that_the_last_states_do_not_depend_on() -> None:
    model = family_class("visionts").new(VISIONTS, seed=1)
    with pytest.raises(ModelError, match="after its last hidden states: decoder"):
        MATRIX_METHODS["kfac-svd-lems"](model, 0.5, Calibration(model, OPTIONS))
