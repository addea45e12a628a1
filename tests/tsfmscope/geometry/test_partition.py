"""Partition isotropy."""

from __future__ import annotations

import numpy as np
import pytest

from tsfmscope.geometry.partition import log_isotropy


def _slow(states: np.ndarray) -> float:
    """Eq. 5 with plain exponentials, the directions from an SVD, null directions added."""
    _, _, directions = np.linalg.svd(states, full_matrices=True)
    z = [sum(np.exp(row @ (sign * c)) for row in states) for c in directions for sign in (1, -1)]
    return float(np.log(min(z) / max(z)))


@pytest.mark.parametrize(("n", "width"), [(40, 4), (4, 6), (3, 6), (2, 20), (60, 1)])
def test_log_isotropy_equals_the_printed_formula(n: int, width: int) -> None:
    states = np.random.default_rng(n).standard_normal((n, width)) * np.linspace(0.5, 1.5, width) + 0.3
    scale = np.sqrt(width / np.mean(np.sum(states**2, axis=1)))
    got = log_isotropy(states)
    assert got.unscaled == pytest.approx(_slow(states), abs=1e-9)
    assert got.scaled == pytest.approx(_slow(states * scale), abs=1e-9)


def test_one_repeated_vector_by_hand() -> None:
    # ψ = (2, 0) three times: Z(±e1) = 3 exp(±2), Z(±e2) = 3; scaled to norm √2
    assert log_isotropy(np.array([[2.0, 0.0]] * 3)) == pytest.approx((-4.0, -2 * np.sqrt(2)))


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_few_rows_with_duplicates_equal_the_same_rows_in_a_narrower_space(kind: type) -> None:
    """Columns of zeros add null directions. The narrow rows have some too, so the unscaled I is equal."""
    rows = np.repeat(np.random.default_rng(3).integers(-4, 5, (4, 12)) / 4, 2, axis=0).astype(kind)
    wide = np.concatenate([rows, np.zeros((8, 100), kind)], axis=1)
    assert log_isotropy(wide).unscaled == pytest.approx(log_isotropy(rows).unscaled, abs=1e-9)


def test_a_symmetric_cross_is_isotropic_in_both_signs() -> None:
    cross = np.array([[1.0, 0], [-1, 0], [0, 1.0], [0, -1]])
    assert log_isotropy(cross) == pytest.approx((0.0, 0.0), abs=1e-12)


def test_scaled_isotropy_is_free_of_scale_and_the_given_is_not() -> None:
    states = np.random.default_rng(0).standard_normal((4000, 32))
    small, large = log_isotropy(states * 0.1), log_isotropy(states * 10)
    assert small.scaled == pytest.approx(large.scaled, rel=1e-9)
    assert -0.1 < small.unscaled < 0
    assert large.unscaled < -5


@pytest.mark.parametrize("scale", [1e-30, 1e30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extreme_scales_stay_finite(scale: float, dtype: type) -> None:
    states = (np.random.default_rng(1).standard_normal((50, 8)) * scale).astype(dtype)
    assert np.isfinite(log_isotropy(states)).all()
    assert max(log_isotropy(states)) <= 0


def test_an_outlier_direction_lowers_isotropy() -> None:
    states = np.random.default_rng(2).standard_normal((500, 16))
    stretched = states.copy()
    stretched[:, 0] = 20
    assert log_isotropy(stretched).scaled < log_isotropy(states).scaled


@pytest.mark.parametrize("states", [np.zeros((4, 3)), np.zeros((0, 3))])
def test_nothing_but_zeros_is_refused(states: np.ndarray) -> None:
    with pytest.raises(ValueError, match="every row is zero"):
        log_isotropy(states)


def test_rows_of_many_chunks_give_the_partition_function_of_all() -> None:
    rng = np.random.default_rng(20)
    states = rng.standard_normal((5001, 5)) * [2, 1, 1, 0.5, 0.1] + 0.3
    directions = np.linalg.eigh(states.T @ states)[1]
    logs = [np.log(np.exp(sign * states @ directions).sum(axis=0)) for sign in (1, -1)]
    assert log_isotropy(states).unscaled == pytest.approx(np.min(logs) - np.max(logs), abs=1e-10)
