"""Clusters of inputs on which distances, sums or float32 are in trouble, against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score

from tsfmscope.geometry.clusters import choose_clusters
from tsfmscope.geometry.measures import measure_states
from tsfmscope.geometry.options import ClusterOptions

RNG = np.random.default_rng(0)


def blobs(n: int, width: int, k: int = 3) -> np.ndarray:
    return 6 * RNG.standard_normal((k, width))[np.arange(n) % k] + RNG.standard_normal((n, width))


def outliers_in_the_axes_of_the_search() -> np.ndarray:
    """Twelve rows hold the twelve leading axes; the other rows lie in five blobs in two axes below."""
    rows = np.zeros((600, 14))
    rows[np.arange(12), np.arange(12)] = 100
    corners = 10 * np.array([[0, 0], [1, 0], [0, 1], [1, 1], [2, 2]])
    rows[:, 12:] = corners[np.arange(600) % 5] + 0.1 * RNG.standard_normal((600, 2))
    return rows


HARD = {
    "twenty rows, each thirty times": np.repeat(blobs(20, 5), 30, axis=0),
    "rows that are drawn as words are": RNG.standard_normal((300, 16))[RNG.zipf(1.5, 2500) % 300],
    "constant columns": np.c_[blobs(300, 4), np.full((300, 3), 7.0)],
    "far from the origin in float32": (1e8 + 100 * blobs(300, 6)).astype(np.float32),
    "float16 in more rows than are exact": blobs(2100, 6).astype(np.float16),
    "below what float32 holds in full": (1e-40 * blobs(300, 6)).astype(np.float32),
    "near the largest float32": (1e36 * blobs(300, 6)).astype(np.float32),
    "one axis": blobs(300, 1),
    "one row more than a block": blobs(2049, 8),
    "columns of every size": blobs(600, 6) * 10.0 ** np.arange(-9, 9, 3),
    "one row a million times as far": np.r_[blobs(300, 6), np.full((1, 6), 1e6)],
    "pairs that nearly coincide": np.repeat(blobs(1200, 6), 2, axis=0) + 1e-9 * RNG.standard_normal((2400, 6)),
    "outliers in the axes of the search": outliers_in_the_axes_of_the_search(),
    "a line": np.outer(np.linspace(0, 1, 400), np.ones(3)),
    "more columns than rows": blobs(12, 64),
}


@pytest.mark.parametrize("name", HARD)
def test_hard_rows_are_clustered_as_well_as_by_scikit_learn_and_scored_alike(name: str) -> None:
    states, options = HARD[name], ClusterOptions(k_max=5, min_silhouette=-1.0)
    got = choose_clusters(states, options, seed=0)
    exact = states.astype(np.float64)
    exact = (exact - exact.mean(axis=0)) / np.abs(exact - exact.mean(axis=0)).max()
    total = float(np.square(exact).sum())
    theirs = [[KMeans(k, n_init=10, random_state=s).fit(exact).inertia_ / total for k in range(2, 6)] for s in (0, 1)]
    assert (np.array(got.inertias) <= 1.01 * np.max(theirs, axis=0) + 1e-12).all()
    residuals = sum(np.square(rows - rows.mean(axis=0)).sum() for rows in split(exact, got.labels))
    assert got.inertias[got.k - 2] == pytest.approx(residuals / total, rel=1e-3, abs=1e-12)
    assert max(got.silhouettes) == pytest.approx(silhouette_score(exact, got.labels), abs=1e-5)


def split(rows: np.ndarray, labels: np.ndarray) -> list[np.ndarray]:
    return [rows[labels == label] for label in np.unique(labels)]


def test_the_inertia_of_three_rows_is_a_share_of_the_total() -> None:
    got = choose_clusters(np.array([[0.0], [1.0], [9.0]]), ClusterOptions(min_silhouette=-1.0), seed=0)
    mean = 10 / 3
    assert got.inertias == (pytest.approx(0.5 / (mean**2 + (1 - mean) ** 2 + (9 - mean) ** 2)),)


@pytest.mark.parametrize("scale", [1e-200, 1e-160, 1e160, 1e200])
def test_states_whose_squares_leave_float64_are_refused_with_what_to_do(scale: float) -> None:
    with pytest.raises(ValueError, match=r"states: largest entry .*, expected 0 or 1e-100 to 1e\+100; scale them"):
        measure_states(scale * blobs(60, 4), seed=0)
