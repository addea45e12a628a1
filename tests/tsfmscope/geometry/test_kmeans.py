"""K-means: labels, inertia and axes of the search; test_hard_clusters.py compares it with scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans

from tsfmscope.geometry.dimension import covariance_spectrum, principal_coordinates
from tsfmscope.geometry.kmeans import kmeans


def _points(states: np.ndarray) -> np.ndarray:
    return principal_coordinates(states, covariance_spectrum(states))


def test_inertia_is_that_of_the_labels_and_every_row_is_with_its_nearest_mean() -> None:
    points = _points(6 * np.eye(5)[np.arange(600) % 5] + np.random.default_rng(6).standard_normal((600, 5)))
    for k, fit in enumerate(kmeans(points, 5, seed=1), start=2):
        assert np.unique(fit.labels).tolist() == list(range(k))
        means = np.stack([points[fit.labels == c].mean(axis=0) for c in range(k)])
        distances = ((points[:, None] - means) ** 2).sum(axis=2)
        assert fit.inertia == pytest.approx(distances[np.arange(len(points)), fit.labels].sum(), rel=1e-4)
        assert np.mean(fit.labels == distances.argmin(axis=1)) > 0.99


def test_the_same_seed_gives_the_same_bytes() -> None:
    points = _points(np.random.default_rng(7).standard_normal((400, 8)))
    first, second = kmeans(points, 5, seed=2**40), kmeans(points, 5, seed=2**40)
    for a, b in zip(first, second, strict=True):
        assert a.labels.tobytes() == b.labels.tobytes()
        assert a.inertia == b.inertia


def test_islands_outside_the_leading_axes_of_the_search_are_parted_in_all_axes() -> None:
    rng = np.random.default_rng(10)
    states = np.zeros((900, 30))
    states[:, 6:] = rng.standard_normal((900, 24))
    states[np.arange(900), np.arange(900) % 6] = 7.0  # six islands of equal weight: five leading axes hold them
    found = kmeans(_points(states), 6, seed=0)[-1].labels
    assert [len(set(found[island::6])) for island in range(6)] == [1] * 6


def test_wide_isotropic_rows_end_as_low_as_scikit_learn_though_few_axes_say_little() -> None:
    points = _points(np.random.default_rng(11).standard_normal((800, 120)))
    theirs = [KMeans(k, n_init=10, random_state=0).fit(points).inertia_ for k in (2, 5)]
    ours = kmeans(points, 5, seed=0)
    assert [ours[0].inertia, ours[3].inertia] <= [1.01 * one for one in theirs]
    assert ours[3].inertia <= 1.01 * theirs[1]


@pytest.mark.parametrize("k_max", [2, 3, 4])
def test_as_many_clusters_as_distinct_rows_leave_no_inertia(k_max: int) -> None:
    states = np.repeat(np.random.default_rng(9).standard_normal((k_max, 5)), 20, axis=0)
    *_, fit = kmeans(_points(states), k_max, seed=0)
    assert len(np.unique(fit.labels)) == k_max
    assert fit.inertia < 1e-20


def test_distinct_rows_that_float32_cannot_tell_apart_are_still_parted() -> None:
    states = np.repeat([[0.0, 0], [1, 0], [1, 1e-6]], 10, axis=0)
    *_, fit = kmeans(_points(states), 3, seed=0)
    assert np.bincount(fit.labels).tolist() == [10, 10, 10]


def test_rows_that_differ_by_rounding_share_a_cluster() -> None:
    points = np.repeat([[-1.0, 0], [1, 0], [1, 1e-17]], 10, axis=0)
    *_, fit = kmeans(points, 3, seed=0)
    assert np.bincount(fit.labels).tolist() == [10, 20]


def test_quick_clusters_use_the_leading_axes_only() -> None:
    points = _points(np.random.default_rng(12).standard_normal((300, 40)))
    other = np.concatenate([points[:, :5], points[:, :4:-1]], axis=1)
    for fit, same in zip(kmeans(points, 3, quick=True, seed=0), kmeans(other, 3, quick=True, seed=0), strict=True):
        assert fit.labels.tobytes() == same.labels.tobytes()
        means = np.stack([points[fit.labels == c, :5].mean(axis=0) for c in range(fit.labels.max() + 1)])
        assert fit.inertia == pytest.approx(np.square(points[:, :5] - means[fit.labels]).sum(), rel=1e-2)


def test_more_clusters_than_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="got 3 rows, expected at least k_max = 4"):
        list(kmeans(np.eye(3), 4, seed=0))
