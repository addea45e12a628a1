"""Angles of lines against arccos where it is exact enough, and against constructions where it is not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsfmscope.ranks.angles import line_angles

HALF = np.pi / 2


def test_angles_by_hand() -> None:
    found = line_angles(np.array([[1.0, 0], [0, 2], [-3, 3], [-5, 0]]))
    expected = [
        [0, HALF, HALF / 2, 0],
        [HALF, 0, HALF / 2, HALF],
        [HALF / 2, HALF / 2, 0, HALF / 2],
        [0, HALF, HALF / 2, 0],
    ]
    np.testing.assert_allclose(found, expected, atol=1e-15)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(1, 9), st.integers(0, 10**6))
def test_angles_are_arccos_of_the_absolute_cosine(count: int, width: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).standard_normal((count, width))
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    found = line_angles(vectors)
    np.testing.assert_allclose(found, np.arccos(np.minimum(np.abs(units @ units.T), 1)), atol=1e-7)
    assert (found == found.T).all()
    assert (np.diag(found) == 0).all()
    assert found.min() >= 0 and found.max() <= HALF


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 9), st.integers(0, 10**6), st.integers(-900, 900))
def test_neither_sign_nor_length_nor_rotation_nor_order_matters(width: int, seed: int, power: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((6, width))
    rotation, order = np.linalg.qr(rng.standard_normal((width, width)))[0], rng.permutation(6)
    lengths = np.ldexp(rng.choice([-1.0, 1.0], 6), rng.integers(min(power, 0), max(power, 0) + 1, 6))
    changed = line_angles((vectors @ rotation * lengths[:, None])[order])
    np.testing.assert_allclose(changed, line_angles(vectors)[np.ix_(order, order)], atol=1e-14)


@pytest.mark.parametrize("angle", [1e-3, 1e-7, 1e-8, 1e-9, 1e-12, HALF - 1e-9, HALF])
@pytest.mark.parametrize("sign", [1, -1])
def test_small_angles_keep_their_digits_where_arccos_has_none(angle: float, sign: int) -> None:
    pair = np.array([[1.0, 0.0], [sign * np.cos(angle), sign * np.sin(angle)]])
    assert line_angles(pair)[0, 1] == pytest.approx(angle, rel=1e-6, abs=1e-15)


@pytest.mark.parametrize("scale", [1e300, 1e-300, 5e-324])
def test_huge_and_tiny_vectors_have_their_angles(scale: float) -> None:
    assert line_angles(scale * np.array([[1.0, 0], [1, 1]]))[0, 1] == pytest.approx(HALF / 2)


def test_a_zero_vector_spans_no_line() -> None:
    found = line_angles(np.array([[1.0, 0], [0, 0], [0, 1]]))
    assert np.isnan(found[1]).all() and np.isnan(found[:, 1]).all()
    assert found[0, 2] == HALF and found[0, 0] == 0


def test_many_gaussian_vectors_of_high_dimension_are_nearly_orthogonal() -> None:
    """Fig. 3b: E cos² = 1/d, so that angles stay within a few d^-1/2 of π/2."""
    for dimension in (16, 768):
        found = line_angles(np.random.default_rng(0).standard_normal((64, dimension)))
        off = np.cos(found[np.triu_indices(64, 1)])
        assert np.square(off).mean() == pytest.approx(1 / dimension, rel=0.1)


def test_none_have_no_angles() -> None:
    assert line_angles(np.empty((0, 3))).shape == (0, 0)


@pytest.mark.parametrize("vectors", [np.ones(3), np.array([[np.nan, 1]]), np.array([[np.inf, 1]])])
def test_what_is_no_vector_is_refused(vectors: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"vectors: expected finite \[vector, width\]"):
        line_angles(vectors)
