"""IsoScore and IsoScore* against the published steps, written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA

from tsfmscope.geometry.dimension import covariance_spectrum
from tsfmscope.geometry.isoscore import isoscore, isoscore_star


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


def test_shrinkage_lifts_the_score_of_few_rows() -> None:
    eigenvalues = covariance_spectrum(np.random.default_rng(3).standard_normal((20, 60))).eigenvalues
    few, star = isoscore(eigenvalues), isoscore_star(eigenvalues, shrinkage=0.5)
    assert few is not None and star is not None
    assert few < 0.35 < 0.5 < star


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
