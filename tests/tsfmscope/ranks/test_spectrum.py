"""Ranks by hand and by a loop, and the rounding floor against rounding that was measured."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tsfmscope.ranks.spectrum import ARITHMETIC, matrix_floor, numerical_rank, rounding_floor, singular_values

PUBLISHED = [0, 1e-3, 10**-2.5, 1e-2, 10**-1.5, 1e-1, 10**-0.75, 10**-0.5]  # the eight of rank_structure.md Table 2
VALUES = st.lists(st.floats(0, 1e300), min_size=1, max_size=30)


def test_a_rank_by_hand_strict_and_as_the_authors_have_it() -> None:
    values = np.array([10.0, 5.0, 1.0, 0.1, 0.0])
    assert [numerical_rank(values, e) for e in (0, 1e-3, 1e-2, 0.1, 0.5, 1.0)] == [4, 4, 3, 2, 1, 0]
    assert [numerical_rank(values, e, inclusive=True) for e in (0, 1e-3, 1e-2, 0.1, 0.5, 1.0)] == [5, 4, 4, 3, 2, 1]


@given(VALUES, st.sampled_from(PUBLISHED))
def test_a_rank_is_what_a_loop_counts_in_any_order_of_values(values: list[float], epsilon: float) -> None:
    strict = sum(value / max(values) > epsilon for value in values) if max(values) else 0
    wide = sum(value / max(values) >= epsilon for value in values) if max(values) else 0
    for order in (values, values[::-1]):
        assert numerical_rank(np.array(order), epsilon) == strict
        assert numerical_rank(np.array(order), epsilon, inclusive=True) == wide


@given(VALUES)
def test_a_rank_never_grows_with_the_tolerance_and_does_not_know_the_scale(values: list[float]) -> None:
    for inclusive in (False, True):
        ranks = [numerical_rank(np.array(values), e, inclusive=inclusive) for e in PUBLISHED]
        assert ranks == sorted(ranks, reverse=True)
        halved = [numerical_rank(np.ldexp(values, -1), e, inclusive=inclusive) for e in PUBLISHED[1:]]
        assert halved == ranks[1:] or min(values) < 1e-307


@pytest.mark.parametrize("inclusive", [False, True])
def test_nothing_and_zeros_have_rank_0(inclusive: bool) -> None:
    assert numerical_rank(np.empty(0), 0.1, inclusive=inclusive) == 0
    assert numerical_rank(np.zeros(5), 0.0, inclusive=inclusive) == 0


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


# -- the floor ---------------------------------------------------------------------------------------------------


def _rank_one(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return np.outer(rng.standard_normal(shape[0]), rng.standard_normal(shape[1]))


def _constant(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Near a constant, as tokens far from the origin are: entries' rounding is still independent."""
    return 1.5 + 0.3 * rng.standard_normal(shape)


def _with_decaying_values(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    left, right = (np.linalg.qr(rng.standard_normal((n, min(shape))))[0] for n in shape)
    return left * np.geomspace(1, 1e-12, min(shape)) @ right.T


def _massive(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """One column 300 times the others, as T5's and other residual streams have it."""
    matrix = rng.standard_normal(shape)
    matrix[:, 3] *= 300
    return matrix


def _row(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    matrix = rng.standard_normal(shape)
    matrix[3] *= 300
    return matrix


def _subnormal(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Below 6e-5, where float16 has a fixed step."""
    return 1e-6 * rng.standard_normal(shape)


MAKERS: dict[str, Callable[[np.random.Generator, tuple[int, int]], np.ndarray]] = {
    "Gaussian": lambda rng, shape: rng.standard_normal(shape),
    "rank one": _rank_one,
    "near constant": _constant,
    "decaying": _with_decaying_values,
    "one massive column": _massive,
    "one massive row": _row,
    "subnormal in float16": _subnormal,
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
