"""Ranks by hand and by a loop, and the rounding floor against rounding that was measured."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tsfmscope.ranks.spectrum import (
    ARITHMETIC,
    leading_plane,
    line_angles,
    matrix_floor,
    numerical_rank,
    rounding_floor,
    singular_values,
)

PUBLISHED = [0, 1e-3, 10**-2.5, 1e-2, 10**-1.5, 1e-1, 10**-0.75, 10**-0.5]  # the eight of rank_structure.md Table 2
VALUES = st.lists(st.floats(0, 1e300), min_size=1, max_size=30)


def test_a_rank_by_hand() -> None:
    values = np.array([10.0, 5.0, 1.0, 0.1, 0.0])
    assert [numerical_rank(values, e) for e in (0, 1e-3, 1e-2, 0.1, 0.5, 1.0)] == [4, 4, 3, 2, 1, 0]
    assert numerical_rank(np.empty(0), 0.1) == numerical_rank(np.zeros(5), 0.0) == 0


@given(VALUES)
def test_a_rank_is_what_a_loop_counts_never_grows_with_the_tolerance_and_has_no_scale(values: list[float]) -> None:
    ranks = [numerical_rank(np.array(values), e) for e in PUBLISHED]
    assert ranks == [sum(value / max(values) > e for value in values) if max(values) else 0 for e in PUBLISHED]
    assert ranks == sorted(ranks, reverse=True)
    assert ranks == [numerical_rank(np.array(values[::-1]), e) for e in PUBLISHED]
    halved = [numerical_rank(np.ldexp(values, -1), e) for e in PUBLISHED[1:]]
    assert halved == ranks[1:] or min(values) < 1e-307


@pytest.mark.parametrize("values", [[1, np.nan], [1, -1e-9], [np.nan]])
def test_what_is_no_singular_value_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="NaN or a negative one"):
        numerical_rank(np.array(values), 0.1)


@pytest.mark.parametrize("epsilon", [-1e-9, 1.1, math.nan])
def test_a_tolerance_outside_0_to_1_is_refused(epsilon: float) -> None:
    with pytest.raises(ValueError, match="epsilon: got"):
        numerical_rank(np.ones(2), epsilon)


@pytest.mark.parametrize("scale", [1.0, 1e150, 1e-150])
@pytest.mark.parametrize("shape", [(30, 8), (8, 30), (1, 5), (5, 1)])
def test_values_of_a_matrix_are_the_roots_of_what_its_product_with_itself_has(
    shape: tuple[int, int], scale: float
) -> None:
    matrix = np.random.default_rng(0).standard_normal(shape)
    small = matrix if shape[0] <= shape[1] else matrix.T
    expected = np.sqrt(np.linalg.eigvalsh(small @ small.T)[::-1])
    np.testing.assert_allclose(singular_values(scale * matrix) / scale, expected, rtol=1e-10)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0)])
def test_a_matrix_of_no_entry_has_no_values(shape: tuple[int, int]) -> None:
    assert singular_values(np.empty(shape)).shape == (0,)


@pytest.mark.parametrize(
    ("matrix", "text"),
    [
        (np.ones(3), r"matrix: got shape \(3,\)"),
        (np.array([[1.0, np.nan]]), "got NaN or infinity"),
        (np.array([[1.0, np.inf]]), "got NaN or infinity"),
        (np.full((9, 9), 1e308), "got more than the largest float64"),
    ],
)
def test_a_matrix_that_has_none_is_refused(matrix: np.ndarray, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        singular_values(matrix)


def _with_decaying_values(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    left, right = (np.linalg.qr(rng.standard_normal((n, min(shape))))[0] for n in shape)
    return left * np.geomspace(1, 1e-12, min(shape)) @ right.T


def _scale_fourth(count: int) -> np.ndarray:
    """One 300 times the others, as columns of T5's and other residual streams are."""
    return np.where(np.arange(count) == 3, 300, 1)


MAKERS: dict[str, Callable[[np.random.Generator, tuple[int, int]], np.ndarray]] = {
    "Gaussian": lambda rng, shape: rng.standard_normal(shape),
    "rank one": lambda rng, shape: np.outer(rng.standard_normal(shape[0]), rng.standard_normal(shape[1])),
    # As tokens far from the origin are: the rounding of entries is still independent.
    "near constant": lambda rng, shape: 1.5 + 0.3 * rng.standard_normal(shape),
    "decaying": _with_decaying_values,
    "one massive column": lambda rng, shape: rng.standard_normal(shape) * _scale_fourth(shape[1]),
    "one massive row": lambda rng, shape: rng.standard_normal(shape) * _scale_fourth(shape[0])[:, None],
    # Below 6e-5, float16 has a fixed step.
    "subnormal in float16": lambda rng, shape: 1e-6 * rng.standard_normal(shape),
}


def round_to(matrix: np.ndarray, dtype: str) -> np.ndarray:
    """Stored in the type and read again. torch rounds once, from float64."""
    found: np.ndarray = torch.from_numpy(matrix).to(getattr(torch, dtype)).double().numpy()
    return found


