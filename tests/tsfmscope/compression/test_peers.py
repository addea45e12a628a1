"""Published methods against the formulas of their papers, and against any other approximation of the rank."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsfmscope.compression.loss_statistics import LossStatistics
from tsfmscope.compression.matrices import plain_factors, two_sided_factors
from tsfmscope.compression.methods import peers

METHODS = {"asvd": peers.asvd, "svd-llm": peers.svd_llm, "fwsvd": peers.fwsvd, "gfwsvd": peers.gfwsvd}
METHODS |= {"kfac-svd": peers.kfac}
SIZES = st.integers(1, 6)
Weights = tuple[np.ndarray, np.ndarray]


def draw_statistics(n_out: int, n_in: int, rows: int, seed: int) -> tuple[np.ndarray, LossStatistics]:
    """A matrix, and statistics of rows whose inputs and gradients have unequal directions."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, n_in)) @ (np.eye(n_in) + 0.3 * rng.normal(size=(n_in, n_in)))
    g = rng.normal(size=(rows, n_out)) @ (np.eye(n_out) + 0.3 * rng.normal(size=(n_out, n_out)))
    gradients = np.stack([g[one::3].T @ x[one::3] for one in range(3)]).astype(np.float32)
    statistics = LossStatistics(x.T @ x / rows, np.abs(x).mean(axis=0), g.T @ g / rows, gradients)
    return rng.normal(size=(n_out, n_in)), statistics


