"""The streamed factorisation against numpy's SVD of the whole matrix, and on spectra known by construction."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsfmscope.ranks import tall
from tsfmscope.ranks.tall import TallQR

RNG = np.random.default_rng


def with_values(rows: int, values: np.ndarray, seed: int = 0) -> np.ndarray:
    """[rows, d] with these singular values."""
    rng, width = RNG(seed), len(values)
    left, right = (np.linalg.qr(rng.standard_normal((n, width)))[0] for n in (rows, width))
    made: np.ndarray = left * values @ right.T
    return made


def matrices() -> dict[str, np.ndarray]:
    rng = RNG(0)
    rank_two = np.outer(rng.standard_normal(500), np.ones(9)) + np.outer(np.arange(500.0), np.arange(9.0))
    return {
        "tall": rng.standard_normal((5000, 17)),
        "exactly one buffer": rng.standard_normal((tall.HEIGHT, 5)),
        "one more than a buffer": rng.standard_normal((tall.HEIGHT + 1, 5)),
        "wide": rng.standard_normal((7, 40)),
        "square": rng.standard_normal((40, 40)),
        "one row": rng.standard_normal((1, 6)),
        "one column": rng.standard_normal((300, 1)),
        "constant": np.full((400, 6), 3.7),
        "zero": np.zeros((400, 6)),
        "zero rows among others": np.r_[np.zeros((2500, 6)), rng.standard_normal((300, 6)), np.zeros((2500, 6))],
        "rank two": rank_two,
        "a column of zeros": rng.standard_normal((300, 4)) * [1, 0, 1, 1],
        "wide spread": rng.standard_normal((3000, 20)) * np.logspace(0, -14, 20),
        "far from zero": rng.standard_normal((3000, 8)) + 1e4,
        "one massive column": rng.standard_normal((3000, 8)) * [1e5, 1, 1, 1, 1, 1, 1, 1],
        "integers": rng.integers(-5, 6, (300, 7)),
        "float16": rng.standard_normal((300, 7)).astype(np.float16),
        "float32": rng.standard_normal((300, 7)).astype(np.float32),
        "huge": 1e150 * rng.standard_normal((3000, 9)),
        "tiny": 1e-150 * rng.standard_normal((3000, 9)),
        "subnormal": 1e-310 * rng.standard_normal((300, 3)),
        "huge after tiny": np.r_[1e-150 * rng.standard_normal((3000, 9)), 1e150 * rng.standard_normal((3000, 9))],
        "tiny after huge": np.r_[1e150 * rng.standard_normal((3000, 9)), 1e-150 * rng.standard_normal((3000, 9))],
    }


MATRICES = matrices()


def by_numpy(matrix: np.ndarray) -> np.ndarray:
    """Of the matrix over its largest entry, and then times it: LAPACK is fed nothing hard."""
    largest = float(np.abs(matrix).max(initial=0.0)) or 1.0
    scaled = np.asarray(matrix, dtype=np.float64) / largest
    return np.linalg.svd(scaled, compute_uv=False) * largest


def blocks(matrix: np.ndarray, seed: int = 3) -> list[np.ndarray]:
    """Of random heights, some without rows."""
    cuts = np.sort(RNG(seed).integers(0, len(matrix) + 1, 6))
    return np.split(matrix, cuts)


@pytest.mark.parametrize("name", MATRICES)
def test_values_are_those_of_the_whole_matrix_plain_and_centred(name: str) -> None:
    matrix = MATRICES[name]
    qr = TallQR.of(blocks(matrix))
    exact = np.asarray(matrix, dtype=np.float64)
    plain, centred = by_numpy(exact), by_numpy(exact - exact.mean(axis=0))
    tolerance = 1e-14 * plain[0] * np.sqrt(len(plain)) + 1e-323
    np.testing.assert_allclose(qr.singular_values(), plain, rtol=0, atol=tolerance)
    np.testing.assert_allclose(qr.singular_values(centred=True), centred, rtol=0, atol=tolerance)
    assert qr.rows == len(matrix)
    assert (np.diff(qr.singular_values()) <= 0).all()


@pytest.mark.parametrize("name", MATRICES)
def test_longest_row_and_column_are_those_of_the_matrix(name: str) -> None:
    matrix = np.asarray(MATRICES[name], dtype=np.float64)
    largest = np.abs(matrix).max() or 1.0
    row, column = (np.linalg.norm(matrix / largest, axis=axis).max() * largest for axis in (1, 0))
    qr = TallQR.of(blocks(matrix))
    assert qr.longest_row == pytest.approx(row, rel=1e-13)
    assert qr.longest_column == pytest.approx(column, rel=1e-12)


@pytest.mark.parametrize("least", [1e-4, 1e-8, 1e-12])
def test_a_known_spectrum_is_found_down_to_1e_12_where_the_gram_matrix_loses_it(least: float) -> None:
    values = np.geomspace(1, least, 60)
    matrix = with_values(20_000, values)
    found = TallQR.of(np.array_split(matrix, 7)).singular_values()
    assert np.abs(found - values).max() < 1e-14
    gram = np.sqrt(np.maximum(np.linalg.eigvalsh(matrix.T @ matrix)[::-1], 0))
    assert (np.abs(gram - values).max() > 1e-12) == (least < 1e-6)


def test_centring_needs_no_second_look_at_rows_far_from_zero() -> None:
    """Their own rounding is 1e-16 of the mean: that much of the mean, and no more, may be off."""
    values = np.geomspace(1, 1e-6, 20)
    matrix = with_values(5000, values)
    matrix -= matrix.mean(axis=0)
    expected = np.linalg.svd(matrix, compute_uv=False)
    found = TallQR.of([matrix + 100]).singular_values(centred=True)
    assert np.abs(found - expected).max() < 100 * np.sqrt(5000 * 20) * 2e-16


SIZES = st.tuples(st.integers(1, 60), st.integers(1, 12), st.integers(0, 10**6))


def _graded_columns(rows: int, width: int, seed: int) -> np.ndarray:
    return RNG(seed).standard_normal((rows, width)) * np.geomspace(1, 1e-9, width)


@settings(max_examples=60, deadline=None)
@given(SIZES, st.lists(st.integers(0, 60), max_size=5))
def test_how_rows_are_split_into_blocks_changes_no_bit(size: tuple[int, int, int], cuts: list[int]) -> None:
    matrix = _graded_columns(*size)
    parts = np.split(matrix, sorted(min(cut, len(matrix)) for cut in cuts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tall, "HEIGHT", 8)  # so that few rows fill many buffers
        whole, split = TallQR.of([matrix]), TallQR.of(parts)
    assert whole.singular_values().tolist() == split.singular_values().tolist()
    assert whole.singular_values(centred=True).tolist() == split.singular_values(centred=True).tolist()


SAME: dict[str, Callable[[np.ndarray, np.random.Generator], np.ndarray]] = {
    "rows in another order": lambda matrix, rng: rng.permutation(matrix),
    "columns in another order": lambda matrix, rng: rng.permutation(matrix, axis=1),
    "rotated columns": lambda matrix, rng: matrix @ np.linalg.qr(rng.standard_normal((matrix.shape[1],) * 2))[0],
    "rows of other signs": lambda matrix, rng: -matrix,
    "zero columns beside": lambda matrix, rng: np.pad(matrix, ((0, 0), (0, 3))),
}


@pytest.mark.parametrize("name", SAME)
@settings(max_examples=25, deadline=None)
@given(SIZES)
def test_what_changes_no_singular_value_changes_none(name: str, size: tuple[int, int, int]) -> None:
    matrix = _graded_columns(*size)
    changed = SAME[name](matrix, RNG(size[2]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tall, "HEIGHT", 8)
        one, other = TallQR.of([matrix]), TallQR.of([changed])
        for centred in (False, True):
            before, after = (qr.singular_values(centred=centred) for qr in (one, other))
            np.testing.assert_allclose(after[: len(before)], before, rtol=0, atol=1e-13 * max(1.0, size[0]))
            assert np.abs(after[len(before) :]).max(initial=0) < 1e-13


@settings(max_examples=40, deadline=None)
@given(SIZES, st.integers(-900, 900))
def test_a_power_of_two_scales_every_value_exactly(size: tuple[int, int, int], power: int) -> None:
    matrix = _graded_columns(*size)
    one, scaled = TallQR.of([matrix]), TallQR.of([np.ldexp(matrix, power)])
    np.testing.assert_allclose(scaled.singular_values(), np.ldexp(one.singular_values(), power), rtol=1e-13)


def test_no_rows_have_no_values() -> None:
    qr = TallQR.of([np.empty((0, 4))])
    assert qr.singular_values().shape == qr.singular_values(centred=True).shape == (0,)
    assert (qr.rows, qr.longest_row, qr.longest_column) == (0, 0.0, 0.0)


def test_values_may_be_asked_for_between_blocks() -> None:
    matrix = RNG(0).standard_normal((300, 5))
    qr = TallQR(5)
    for part in np.array_split(matrix, 3):
        qr.add(part)
        qr.singular_values()
    np.testing.assert_allclose(qr.singular_values(), by_numpy(matrix), rtol=1e-13)


def test_directions_are_the_right_singular_vectors() -> None:
    matrix = with_values(3000, np.geomspace(1, 1e-3, 9))
    found = TallQR.of(np.array_split(matrix, 4)).directions()
    expected = np.linalg.svd(matrix, full_matrices=False)[2].T
    np.testing.assert_allclose(np.abs(np.sum(found * expected, axis=0)), 1.0, atol=1e-12)


@pytest.mark.parametrize("name", MATRICES)
def test_the_root_has_the_moments_of_all_rows_and_of_a_column_of_ones(name: str) -> None:
    matrix = MATRICES[name]
    with_ones = np.concatenate((np.ones((len(matrix), 1)), matrix), axis=1)
    root = TallQR.of(np.array_split(matrix, 3)).root()
    size = np.square(with_ones).sum()
    assert np.array_equal(root, np.triu(root)) and root.shape == (matrix.shape[1] + 1,) * 2
    assert np.allclose(root.T @ root, with_ones.T @ with_ones, rtol=1e-12, atol=1e-13 * size)


@pytest.mark.parametrize("power", [-400, 400])
def test_the_root_is_in_the_rows_own_units(power: int) -> None:
    rows = RNG(0).standard_normal((30, 4))
    scaled, root = TallQR.of([np.ldexp(rows, power)]).root(), TallQR.of([rows]).root()
    assert np.array_equal(np.abs(scaled[1:, 1:]), np.ldexp(np.abs(root[1:, 1:]), power))


def test_the_caller_s_block_is_not_written_to() -> None:
    block = np.asfortranarray(1e200 * RNG(0).standard_normal((tall.HEIGHT, 5)))
    before = block.copy()
    TallQR.of([block]).singular_values()
    assert (block == before).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_block_that_is_not_finite_is_named_and_counts_for_nothing(value: float) -> None:
    good, bad = RNG(0).standard_normal((30, 4)), RNG(1).standard_normal((10, 4))
    bad[7, 2] = value
    qr = TallQR(4)
    qr.add(good)
    with pytest.raises(ValueError, match=r"block 1 \(rows from 30\): NaN or infinity in its row 7"):
        qr.add(bad)
    assert qr.rows == 30
    np.testing.assert_allclose(qr.singular_values(), by_numpy(good), rtol=1e-13)


@pytest.mark.parametrize("shape", [(3,), (3, 5), (3, 4, 1)])
def test_a_block_of_a_wrong_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"block 0 \(rows from 0\): got shape .* expected \[row, 4\]"):
        TallQR(4).add(np.ones(shape))


def test_what_has_no_width_is_refused() -> None:
    with pytest.raises(ValueError, match="blocks: got none"):
        TallQR.of([])
    with pytest.raises(ValueError, match="width: got 0"):
        TallQR(0)


def test_values_beyond_float64_are_refused_and_not_infinite() -> None:
    with pytest.raises(ValueError, match="than the largest float64"):
        TallQR.of([np.full((100, 4), 1e308)]).singular_values()


def test_memory_does_not_grow_with_the_rows() -> None:
    """R and two times HEIGHT rows of 64 columns are 2 MB; all rows would be 42."""
    blocks = (RNG(number).standard_normal((1000, 64)) for number in range(80))
    tracemalloc.start()
    TallQR.of(blocks).singular_values()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6e6
