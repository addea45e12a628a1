"""Lemma 1: the Jacobian against its closed form, the three right sides against loops, and how often each fails."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsfmscope.geometry.jacobian import Bounds, attention, jacobian_bounds


def _closed(psi: np.ndarray, mixing: np.ndarray) -> np.ndarray:
    """Appendix B: J_ij = p_ij I + Ψᵀ Q^i (Ψ Λᵀ δ_ij + e_j ψ_iᵀ Λ), [N d, N d].

    The printed one has Λ and Λᵀ in each other's place; these are the derivatives of ψ_iᵀ Λ ψ_k.
    """
    n, width = psi.shape
    p = attention(psi, mixing)
    whole = np.zeros((n, width, n, width))
    for i in range(n):
        spread = np.diag(p[i]) - np.outer(p[i], p[i])
        for j in range(n):
            scores = np.zeros((n, width))  # derivative of ψ_iᵀ Λ ψ_k by ψ_j
            scores[j] += psi[i] @ mixing
            if i == j:
                scores += psi @ mixing.T
            whole[i, :, j] = p[i, j] * np.eye(width) + psi.T @ spread @ scores
    return whole.reshape(n * width, n * width)


def _loops(psi: np.ndarray, mixing: np.ndarray) -> tuple[float, float, float]:
    """The three right sides, term by term."""
    n, p = len(psi), attention(psi, mixing)
    strength = np.linalg.svd(mixing, compute_uv=False)[0]
    mu = [sum(p[i, q] * psi[q] for q in range(n)) for i in range(n)]
    first = strength * sum((p[i, i] + 0.5) * np.sum((psi[i] - mu[i]) ** 2) for i in range(n))
    cross = sum(p[i, j] * np.sum((psi[j] - mu[i]) ** 2) for i in range(n) for j in range(n) if i != j)
    norms = sum(np.sum(psi[j] ** 2) for j in range(n))
    printed = first + strength * cross + strength / 2 * norms
    every = sum(p[i, j] * np.sum((psi[j] - mu[i]) ** 2) for i in range(n) for j in range(n))
    return printed, printed + n, n + 1.5 * strength * every + 0.5 * strength * norms


def _instances(count: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Seeded states [N, d] and Λ [d, d] over the regimes that strain the bounds.

    N in 1..8, d in 1..6; scales of states and Λ from 1e-3 to 1e1.5; Λ of full or low rank, symmetric or not; a third
    of the instances with states near one point or one line, where the spread is small and the softmax saturates.
    """
    rng = np.random.default_rng([seed, 5])
    for at in range(count):
        n, width = rng.integers(1, 9), rng.integers(1, 7)
        states = rng.standard_normal((n, width)) * 10 ** rng.uniform(-3, 1.5)
        if at % 3 == 0:
            states = states * 1e-2 + rng.standard_normal(width) * rng.integers(2)
        rank = rng.integers(0, width + 1)
        query, key = rng.standard_normal((2, rank, width))
        mixing = (query.T @ (query if at % 2 else key)) * 10 ** rng.uniform(-3, 1.5)
        yield states, -mixing if at % 5 == 0 else mixing


@settings(deadline=None, max_examples=40)
@given(n=st.integers(1, 5), width=st.integers(1, 4), seed=st.integers(0, 2**32), scale=st.floats(0.01, 3))
def test_norm_and_right_sides_are_those_written_out(n: int, width: int, seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    psi, mixing = scale * rng.standard_normal((n, width)), scale * rng.standard_normal((width, width))
    got = jacobian_bounds(psi, mixing)
    assert got.norm == pytest.approx(np.linalg.norm(_closed(psi, mixing), 2), rel=1e-9)
    assert (got.printed, got.appendix, got.safe) == pytest.approx(_loops(psi, mixing), rel=1e-9)


def test_the_jacobian_is_that_of_finite_differences() -> None:
    rng = np.random.default_rng(0)
    psi, mixing, h = rng.standard_normal((3, 2)), rng.standard_normal((2, 2)), 1e-6
    columns = []
    for at in range(6):
        nudge = np.zeros(6)
        nudge[at] = h
        up, down = (attention(x, mixing) @ x for x in (psi + nudge.reshape(3, 2), psi - nudge.reshape(3, 2)))
        columns.append((up - down).ravel() / (2 * h))
    assert jacobian_bounds(psi, mixing).norm == pytest.approx(np.linalg.norm(np.stack(columns, 1), 2), rel=1e-7)


def test_the_printed_statement_fails_where_nothing_is_attended_to_and_the_proofs_n_mends_that() -> None:
    got = jacobian_bounds(np.random.default_rng(1).standard_normal((4, 3)), np.zeros((3, 3)))
    assert (got.norm, got.printed, got.appendix, got.safe) == pytest.approx((1.0, 0.0, 4.0, 4.0))
    assert got.violated == {"printed": True, "appendix": False, "safe": False}


def test_no_random_instance_passes_the_safe_right_side_and_many_pass_the_printed_one() -> None:
    found = [jacobian_bounds(*instance).violated for instance in _instances(1000, seed=0)]
    assert len(found) == 1000
    assert not any(one["safe"] for one in found)
    assert sum(one["printed"] for one in found) > 100


@pytest.mark.parametrize(
    ("bounds", "passed"),
    [
        (Bounds(1.0, 0.5, 1.0, 2.0), {"printed"}),
        (Bounds(1.0 + 1e-12, 1.0, 1.0, 1.0), set()),
        (Bounds(3.0, 1.0, 2.0, 2.9), {"printed", "appendix", "safe"}),
    ],
)
def test_a_right_side_is_passed_beyond_rounding_only(bounds: Bounds, passed: set[str]) -> None:
    assert {name for name, passes in bounds.violated.items() if passes} == passed


@pytest.mark.parametrize(
    ("psi", "mixing"),
    [
        (np.ones((1, 1)), np.ones((1, 1))),
        (np.zeros((4, 2)), np.eye(2)),
        (np.full((4, 2), 3.0), np.eye(2)),
        (1e3 * np.random.default_rng(2).standard_normal((4, 2)), 1e3 * np.eye(2)),  # one-hot attention
        (1e30 * np.eye(3), 1e-60 * np.eye(3)),
    ],
)
def test_hard_states_stay_finite_and_within_the_safe_right_side(psi: np.ndarray, mixing: np.ndarray) -> None:
    got = jacobian_bounds(psi, mixing)
    assert np.isfinite([got.norm, got.printed, got.appendix, got.safe]).all()
    assert not got.violated["safe"]


@pytest.mark.parametrize(
    ("psi", "mixing", "text"),
    [
        (np.ones((3, 2)), np.ones((3, 3)), r"interaction: got shape \(3, 3\)"),
        (np.ones(3), np.ones((3, 3)), "interaction: got shape"),
        (np.full((3, 2), np.nan), np.eye(2), "all finite"),
        (np.ones((3, 2)), np.full((2, 2), np.inf), "all finite"),
        (np.ones((1100, 2)), np.eye(2), "got 2200 values, expected 1 to 2048"),
        (np.ones((0, 2)), np.eye(2), "got 0 values"),
    ],
)
def test_what_cannot_be_taken_is_refused(psi: np.ndarray, mixing: np.ndarray, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        jacobian_bounds(psi, mixing)