def published_weights(method: str, statistics: LossStatistics) -> Weights:
    """A and B of the table in `peers`, from the papers' formulas."""
    n_out, n_in = statistics.gradients.shape[1:]
    fisher = np.mean([np.outer(one.T.ravel(), one.T.ravel()) for one in statistics.gradients.astype(float)], axis=0)
    if method == "asvd":
        return np.diag(statistics.magnitudes), np.eye(n_out)
    if method == "svd-llm":
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


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize(("n_out", "n_in"), [(6, 4), (4, 6), (7, 2)])
def test_a_method_equals_its_published_formula(method: str, n_out: int, n_in: int) -> None:
    """With seven outputs and two inputs, the left factor of three gradients is singular."""
    for seed in range(3):
        matrix, statistics = draw_statistics(n_out, n_in, 40, seed)
        weights = published_weights(method, statistics)
        factors = METHODS[method](matrix, statistics)
        for rank in range(1, min(n_out, n_in)):
            ours = np.matmul(*factors.truncate(rank))
            np.testing.assert_allclose(ours, whitened_svd(matrix, weights, rank), rtol=0, atol=2e-5)
            error = weighted_error(matrix - ours, weights) / weighted_error(matrix, weights)
            assert factors.errors(6)[rank] == pytest.approx(error, rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_no_small_change_of_the_factors_has_a_smaller_weighted_error(method: str) -> None:
    matrix, statistics = draw_statistics(5, 6, 40, 1)
    weights, rng = published_weights(method, statistics), np.random.default_rng(2)
    left, right = METHODS[method](matrix, statistics).truncate(2)
    least = weighted_error(matrix - left @ right, weights)
    for scale in (1e-3, 1e-2, 0.1, 1):
        for _ in range(20):
            other = (left + scale * rng.normal(size=left.shape)) @ (right + scale * rng.normal(size=right.shape))
            assert weighted_error(matrix - other, weights) >= least * (1 - 1e-9)


@settings(max_examples=20)
@given(SIZES, SIZES, SIZES, SIZES, st.integers(0, 99))
def test_two_sided_factors_have_the_least_error_with_any_inner_weights(
    n_out: int, n_in: int, rows: int, rank: int, seed: int
) -> None:
    """Fewer inputs than columns among them: only the weights of the outputs are inverted."""
    rng = np.random.default_rng(seed)
    matrix, outputs = rng.normal(size=(n_out, n_in)), rng.normal(size=(n_out, n_out)) + 3 * np.eye(n_out)
    inputs = rng.normal(size=(rows, n_in))
    inputs = np.linalg.qr(inputs, mode="complete")[1][:n_in] if rows > n_in else inputs
    factors, whole = two_sided_factors(matrix, outputs, inputs), outputs @ matrix @ inputs.T
    values = np.linalg.svd(whole, compute_uv=False)
    cut = np.matmul(*factors.truncate(rank))
    error = np.linalg.norm(whole - outputs @ cut @ inputs.T)
    assert error == pytest.approx(np.linalg.norm(values[rank:]), rel=1e-6, abs=1e-9)
    assert np.linalg.matrix_rank(cut) <= rank
    assert np.allclose(np.matmul(*factors.truncate(n_out)), matrix)


@settings(max_examples=20)
@given(SIZES, SIZES, st.integers(1, 5), st.integers(0, 99))
def test_kronecker_factors_are_the_leading_pair_of_the_rearranged_matrix(
    n_out: int, n_in: int, groups: int, seed: int
) -> None:
    gradients = np.random.default_rng(seed).normal(size=(groups, n_out, n_in))
    left, right = peers.kronecker_factors(gradients)
    fisher = np.mean([np.outer(one.T.ravel(), one.T.ravel()) for one in gradients], axis=0)
    rearranged = np.einsum("kab,kcd->acbd", gradients, gradients).reshape(n_out**2, n_in**2) / groups
    values = np.linalg.svd(rearranged, compute_uv=False)
    least = np.sqrt(np.square(values[1:]).sum())
    assert np.linalg.norm(fisher - np.kron(right, left)) == pytest.approx(least, rel=1e-3, abs=1e-6 * values[0])
    assert np.linalg.norm(left) == pytest.approx(np.linalg.norm(right))
    assert min(np.linalg.eigvalsh(left)[0], np.linalg.eigvalsh(right)[0]) >= -1e-9 * values[0]


def test_a_fisher_information_that_is_a_kronecker_product_gives_its_factors() -> None:
    """Gradients of rank one, one for each pair of columns of two roots: their mean is exactly R ⊗ L."""
    rng = np.random.default_rng(0)
    left, right = (root @ root.T for root in (rng.normal(size=(4, 4)), rng.normal(size=(3, 3))))
    columns = [(a, b) for a in np.linalg.cholesky(left).T for b in np.linalg.cholesky(right).T]
    gradients = np.stack([np.outer(a, b) for a, b in columns]) * np.sqrt(len(columns))
    found = peers.kronecker_factors(gradients)
    assert np.allclose(np.kron(found[1], found[0]), np.kron(right, left))


@pytest.mark.parametrize("method", sorted(METHODS))
def test_statistics_of_zero_give_the_plain_svd(method: str) -> None:
    matrix, statistics = draw_statistics(4, 5, 9, 0)
    zeros = LossStatistics(*(np.zeros_like(part) for part in vars(statistics).values()))
    ours = np.matmul(*METHODS[method](matrix, zeros).truncate(2))
    assert np.allclose(ours, np.matmul(*plain_factors(matrix).truncate(2)))
    assert METHODS[method](np.zeros((4, 5)), statistics).errors(4).tolist() == [0.0] * 5


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("rows", [1, 3])
def test_few_rows_give_finite_factors_whose_full_rank_is_the_matrix(method: str, rows: int) -> None:
    """Moments of rank `rows`; SVD-LLM, whose weights are the inputs' alone, then needs no larger rank."""
    matrix, statistics = draw_statistics(5, 6, rows, 0)
    factors = METHODS[method](matrix, statistics)
    assert np.isfinite(factors.left).all() and np.isfinite(factors.right).all()
    assert np.allclose(np.matmul(*factors.truncate(5)), matrix, atol=1e-6)
    if method == "svd-llm":
        assert weighted_error(matrix - np.matmul(*factors.truncate(rows)), (statistics.inputs, np.eye(5))) < 1e-12


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("shape", [(1, 6), (6, 1), (1, 1)])
def test_one_row_or_one_column_is_its_own_approximation(method: str, shape: tuple[int, int]) -> None:
    matrix, statistics = draw_statistics(*shape, 9, 0)
    assert np.allclose(np.matmul(*METHODS[method](matrix, statistics).truncate(1)), matrix)


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_scales_of_inputs_and_gradients_change_nothing(method: str, scale: float) -> None:
    matrix, statistics = draw_statistics(5, 6, 40, 0)
    changed: Any = replace(
        statistics,
        inputs=statistics.inputs * scale**2,
        magnitudes=statistics.magnitudes * scale,
        outputs=statistics.outputs / scale**2,
        gradients=statistics.gradients * np.float32(scale),
    )
    factors, others = METHODS[method](matrix, statistics), METHODS[method](matrix, changed)
    for rank in range(1, 6):
        assert np.allclose(np.matmul(*factors.truncate(rank)), np.matmul(*others.truncate(rank)), atol=1e-5)
