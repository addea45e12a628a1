"""Covariance spectrum and effective dimension."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist
from sklearn.decomposition import PCA

from tsfmscope.geometry.spectrum import (
    covariance_spectrum,
    effective_dimension,
    isoscore,
    isoscore_star,
    log_isotropy,
    principal_coordinates,
    uncentred_projections,
)


@pytest.mark.parametrize(("n", "width"), [(200, 8), (5, 8), (4, 8), (2, 3), (2, 40), (300, 1)])
def test_eigenvalues_equal_scikit_learns_pca(n: int, width: int) -> None:
    states = np.random.default_rng(n).standard_normal((n, width)) * np.arange(1, width + 1) + 5
    ours = covariance_spectrum(states).eigenvalues
    theirs = PCA(svd_solver="full").fit(states).explained_variance_
    np.testing.assert_allclose(ours[: len(theirs)], theirs, rtol=1e-10, atol=1e-12 * theirs[0])
    assert (ours[len(theirs) :] <= 1e-12 * ours[0]).all()
    assert len(ours) == width


def test_eigenvalues_are_free_of_rotation_and_shift_and_sum_to_the_variance() -> None:
    rng = np.random.default_rng(0)
    states = rng.standard_normal((90, 6)) * np.arange(1, 7)
    turn = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    plain, turned = covariance_spectrum(states).eigenvalues, covariance_spectrum(states @ turn + 9).eigenvalues
    np.testing.assert_allclose(turned, plain, rtol=1e-10)
    assert plain.sum() == pytest.approx(states.var(axis=0, ddof=1).sum(), rel=1e-12)
    assert (np.diff(plain) <= 0).all()


@pytest.mark.parametrize(
    ("eigenvalues", "share", "dimension"),
    [
        ([8, 1, 1], 0.8, 1),
        ([8, 1, 1], 0.81, 2),
        ([8, 1, 1], 0.9, 2),
        ([8, 1, 1], 1.0, 3),
        ([1, 1, 1, 1], 0.5, 2),
        ([1, 1, 1, 1], 0.51, 3),
        ([5, 0, 0], 0.99, 1),
        ([5, 0, 0], 1.0, 1),
        ([1, 8, 1], 0.8, 1),
        ([1e-40], 0.8, 1),
    ],
)
def test_effective_dimension_of_hand_worked_spectra(eigenvalues: list, share: float, dimension: int) -> None:
    assert effective_dimension(np.array(eigenvalues, dtype=float), share) == dimension


def test_effective_dimension_equals_a_loop_and_grows_with_the_share() -> None:
    values = np.sort(np.random.default_rng(1).exponential(size=30))[::-1]
    shares = (0.5, 0.8, 0.9, 0.95, 0.99)
    loop = [next(m for m in range(1, 31) if values[:m].sum() >= e * values.sum()) for e in shares]
    assert [effective_dimension(values, e) for e in shares] == loop == sorted(loop)


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5, float("nan")])
def test_a_share_outside_0_to_1_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="share: got"):
        effective_dimension(np.ones(3), share)


@pytest.mark.parametrize("eigenvalues", [[], [0.0, 0.0], [1.0, -1.0], [float("nan")]])
def test_a_spectrum_without_variance_is_refused(eigenvalues: list) -> None:
    with pytest.raises(ValueError, match="constant states have none"):
        effective_dimension(np.array(eigenvalues))


def test_one_row_has_no_covariance() -> None:
    with pytest.raises(ValueError, match="got 1 rows, expected at least 2"):
        covariance_spectrum(np.ones((1, 3)))


@pytest.mark.parametrize("rank", [1, 3, 12])
def test_principal_coordinates_keep_distances_and_drop_what_holds_no_variance(rank: int) -> None:
    rng = np.random.default_rng(rank)
    states = rng.standard_normal((80, rank)) @ rng.standard_normal((rank, 12)) + 30
    spectrum = covariance_spectrum(states)
    points = principal_coordinates(states, spectrum)
    assert points.shape == (80, rank)
    np.testing.assert_allclose(pdist(points) * np.sqrt(spectrum.eigenvalues.sum()), pdist(states), rtol=1e-7)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_few_rows_with_duplicates_give_the_axes_of_the_whole_covariance(kind: type, scale: float) -> None:
    rng = np.random.default_rng(5)
    states = np.repeat(rng.standard_normal((6, 50)) * scale, 3, axis=0).astype(kind)
    spectrum = covariance_spectrum(states)
    values, vectors = np.linalg.eigh(np.cov(states.T.astype(np.float64)))
    np.testing.assert_allclose(spectrum.eigenvalues, values[::-1], atol=1e-10 * values[-1])
    overlap = np.abs(np.sum(spectrum.directions[:, :5] * vectors[:, ::-1][:, :5], axis=0))
    np.testing.assert_allclose(overlap, 1, atol=1e-6)
    assert principal_coordinates(states, spectrum).shape == (18, 5)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("shape", [(40, 5), (5, 40)])
def test_nan_and_infinity_are_not_accepted(shape: tuple[int, int], bad: float) -> None:
    states = np.random.default_rng(0).standard_normal(shape)
    states[1, 2] = bad
    with pytest.raises(np.linalg.LinAlgError), np.errstate(invalid="ignore"):
        covariance_spectrum(states)
    with pytest.raises(np.linalg.LinAlgError), np.errstate(invalid="ignore"):
        uncentred_projections(states)


def test_constant_rows_have_no_axis() -> None:
    states = np.full((5, 3), 0.1)
    assert principal_coordinates(states, covariance_spectrum(states)).shape[0] == 5
    assert covariance_spectrum(np.ones((5, 3))).eigenvalues.tolist() == [0, 0, 0]
    assert covariance_spectrum(np.full((3, 7), 2.0)).eigenvalues.tolist() == [0] * 7
    assert covariance_spectrum(np.full((3, 7), 0.1)).eigenvalues.max() < 1e-30


def test_rows_of_many_chunks_give_the_covariance_and_distances_of_all() -> None:
    rng = np.random.default_rng(20)
    states = (rng.standard_normal((5001, 6)) @ rng.standard_normal((6, 6)) + 9).astype(np.float32)
    spectrum = covariance_spectrum(states)
    expected = np.linalg.eigvalsh(np.cov(states.T.astype(np.float64)))[::-1]
    np.testing.assert_allclose(spectrum.eigenvalues, expected, rtol=1e-10)
    points = principal_coordinates(states, spectrum)
    pairs = rng.integers(5001, size=(2, 50))
    ratio = [np.linalg.norm(np.subtract(*rows[pairs])) for rows in (points, states.astype(np.float64))]
    assert ratio[0] * np.sqrt(expected.sum()) == pytest.approx(ratio[1], rel=1e-6)
    assert np.square(points).sum(axis=1).mean() == pytest.approx(5000 / 5001)


def _steps(variances: np.ndarray) -> float:
    """Steps 4 to 7 of Rudman et al. 2022, algorithm 1, from the diagonal of the covariance."""
    n = len(variances)
    scaled = variances * np.sqrt(n) / np.linalg.norm(variances)
    defect = np.linalg.norm(scaled - np.ones(n)) / np.sqrt(2 * (n - np.sqrt(n)))
    return float(((n - defect**2 * (n - np.sqrt(n))) ** 2 - n) / (n * (n - 1)))


def _published(points: np.ndarray) -> float:
    """The whole algorithm on points [N, d]: principal components, diagonal of their covariance, steps 4 to 7."""
    rotated = PCA(n_components=points.shape[1]).fit_transform(points)
    return _steps(np.diag(np.cov(rotated.T)))


POINTS = {
    "gaussian": lambda rng: rng.standard_normal((300, 8)),
    "correlated": lambda rng: rng.standard_normal((300, 8)) @ rng.standard_normal((8, 8)) + 5,
    "one leading direction": lambda rng: rng.standard_normal((200, 5)) * [100, 1, 1, 1, 1],
    "low rank": lambda rng: rng.standard_normal((200, 2)) @ rng.standard_normal((2, 6)),
    "two axes": lambda rng: rng.standard_normal((50, 2)),
}


@pytest.mark.parametrize("name", POINTS)
def test_isoscore_is_that_of_the_published_steps(name: str) -> None:
    points = POINTS[name](np.random.default_rng(0))
    assert isoscore(covariance_spectrum(points).eigenvalues) == pytest.approx(_published(points), abs=1e-9)


@pytest.mark.parametrize("shrinkage", [0.0, 0.2, 0.75, 1.0])
def test_isoscore_star_is_that_of_the_shrunk_covariance(shrinkage: float) -> None:
    points = POINTS["correlated"](np.random.default_rng(1))
    by_identity = np.linalg.svd((1 - shrinkage) * np.cov(points.T) + shrinkage * np.eye(8), compute_uv=False)
    eigenvalues = covariance_spectrum(points).eigenvalues
    assert isoscore_star(eigenvalues, shrinkage=shrinkage) == pytest.approx(_steps(by_identity), abs=1e-12)


def test_shrinkage_lifts_the_score_of_few_rows() -> None:
    eigenvalues = covariance_spectrum(np.random.default_rng(3).standard_normal((20, 60))).eigenvalues
    few, star = isoscore(eigenvalues), isoscore_star(eigenvalues, shrinkage=0.5)
    assert few is not None and star is not None
    assert few < 0.35 < 0.5 < star


@pytest.mark.parametrize(
    ("eigenvalues", "score"),
    [([1, 1, 1, 1], 1.0), ([7, 0, 0, 0], 0.0), ([1, 1, 0, 0], 1 / 3), ([2, 2, 2, 0, 0], 0.5), ([0, 0, 3], 0.0)],
)
def test_k_equal_directions_of_d_score_k_minus_1_over_d_minus_1(eigenvalues: list[float], score: float) -> None:
    assert isoscore(np.array(eigenvalues, dtype=float)) == pytest.approx(score, abs=1e-15)


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e100), min_size=2, max_size=30), st.floats(1e-100, 1e100))
def test_the_score_lies_in_0_to_1_and_is_free_of_scale_and_order(eigenvalues: list[float], scale: float) -> None:
    values = np.array(eigenvalues)
    score = isoscore(values)
    if not values.any():
        assert score is None
        return
    assert score is not None and 0 <= score <= 1
    assert isoscore(values[::-1]) == pytest.approx(score, abs=1e-12)
    if (values[values > 0] * scale > 1e-290).all():  # nothing underflows
        assert isoscore(values * scale) == pytest.approx(score, abs=1e-12)


@pytest.mark.parametrize("eigenvalues", [[], [2.0], [0.0, 0.0]])
def test_one_direction_or_none_that_varies_has_no_score(eigenvalues: list[float]) -> None:
    assert isoscore(np.array(eigenvalues)) is None


@pytest.mark.parametrize("eigenvalues", [[1.0, -1e-3], [np.nan, 1.0], [np.inf, 1.0]])
def test_negative_or_infinite_eigenvalues_are_refused(eigenvalues: list[float]) -> None:
    with pytest.raises(ValueError, match="expected finite values of at least 0"):
        isoscore(np.array(eigenvalues))


def test_a_shrinkage_outside_0_to_1_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shrinkage: got 1\.5, expected a share in \[0, 1\]"):
        isoscore_star(np.ones(3), shrinkage=1.5)


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
