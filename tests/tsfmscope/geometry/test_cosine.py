"""Cosine: closed forms against loops, invariants, hand-worked cases."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsfmscope.geometry.cosine import inter_token_cosine, unit_rows


def _slow(states: np.ndarray, types: np.ndarray) -> tuple[float, float]:
    """Eq. 1 as printed: pairs of different types, each pair the mean over its instances; and over all row pairs."""
    rows = np.asarray(states, dtype=np.float64)
    rows, types = rows[rows.any(axis=1)], types[rows.any(axis=1)]

    def cosine(i: int, j: int) -> float:
        return float(rows[i] @ rows[j] / np.linalg.norm(rows[i]) / np.linalg.norm(rows[j]))

    by_type = [np.flatnonzero(types == kind) for kind in np.unique(types)]
    pairs = [
        np.mean([cosine(i, j) for i in first for j in second]) for first, second in itertools.combinations(by_type, 2)
    ]
    occurrences = [cosine(i, j) for i, j in itertools.combinations(range(len(rows)), 2) if types[i] != types[j]]
    return float(np.mean(pairs)), float(np.mean(occurrences))


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(4, 24), width=st.integers(1, 6), kinds=st.integers(2, 9))
def test_closed_forms_equal_the_loop_over_pairs(seed: int, n: int, width: int, kinds: int) -> None:
    rng = np.random.default_rng(seed)
    states = rng.standard_normal((n, width)) + rng.standard_normal(width)
    states[rng.random(n) < 0.1] = 0
    states[-2:] = 1.0  # two rows that are surely not zero
    types = rng.integers(0, kinds, n)
    types[-2:] = [0, 1]
    got = inter_token_cosine(states, types)
    assert (got.zeta, got.zeta_token) == pytest.approx(_slow(states, types), abs=1e-12)


def test_one_random_instance_a_type_has_zeta_as_its_expectation() -> None:
    rng = np.random.default_rng(0)
    types = rng.integers(0, 6, 40)
    states = rng.standard_normal((40, 3)) + 0.5
    draws = []
    for _ in range(4000):
        chosen = [rng.choice(np.flatnonzero(types == kind)) for kind in np.unique(types)]
        draws.append(inter_token_cosine(states[chosen]).zeta)
    zeta = inter_token_cosine(states, types).zeta
    assert zeta == pytest.approx(np.mean(draws), abs=5 * np.std(draws) / np.sqrt(len(draws)))


@pytest.mark.parametrize(
    ("states", "types", "zeta", "zeta_token"),
    [
        ([[1, 0], [0, 2]], None, 0.0, 0.0),
        ([[1, 0], [-3, 0]], None, -1.0, -1.0),
        ([[2, 2], [5, 5], [1, 1]], None, 1.0, 1.0),
        ([[1, 0], [0, 1], [1, 1]], None, 2 * np.sqrt(0.5) / 3, 2 * np.sqrt(0.5) / 3),
        # type 0 is (1,0) and (0,1), type 1 is (1,0), type 2 is (0,1): pairs 1/2, 1/2, 0; occurrences 2 of 5
        ([[1, 0], [0, 1], [1, 0], [0, 1]], [0, 0, 1, 2], 1 / 3, 0.4),
        ([[1, 0], [1, 0], [1, 0], [0, 1]], [7, 7, 7, 3], 0.0, 0.0),
        ([[1, 0], [0, 0], [1, 0]], [4, 5, 6], 1.0, 1.0),
    ],
)
def test_hand_worked_cases(states: list, types: list | None, zeta: float, zeta_token: float) -> None:
    got = inter_token_cosine(np.array(states, dtype=float), None if types is None else np.array(types))
    assert (got.zeta, got.zeta_token) == pytest.approx((zeta, zeta_token), abs=1e-15)


def test_rows_without_types_and_rows_each_of_its_own_type_agree() -> None:
    states = np.random.default_rng(1).standard_normal((50, 5)).astype(np.float32)
    assert inter_token_cosine(states) == inter_token_cosine(states, np.arange(50))


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 7.0, 1e30])
def test_cosine_is_free_of_scale_row_by_row(scale: float) -> None:
    rng = np.random.default_rng(2)
    states, types = rng.standard_normal((60, 4)) + 1, rng.integers(0, 9, 60)
    factors = scale * rng.uniform(1, 5, (60, 1))
    scaled = inter_token_cosine(states * factors, types)
    plain = inter_token_cosine(states, types)
    assert (scaled.zeta, scaled.zeta_token) == pytest.approx((plain.zeta, plain.zeta_token), abs=1e-13)


def test_cosine_is_free_of_rotation_and_row_order() -> None:
    rng = np.random.default_rng(3)
    states, types = rng.standard_normal((60, 4)) + 1, rng.integers(0, 9, 60)
    turn, order = np.linalg.qr(rng.standard_normal((4, 4)))[0], rng.permutation(60)
    turned, plain = inter_token_cosine((states @ turn)[order], types[order]), inter_token_cosine(states, types)
    assert (turned.zeta, turned.zeta_token) == pytest.approx((plain.zeta, plain.zeta_token), abs=1e-13)


@pytest.mark.parametrize("value", [1e200, 1e-200])
def test_squares_neither_overflow_nor_vanish(value: float) -> None:
    assert inter_token_cosine(np.array([[value, 0], [value, value]])).zeta == pytest.approx(np.sqrt(0.5))


def test_float16_states_are_summed_in_float64() -> None:
    states = np.full((5000, 3), 6e4, dtype=np.float16)
    assert inter_token_cosine(states).zeta == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(
    ("states", "types", "n_types", "n_zero"),
    [
        (np.ones((1, 3)), None, 1, 0),
        (np.ones((4, 3)), np.zeros(4, int), 1, 0),
        (np.zeros((4, 3)), None, 0, 4),
        (np.zeros((4, 3)), np.arange(4), 0, 4),
        (np.ones((0, 3)), None, 0, 0),
        (np.array([[0.0, 0], [1, 2]]), np.arange(2), 1, 1),
    ],
)
def test_fewer_than_two_types_have_no_cosine(states, types, n_types: int, n_zero: int) -> None:
    got = inter_token_cosine(states, types)
    assert (got.zeta, got.zeta_token, got.n_types, got.n_zero) == (None, None, n_types, n_zero)


def test_a_type_too_few_is_refused() -> None:
    with pytest.raises(ValueError, match=r"types: got 2, expected one per row, 3"):
        inter_token_cosine(np.ones((3, 2)), np.arange(2))


def test_unit_rows_have_norm_one_and_leave_zero_rows_out() -> None:
    units, kept = unit_rows(np.array([[3.0, 4.0], [0.0, 0.0], [1e-300, 0.0]]))
    np.testing.assert_allclose(units, [[0.6, 0.8], [1.0, 0.0]], rtol=1e-15)
    assert kept.tolist() == [True, False, True]
