"""Spectral alignment of heads against projections written out, and against chance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsfmscope.geometry.alignment import Axes, chance_overlap, head_alignments, interaction, spectral_alignment


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


def test_a_head_that_reads_the_weakest_directions_only_scores_0() -> None:
    _, _, states = _case(3)
    weakest = Axes.of(states).directions[:, -3:].T
    got = spectral_alignment(weakest, weakest, states)
    assert (got.query, got.key) == pytest.approx((0.0, 0.0), abs=1e-12)


def test_query_and_key_sides_are_told_apart() -> None:
    _, _, states = _case(4)
    directions = Axes.of(states).directions
    got = spectral_alignment(directions[:, :3].T, directions[:, -3:].T, states)
    assert (got.query, got.key) == (pytest.approx(1.0), pytest.approx(0.0, abs=1e-12))


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
