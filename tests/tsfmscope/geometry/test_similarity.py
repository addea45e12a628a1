"""Debiased CKA and Procrustes distance: the n × n definitions, hand-worked cases, invariants, coverage, hard input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg, stats

from tsfmscope.geometry.similarity import Similarity, compare_layers


def _hsic(x: np.ndarray, y: np.ndarray) -> float:
    """Song et al. 2012, eq. 5, as printed: Gram matrices without their diagonal."""
    n, ones = len(x), np.ones(len(x))
    k, m = x @ x.T, y @ y.T
    np.fill_diagonal(k, 0)
    np.fill_diagonal(m, 0)
    sums = ones @ k @ ones * (ones @ m @ ones) / ((n - 1) * (n - 2)) - 2 / (n - 2) * ones @ k @ m @ ones
    return float((np.trace(k @ m) + sums) / (n * (n - 3)))


def _cka(x: np.ndarray, y: np.ndarray) -> float:
    return _hsic(x, y) / float(np.sqrt(_hsic(x, x) * _hsic(y, y)))


def _procrustes(x: np.ndarray, y: np.ndarray) -> float:
    """Square distance after the rotation that scipy finds, the narrower states padded with zeros."""
    width = max(x.shape[1], y.shape[1])
    x, y = (np.pad(z - z.mean(axis=0), ((0, 0), (0, width - z.shape[1]))) for z in (x, y))
    x, y = x / np.linalg.norm(x), y / np.linalg.norm(y)
    rotation, _ = linalg.orthogonal_procrustes(x, y)
    return float(np.linalg.norm(x @ rotation - y) ** 2)


def _related(rng: np.random.Generator, n: int, *widths: int) -> list[np.ndarray]:
    """Return states that share directions, far from the origin."""
    common = rng.standard_normal((n, 3))
    return [
        common @ rng.standard_normal((3, width)) + rng.standard_normal((n, width)) + 5 * rng.standard_normal(width)
        for width in widths
    ]


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(16, 40), widths=st.tuples(st.integers(1, 9), st.integers(1, 9)))
def test_all_values_are_those_of_the_definitions(seed: int, n: int, widths: tuple[int, int]) -> None:
    rng = np.random.default_rng(seed)
    layers, groups = _related(rng, n, *widths), np.sort(np.arange(n) % 4)
    got = compare_layers(layers, groups)
    for i, x in enumerate(layers):
        for j, y in enumerate(layers):
            assert got.cka[i, j] == pytest.approx(_cka(x, y), rel=1e-8, abs=1e-9)
            assert got.procrustes[i, j] == pytest.approx(_procrustes(x, y), rel=1e-8, abs=1e-9)
            parts = np.array([_cka(x[groups != group], y[groups != group]) for group in range(4)])
            spread = stats.t.ppf(0.975, 3) * np.sqrt(3 / 4 * np.sum(np.square(parts - np.mean(parts))))
            assert got.cka_low[i, j] == pytest.approx(_cka(x, y) - spread, rel=1e-7, abs=1e-8)
            assert got.cka_high[i, j] == pytest.approx(_cka(x, y) + spread, rel=1e-7, abs=1e-8)


def test_orthogonal_states_of_four_rows_by_hand() -> None:
    """‖XᵀX‖² = 16 and k_i = 1: HSIC_1 is (16 - 8 + 16/6) / 4 = 8/3; across it is (0 - 8 + 16/6) / 4 = -4/3."""
    x, y = np.array([[1.0], [1], [-1], [-1]]), np.array([[1.0], [-1], [1], [-1]])
    got = compare_layers([x, y], np.arange(4))
    assert got.cka[0, 1] == pytest.approx(-0.5)
    assert got.procrustes[0, 1] == pytest.approx(2)
    # Three rows are left without a group.
    assert np.isnan(got.cka_low).all()


def test_rotation_scale_shift_and_order_of_rows_change_nothing() -> None:
    rng = np.random.default_rng(0)
    x, y = _related(rng, 60, 6, 8)
    groups, order = np.arange(60) % 5, rng.permutation(60)
    expected = compare_layers([x, y], groups)
    rotated = 1e-3 * x @ linalg.qr(rng.standard_normal((6, 6)))[0] + rng.standard_normal(6)
    changed = compare_layers([rotated[order], y[order]], (groups[order] + 2) % 5)
    for got, matrix in zip(changed, expected, strict=True):
        np.testing.assert_allclose(got, matrix, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(matrix, matrix.T)
    np.testing.assert_allclose(np.diagonal(expected.cka), 1)
    np.testing.assert_allclose(np.diagonal(expected.procrustes), 0, atol=1e-12)
    np.testing.assert_allclose(compare_layers([x, rotated], groups).cka, 1)


def test_unrelated_wide_states_are_near_zero_unlike_the_plain_estimate() -> None:
    rng = np.random.default_rng(0)
    values = []
    for _ in range(20):
        x, y = rng.standard_normal((2, 40, 200))
        values.append(compare_layers([x, y], np.zeros(40, int)).cka[0, 1])
        k, m = (z - z.mean(axis=0) for z in (x, y))
        plain = np.linalg.norm(k.T @ m) ** 2 / np.linalg.norm(k.T @ k) / np.linalg.norm(m.T @ m)
        assert plain > 0.8
    assert min(values) < 0 < max(values) and abs(np.mean(values)) < 0.03


def test_copies_of_rows_raise_the_estimate_so_that_no_bootstrap_is_used() -> None:
    x, y = np.random.default_rng(0).standard_normal((2, 40, 200))
    drawn = np.random.default_rng(1).integers(40, size=40)
    groups = np.zeros(40, int)
    assert compare_layers([x[drawn], y[drawn]], groups).cka[0, 1] > compare_layers([x, y], groups).cka[0, 1] + 0.3


def test_intervals_cover_the_value_of_the_population() -> None:
    """Rows of a group share a part, as tokens of a series do. Of 300 intervals of 95 %, 90 to 99 % cover."""
    rng, mixing = np.random.default_rng(0), np.array([[1.0, 0.2], [0.0, 0.5], [0.3, 0.0]])
    # Covariance of x is 2 I, of y mixingᵀ 2 mixing + I, across 2 mixing.
    across, of_y = 2 * mixing, 2 * mixing.T @ mixing + np.eye(2)
    truth = np.square(across).sum() / np.linalg.norm(2 * np.eye(3)) / np.linalg.norm(of_y)
    groups, n_covered = np.repeat(np.arange(24), 4), 0
    for _ in range(300):
        x = rng.standard_normal((24, 3))[groups] + rng.standard_normal((96, 3))
        got = compare_layers([x, x @ mixing + rng.standard_normal((96, 2))], groups)
        n_covered += got.cka_low[0, 1] <= truth <= got.cka_high[0, 1]
    assert 0.90 * 300 <= n_covered <= 0.99 * 300


def _assert_undefined(got: Similarity, *names: str) -> None:
    for name in names:
        assert np.isnan(getattr(got, name)[0, 1]), name


def test_constant_states_and_few_rows_have_no_value() -> None:
    rng = np.random.default_rng(0)
    x, groups = rng.standard_normal((20, 4)), np.arange(20) % 4
    constant = np.full((20, 3), 0.1)
    got = compare_layers([x, constant], groups)
    _assert_undefined(got, "cka", "cka_low", "cka_high", "procrustes")
    assert got.cka[0, 0] == pytest.approx(1)
    # One row alone differs: HSIC_1 of these states is zero, and its rounding error is no variance.
    constant[3] += 1
    _assert_undefined(compare_layers([x, constant], groups), "cka", "cka_low", "cka_high")
    _assert_undefined(compare_layers([x[:3], x[:3] ** 2], groups[:3]), "cka", "cka_low", "cka_high")
    # Without group 0 the second layer is constant.
    moved = np.where(groups == 0, x[:, 0], 1.0)[:, None]
    got = compare_layers([x, moved], groups)
    _assert_undefined(got, "cka_low", "cka_high")
    assert np.isfinite(got.cka[0, 1])


def test_one_group_has_values_without_an_interval() -> None:
    layers = _related(np.random.default_rng(0), 30, 4, 5)
    got = compare_layers(layers, np.zeros(30, int))
    assert got.cka[0, 1] == pytest.approx(_cka(*layers)) and np.isfinite(got.procrustes[0, 1])
    _assert_undefined(got, "cka_low", "cka_high")


@pytest.mark.parametrize("scale", [1e200, 1e-200, np.float32(3e38)])
def test_huge_and_tiny_states_have_the_values_of_usual_ones(scale: float) -> None:
    x, y = _related(np.random.default_rng(0), 30, 4, 5)
    x = x / np.abs(x).max()
    got, expected = (compare_layers([z, y], np.arange(30) % 3) for z in (x * scale, x))
    for matrix, usual in zip(got, expected, strict=True):
        np.testing.assert_allclose(matrix, usual, rtol=1e-6, atol=1e-9)


def test_half_precision_and_states_of_one_direction_and_duplicated_rows_are_read() -> None:
    rng = np.random.default_rng(0)
    x = np.repeat(rng.standard_normal((15, 4)), 2, axis=0).astype(np.float16)
    line = x[:, :1] @ np.ones((1, 6), np.float16)
    got = compare_layers([x, line], np.arange(30) // 2)
    assert got.cka[0, 1] == pytest.approx(_cka(x.astype(float), line.astype(float)), rel=1e-6)
    assert got.procrustes[0, 1] == pytest.approx(_procrustes(x.astype(float), line.astype(float)), rel=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_states_that_are_not_finite_and_rows_that_do_not_match_are_refused(value: float) -> None:
    states = np.ones((5, 2))
    with pytest.raises(ValueError, match="layers: expected finite states, one row per group index, 5; got 4 rows"):
        compare_layers([states, states[:4]], np.arange(5))
    with pytest.raises(ValueError, match="expected finite states"):
        compare_layers([np.zeros((0, 2))], np.zeros(0, int))
    states[2, 1] = value
    with pytest.raises(ValueError, match="expected finite states"):
        compare_layers([states], np.arange(5))