@pytest.mark.parametrize("shape", [(1500, 64), (64, 1500), (200, 200)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("name", MAKERS)
def test_the_floor_is_near_three_times_the_rounding_that_is_measured(
    name: str, dtype: str, shape: tuple[int, int]
) -> None:
    matrix = MAKERS[name](np.random.default_rng(0), shape)
    error = np.linalg.norm(matrix - round_to(matrix, dtype), 2)
    leading = np.linalg.norm(matrix, 2)
    ratio = matrix_floor(matrix, leading, dtype=dtype) / (3 * error / leading)
    assert 0.9 < ratio < 1.6  # 0.99 to 1.46 here: above 1 where entries' sizes differ, as rank one's do


@pytest.mark.parametrize(("dtype", "expected"), [("bfloat16", 3e-4), ("float16", 3e-5), ("float32", 4e-9)])
def test_the_floor_of_4096_by_512_is_what_was_measured_before(dtype: str, expected: float) -> None:
    """science.md section 1, of inputs whose leading direction holds nearly all."""
    long, wide = np.sqrt(4096), np.sqrt(512)
    floor = rounding_floor(long * wide, dtype=dtype, shape=(4096, 512), longest_row=wide, longest_column=long)
    assert floor == pytest.approx(expected, rel=0.2)


def test_a_rank_below_the_floor_is_rounding_and_above_it_the_matrix_s_own() -> None:
    """science.md section 1: bfloat16 read a true ε-rank of 111 at 1e-4 as 510."""
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.standard_normal((n, 512)))[0] for n in (4096, 512))
    values = np.geomspace(1, 10 ** (-4 * 511 / 110.5), 512)  # 111 above 1e-4
    matrix = left * values @ right.T
    stored = singular_values(round_to(matrix, "bfloat16"))
    floor = matrix_floor(matrix, 1.0, dtype="bfloat16")
    assert floor > 1e-4
    assert (numerical_rank(values, 1e-4), numerical_rank(stored, 1e-4) > 400) == (111, True)
    assert abs(numerical_rank(stored, floor) - numerical_rank(values, floor)) <= 2


@pytest.mark.parametrize("scale", [1e150, 1e-150])
def test_the_floor_knows_no_scale_in_float64(scale: float) -> None:
    matrix = np.random.default_rng(0).standard_normal((50, 9))
    leading = np.linalg.norm(matrix, 2)
    assert matrix_floor(scale * matrix, scale * leading, dtype="float64") == ARITHMETIC


def test_zeros_have_a_floor_of_1_and_an_unknown_type_none() -> None:
    assert matrix_floor(np.zeros((3, 2)), 0.0, dtype="float32") == 1.0
    assert matrix_floor(np.zeros((0, 2)), 0.0, dtype="float32") == 1.0
    with pytest.raises(ValueError, match="dtype: got 'int8', expected one of"):
        matrix_floor(np.zeros((3, 2)), 0.0, dtype="int8")


HALF = np.pi / 2


def test_angles_by_hand() -> None:
    found = line_angles(np.array([[1.0, 0], [0, 2], [-3, 3], [-5, 0]]))
    expected = [[0, 2, 1, 0], [2, 0, 1, 2], [1, 1, 0, 1], [0, 2, 1, 0]]
    np.testing.assert_allclose(found, np.array(expected) * HALF / 2, atol=1e-15)


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


def test_a_zero_vector_spans_no_line_and_no_vectors_have_no_angles() -> None:
    found = line_angles(np.array([[1.0, 0], [0, 0], [0, 1]]))
    assert np.isnan(found[1]).all() and np.isnan(found[:, 1]).all()
    assert found[0, 2] == HALF and found[0, 0] == 0
    assert line_angles(np.empty((0, 3))).shape == (0, 0)


def test_many_gaussian_vectors_of_high_dimension_are_nearly_orthogonal() -> None:
    """Fig. 3b: E cos² = 1/d, so that angles stay within a few d^-1/2 of π/2."""
    for dimension in (16, 768):
        found = line_angles(np.random.default_rng(0).standard_normal((64, dimension)))
        off = np.cos(found[np.triu_indices(64, 1)])
        assert np.square(off).mean() == pytest.approx(1 / dimension, rel=0.1)


@pytest.mark.parametrize("vectors", [np.ones(3), np.array([[np.nan, 1]]), np.array([[np.inf, 1]])])
def test_what_is_no_vector_is_refused(vectors: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"vectors: expected finite \[vector, width\]"):
        line_angles(vectors)


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


HARD = {
    "one row": (np.array([[3.0, 4.0]]), [[5.0, 0.0]]),
    "one column": (np.array([[3.0], [-4.0]]), [[3.0, 0.0], [-4.0, 0.0]]),
    "constant": (np.ones((3, 4)), [[2.0, 0.0]] * 3),
    "zero": (np.zeros((3, 4)), [[0.0, 0.0]] * 3),
    "huge": (np.array([[3e150, 4e150]]), [[5e150, 0.0]]),
    "tiny": (np.array([[3e-150, 4e-150]]), [[5e-150, 0.0]]),
    "no rows": (np.empty((0, 4)), np.empty((0, 2))),
}


def test_points_of_a_plane_keep_their_distances() -> None:
    rng = np.random.default_rng(0)
    flat, axes = rng.standard_normal((50, 2)), np.linalg.qr(rng.standard_normal((9, 2)))[0]
    found = leading_plane(flat @ axes.T)
    np.testing.assert_allclose(found @ found.T, flat @ flat.T, atol=1e-12)


@pytest.mark.parametrize("name", HARD)
def test_rows_of_rank_one_lie_on_a_line(name: str) -> None:
    rows, expected = HARD[name]
    np.testing.assert_allclose(leading_plane(rows), expected, rtol=1e-12, atol=1e-12 * np.abs(rows).max(initial=1e-300))
