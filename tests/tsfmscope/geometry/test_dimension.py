"""Covariance spectrum and effective dimension."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from sklearn.decomposition import PCA

from tsfmscope.geometry.dimension import covariance_spectrum, effective_dimension, principal_coordinates
from tsfmscope.geometry.partition import uncentred_projections


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
