"""Coordinates on the leading plane against numpy's SVD."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsfmscope.ranks.plane import leading_plane


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 40), st.integers(2, 9), st.integers(0, 10**6))
def test_coordinates_are_left_singular_vectors_times_their_values(count: int, width: int, seed: int) -> None:
    rows = np.random.default_rng(seed).standard_normal((count, width)) * np.geomspace(9, 1, width)
    left, values, right = np.linalg.svd(rows, full_matrices=False)
    if min(np.diff(-values[:3])) < 1e-3:
        return  # nearly equal values: their directions are free
    signs = np.array([np.sign(direction[np.abs(direction).argmax()]) for direction in right[:2]])
    np.testing.assert_allclose(leading_plane(rows), left[:, :2] * values[:2] * signs, atol=1e-9)


def test_the_sign_does_not_depend_on_the_rows_order() -> None:
    rng = np.random.default_rng(0)
    rows, order = rng.standard_normal((500, 7)) * np.geomspace(9, 1, 7), rng.permutation(500)
    np.testing.assert_allclose(leading_plane(rows[order]), leading_plane(rows)[order], atol=1e-12)
    np.testing.assert_allclose(leading_plane(-rows), -leading_plane(rows), atol=1e-12)


def test_points_of_a_plane_keep_their_distances() -> None:
    rng = np.random.default_rng(0)
    flat, axes = rng.standard_normal((50, 2)), np.linalg.qr(rng.standard_normal((9, 2)))[0]
    found = leading_plane(flat @ axes.T)
    np.testing.assert_allclose(found @ found.T, flat @ flat.T, atol=1e-12)


HARD = {
    "one row": (np.array([[3.0, 4.0]]), [[5.0, 0.0]]),
    "one column": (np.array([[3.0], [-4.0]]), [[3.0, 0.0], [-4.0, 0.0]]),
    "constant": (np.ones((3, 4)), [[2.0, 0.0]] * 3),
    "zero": (np.zeros((3, 4)), [[0.0, 0.0]] * 3),
    "huge": (np.array([[3e150, 4e150]]), [[5e150, 0.0]]),
    "tiny": (np.array([[3e-150, 4e-150]]), [[5e-150, 0.0]]),
    "no rows": (np.empty((0, 4)), np.empty((0, 2))),
}


@pytest.mark.parametrize("name", HARD)
def test_rows_of_rank_one_lie_on_a_line(name: str) -> None:
    rows, expected = HARD[name]
    np.testing.assert_allclose(leading_plane(rows), expected, rtol=1e-12, atol=1e-12 * np.abs(rows).max(initial=1e-300))
