"""Constructions have what the proofs ask of them: orthogonality, given singular values, norms."""

from __future__ import annotations

import numpy as np
import pytest

from tsfmscope.theory.instances import (
    SMALLEST,
    SPECTRA,
    Heads,
    attend,
    exponential_values,
    gaussian_with_norm,
    orthonormal,
    product_norms,
    random_heads,
    random_spectrum,
    softmax_columns,
    split,
    with_singular_values,
)

SEEDS = range(4)


@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (40, 7)])
def test_columns_are_orthonormal(shape: tuple[int, int]) -> None:
    for seed in SEEDS:
        found = orthonormal(np.random.default_rng(seed), *shape)
        np.testing.assert_allclose(found.T @ found, np.eye(shape[1]), atol=1e-13)


def test_orthogonal_matrices_favour_no_sign() -> None:
    """numpy's Q has a sign of its own: its first entry is never positive."""
    rng = np.random.default_rng(0)
    assert {bool(orthonormal(rng, 3, 3)[0, 0] > 0) for _ in range(20)} == {True, False}


def test_more_columns_than_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="columns: got 4, expected at most the 3 rows"):
        orthonormal(np.random.default_rng(0), 3, 4)


def test_singular_values_are_those_given() -> None:
    values = exponential_values(12, 5.0)
    assert (values[0], values[-1]) == (1.0, pytest.approx(np.exp(-5)))
    matrix = with_singular_values(np.random.default_rng(1), values, 12, 30)
    np.testing.assert_allclose(np.linalg.svd(matrix, compute_uv=False), values, rtol=1e-12)


def test_random_spectra_are_of_every_kind_and_descend_from_one() -> None:
    rng = np.random.default_rng(2)
    drawn = [random_spectrum(rng, int(rng.integers(1, 20))) for _ in range(200)]
    assert {one.kind for one in drawn} == set(SPECTRA)
    for one in drawn:
        assert one.values[0] == 1.0
        assert (np.diff(one.values) <= 0).all()
        assert one.values[-1] >= SMALLEST


@pytest.mark.parametrize(("count", "width"), [(1, 7), (3, 12), (4, 4)])
def test_heads_have_the_norms_asked_for(count: int, width: int) -> None:
    heads = random_heads(np.random.default_rng(3), count, width, value_norm=1.5, score_norm=2.5)
    for query, key, value in zip(*heads, strict=True):
        assert np.linalg.norm(query.T @ key, 2) == pytest.approx(2.5)
        assert np.linalg.norm(value, 2) == pytest.approx(1.5)
    np.testing.assert_allclose(product_norms(heads), 2.5)
    assert np.linalg.norm(gaussian_with_norm(np.random.default_rng(4), 3, 5, 0.3), 2) == pytest.approx(0.3)


def naive(inputs: np.ndarray, heads: Heads) -> np.ndarray:
    """Token by token, as eq. 18 says."""
    out = np.zeros((heads.value.shape[0] * heads.value.shape[1], inputs.shape[1]))
    for i, (query, key, value) in enumerate(zip(*heads, strict=True)):
        for j in range(inputs.shape[1]):
            scores = np.array([(query @ inputs[:, t]) @ (key @ inputs[:, j]) for t in range(inputs.shape[1])])
            weights = np.exp(scores / np.sqrt(len(value)))
            out[i * len(value) : (i + 1) * len(value), j] = value @ inputs @ (weights / weights.sum())
    return out


def test_attention_is_the_papers_column_by_column() -> None:
    rng = np.random.default_rng(5)
    inputs = rng.standard_normal((6, 5))
    heads = random_heads(rng, 3, 6, value_norm=1.0, score_norm=1.0)
    np.testing.assert_allclose(attend(inputs, heads), naive(inputs, heads), rtol=1e-12)


def test_a_column_that_stands_often_weighs_as_its_copies() -> None:
    rng = np.random.default_rng(6)
    inputs, times = rng.standard_normal((4, 3)), np.array([1, 5, 2])
    heads = random_heads(rng, 2, 4, value_norm=1.0, score_norm=2.0)
    np.testing.assert_allclose(
        attend(inputs, heads, times).repeat(times, axis=1), attend(inputs.repeat(times, axis=1), heads), rtol=1e-12
    )


def test_scores_too_large_for_exp_still_give_weights() -> None:
    weights = softmax_columns(np.array([[1e5, 0.0], [0.0, 0.0]]))
    np.testing.assert_allclose(weights, [[1.0, 0.5], [0.0, 0.5]])


def test_whole_matrices_are_cut_by_rows_and_heads_must_divide_them() -> None:
    matrix = np.arange(16.0).reshape(4, 4)
    np.testing.assert_array_equal(split(2, matrix, matrix, matrix).key[1], matrix[2:])
    with pytest.raises(ValueError, match="heads: got 3, expected a divisor of the width 4"):
        split(3, matrix, matrix, matrix)
