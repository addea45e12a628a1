"""Spectral alignment of heads against projections written out, and against chance."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tsfmscope.geometry.heads import (
    Axes,
    attention,
    chance_overlap,
    head_alignments,
    interaction,
    jacobian_bounds,
    log_partition,
    partition_spread,
    spectral_alignment,
)


def _projection(columns: np.ndarray) -> np.ndarray:
    return columns @ np.linalg.pinv(columns)


def _slow(matrix: np.ndarray, states: np.ndarray, m: int) -> float:
    """‖P_W P_C‖²_F / m from the projections themselves: row space of W, top m right singular vectors of the states."""
    top = np.linalg.svd(states, full_matrices=False)[2][:m].T
    return float(np.linalg.norm(_projection(matrix.T) @ _projection(top)) ** 2 / m)


def _case(seed: int, n: int = 200, width: int = 9, m: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    states = rng.standard_normal((n, width)) * np.arange(1, width + 1) + rng.standard_normal(width) * 4
    return rng.standard_normal((m, width)), rng.standard_normal((m, width)), states


@pytest.mark.parametrize("n", [200, 5, 4])
@pytest.mark.parametrize("centred", [True, False])
def test_overlaps_are_those_of_the_projections(centred: bool, n: int) -> None:
    query, key, states = _case(0, n)
    got = spectral_alignment(query, key, Axes.of(states, centred=centred))
    seen = states - states.mean(axis=0) if centred else states
    assert (got.m, got.chance) == (3, 3 / 9)
    assert got.query == pytest.approx(_slow(query, seen, 3), abs=1e-10)
    assert got.key == pytest.approx(_slow(key, seen, 3), abs=1e-10)


def test_the_inverse_cosine_is_that_of_the_diagonal_written_out() -> None:
    query, key, states = _case(1)
    axes = Axes.of(states)
    top = axes.directions[:, :3]
    diagonal, inverse = np.diag(top.T @ query.T @ key @ top), 1 / axes.eigenvalues[:3]
    expected = diagonal @ inverse / np.linalg.norm(diagonal) / np.linalg.norm(inverse)
    assert spectral_alignment(query, key, states).inverse_cosine == pytest.approx(expected, abs=1e-10)


def test_the_optimum_of_theorem_2_scores_1_on_both_sides_and_against_1_over_lambda() -> None:
    _, _, states = _case(2)
    axes = Axes.of(states)
    root = axes.directions[:, :4] / np.sqrt(axes.eigenvalues[:4])  # Λ* = root rootᵀ
    got = spectral_alignment(root.T, root.T, states)
    assert (got.m, got.query, got.key, got.inverse_cosine) == (4, *[pytest.approx(1.0, abs=1e-9)] * 3)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 6))
def test_overlaps_lie_in_0_to_1_and_are_free_of_scale_rotation_and_the_heads_own_basis(seed, m, width) -> None:
    m = min(m, width)
    rng = np.random.default_rng(seed)
    query, key, states = _case(seed, 40, width, m)
    turn = np.linalg.qr(rng.standard_normal((width, width)))[0]
    basis = rng.standard_normal((m, m)) + 3 * np.eye(m)
    plain = spectral_alignment(query, key, states)
    moved = spectral_alignment(5 * query @ turn, key @ turn / 3, 1e3 * states @ turn)
    mixed = spectral_alignment(basis @ query, np.linalg.inv(basis).T @ key, states)  # the same Λ
    for one in (moved, mixed):
        assert (one.query, one.key) == pytest.approx((plain.query, plain.key), abs=1e-6)
        assert one.inverse_cosine == pytest.approx(plain.inverse_cosine, abs=1e-6)
    assert 0 <= plain.query <= 1 and 0 <= plain.key <= 1


@pytest.mark.parametrize(("m", "width"), [(1, 4), (3, 9), (8, 16), (5, 5)])
def test_the_chance_level_is_that_of_random_spaces(m: int, width: int) -> None:
    rng = np.random.default_rng(5)
    frames = np.linalg.qr(rng.standard_normal((4000, width, m)))[0]
    overlaps = np.square(frames[:, :m]).sum(axis=(1, 2)) / m  # with the first m axes
    mean, sd = chance_overlap(m, width)
    assert overlaps.mean() == pytest.approx(mean, abs=4 * sd / np.sqrt(4000) + 1e-12)
    assert overlaps.std() == pytest.approx(sd, rel=0.06, abs=1e-12)


def test_m_is_the_rank_of_the_product_and_not_the_heads_width() -> None:
    query, key, states = _case(6, m=4)
    query[3] = query[2]  # rank 3
    key[0] = 0.0
    left, values, right = interaction(query, key)
    assert len(values) == np.linalg.matrix_rank(query.T @ key)
    np.testing.assert_allclose(left * values @ right.T, query.T @ key, atol=1e-12)
    assert spectral_alignment(query, key, states).m == len(values)


def test_a_head_wider_than_the_states_sees_all_of_them() -> None:
    query, key, states = _case(7, width=3, m=8)
    got = spectral_alignment(query, key, states)
    assert (got.m, got.chance, got.chance_sd) == (3, 1.0, 0.0)
    assert (got.query, got.key) == pytest.approx((1.0, 1.0))


HARD = {
    "constant states": np.full((50, 9), 0.1),
    "all zero": np.zeros((50, 9)),
    "one token": np.ones((1, 9)),
    "no token": np.zeros((0, 9)),
    "two directions": np.outer(np.arange(50.0), np.ones(9)) + np.outer(np.arange(50) % 2, np.eye(9)[0]),
}


@pytest.mark.parametrize("name", HARD)
def test_states_with_fewer_directions_than_the_head_have_no_overlap(name: str) -> None:
    query, key, _ = _case(8)
    got = spectral_alignment(query, key, HARD[name])
    assert (got.m, got.query, got.key, got.inverse_cosine) == (3, None, None, None)


def test_a_head_of_zeros_has_rank_0_and_no_overlap() -> None:
    _, key, states = _case(9)
    got = spectral_alignment(np.zeros_like(key), key, states)
    assert (got.m, got.chance, got.query) == (0, 0.0, None)


@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_huge_and_tiny_states_give_finite_overlaps(scale: float) -> None:
    query, key, states = _case(10)
    got, plain = (spectral_alignment(query, key, factor * states) for factor in (scale, 1.0))
    assert (got.query, got.inverse_cosine) == pytest.approx((plain.query, plain.inverse_cosine), abs=1e-9)


def test_heads_of_a_layer_are_split_in_order_with_centred_and_uncentred_beside() -> None:
    rng = np.random.default_rng(11)
    query, key = rng.standard_normal((2, 8, 9))
    states = _case(11)[2]
    rows = list(head_alignments(query, key, 4, states))
    assert [row["head"] for row in rows] == [0, 1, 2, 3]
    centred = spectral_alignment(query[4:6], key[4:6], states)
    plain = spectral_alignment(query[4:6], key[4:6], Axes.of(states, centred=False))
    assert (rows[2]["query"], rows[2]["key"], rows[2]["m"]) == (centred.query, centred.key, 2)
    assert (rows[2]["query_uncentred"], rows[2]["inverse_cosine_uncentred"]) == (plain.query, plain.inverse_cosine)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: spectral_alignment(np.ones((2, 4)), np.ones((2, 5)), np.ones((9, 4))), r"key: got shape \(2, 5\)"),
        (lambda: spectral_alignment(np.ones((2, 4)), np.ones((3, 4)), np.ones((9, 4))), r"key: got shape \(3, 4\)"),
        (lambda: spectral_alignment(np.ones((2, 4)), np.ones((2, 4)), np.full((9, 4), np.nan)), "expected finite"),
        (lambda: list(head_alignments(np.ones((6, 4)), np.ones((6, 4)), 4, np.ones((9, 4)))), "heads: got 4"),
    ],
)
def test_wrong_shapes_and_nan_are_refused(call, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call()


def test_rounding_in_the_states_own_type_is_no_direction() -> None:
    rng = np.random.default_rng(12)
    equal = np.full((50, 9), 3.0) * (1 + 1e-7 * rng.standard_normal((50, 9)))
    assert Axes.of(equal.astype(np.float32)).rank == 0
    assert Axes.of(equal.astype(np.float32), centred=False).rank == 1
    assert Axes.of(equal).rank == 9  # float64 tells these rows apart
    spread = rng.standard_normal((50, 9)).astype(np.float32)
    assert Axes.of(spread).rank == Axes.of(spread.astype(np.float64)).rank == 9


def test_log_partition_is_torchs_logsumexp() -> None:
    logits = np.random.default_rng(0).standard_normal((5, 7, 30)) * 20
    expected = torch.logsumexp(torch.from_numpy(logits), dim=-1).numpy()
    np.testing.assert_allclose(log_partition(logits), expected, rtol=1e-14)


def test_log_partition_by_hand() -> None:
    got = log_partition(np.array([[0.0, np.log(2), np.log(5)], [-np.inf, 3.0, -np.inf], [1e30, 1e30, -1e30]]))
    assert got == pytest.approx([np.log(8), 3.0, 1e30])


@given(st.floats(-1e6, 1e6))
def test_a_shift_of_the_logits_shifts_log_z_and_leaves_its_spread(shift: float) -> None:
    logits = np.random.default_rng(1).standard_normal((20, 11))
    plain, moved = partition_spread(log_partition(logits)), partition_spread(log_partition(logits + shift))
    assert moved.mean == pytest.approx(plain.mean + shift, abs=1e-7)
    assert (moved.sd, moved.range) == pytest.approx((plain.sd, plain.range), abs=1e-7)


def test_the_spread_is_that_of_all_positions() -> None:
    values = np.array([[1.0, 2.0], [4.0, 9.0]])
    got = partition_spread(values)
    assert (got.n, got.mean, got.low, got.high, got.range) == (4, 4.0, 1.0, 9.0, 8.0)
    assert got.sd == pytest.approx(np.std(values, ddof=1))


def test_one_position_has_no_deviation_and_none_has_nothing() -> None:
    assert partition_spread(np.array([3.0])) == (one := partition_spread(np.array(3.0)))
    assert (one.n, one.mean, one.sd, one.range) == (1, 3.0, None, 0.0)
    none = partition_spread(log_partition(np.zeros((0, 5))))
    assert (none.n, none.mean, none.sd, none.low, none.high, none.range) == (0, None, None, None, None, None)


@pytest.mark.parametrize("logits", [np.array([[0.0, np.nan]]), np.array([[np.inf, 0.0]])])
def test_logits_that_are_not_numbers_are_refused(logits: np.ndarray) -> None:
    with pytest.raises(ValueError, match="expected values below infinity and no NaN"):
        log_partition(logits)


@pytest.mark.parametrize("logits", [np.full((2, 3), -np.inf), np.zeros((2, 0))])
def test_a_position_without_any_id_is_refused(logits: np.ndarray) -> None:
    with pytest.raises(ValueError, match="at least one id above -inf at every position"):
        log_partition(logits)


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
    assert got.norm > got.printed


def test_no_random_instance_passes_the_safe_right_side_and_many_pass_the_printed_one() -> None:
    found = [jacobian_bounds(*instance) for instance in _instances(1000, seed=0)]
    assert len(found) == 1000
    assert not any(one.norm > one.safe * (1 + 1e-9) for one in found)
    assert sum(one.norm > one.printed * (1 + 1e-9) for one in found) > 100


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
    assert got.norm <= got.safe * (1 + 1e-9)


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
