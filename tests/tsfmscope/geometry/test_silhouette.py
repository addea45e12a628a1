"""Silhouettes of several labelings against scikit-learn's."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from sklearn.metrics import silhouette_score

from tsfmscope.geometry.silhouette import EXACT_ROWS, _table, mean_silhouettes


@pytest.mark.parametrize(("n", "width"), [(30, 2), (700, 8), (1100, 3)])
def test_silhouettes_equal_scikit_learns(n: int, width: int) -> None:
    rng = np.random.default_rng(n)
    points = rng.standard_normal((n, width))
    labelings = [rng.integers(0, k, n) for k in (2, 3, 7)]
    labelings.append(np.r_[np.arange(4), np.full(n - 4, 9)])  # singletons, and gaps in the labels
    expected = [silhouette_score(points, labels) for labels in labelings]
    assert mean_silhouettes(points, labelings) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_many_rows_are_taken_in_float32_and_still_agree_with_scikit_learn(shift: float) -> None:
    rng = np.random.default_rng(7)
    points = rng.standard_normal((EXACT_ROWS + 700, 30)) + 2 * rng.standard_normal((5, 30))[rng.integers(5, size=2748)]
    labelings = [(points @ rng.standard_normal((30, k))).argmax(axis=1) for k in (2, 5)]
    assert _table(points + shift)[0].dtype == np.float32
    expected = [silhouette_score(points, labels) for labels in labelings]
    assert mean_silhouettes(points + shift, labelings) == pytest.approx(expected, abs=1e-6)


def test_some_pairs_that_nearly_coincide_cost_float32_little() -> None:
    rng = np.random.default_rng(6)
    places = rng.standard_normal((60, 40))[rng.integers(60, size=3000)]
    points = places + 1e-3 * rng.standard_normal((3000, 40))  # 1 of 60 pairs
    labels = (places[:, :3]).argmax(axis=1)
    assert _table(points)[0].dtype == np.float32
    assert mean_silhouettes(points, [labels])[0] == pytest.approx(silhouette_score(points, labels), abs=1e-4)


def test_many_rows_that_nearly_coincide_are_taken_in_float64() -> None:
    rng = np.random.default_rng(8)
    tight = rng.standard_normal((20, 12))[rng.integers(20, size=3000)] + 1e-4 * rng.standard_normal((3000, 12))
    labels = rng.integers(0, 3, 3000)
    assert _table(tight)[0].dtype == np.float64
    assert mean_silhouettes(tight, [labels])[0] == pytest.approx(silhouette_score(tight, labels), abs=1e-9)


def test_many_equal_rows_in_clusters_of_their_own_score_exactly_1() -> None:
    points = np.repeat(np.random.default_rng(9).standard_normal((3, 50)) + 40, 1000, axis=0)
    assert mean_silhouettes(points, [np.repeat([0, 1, 2], 1000)]) == (1.0,)


def test_silhouettes_by_hand() -> None:
    # 0, 1 | 5: s(0) = (5 - 1)/5, s(1) = (4 - 1)/4, s(5) = 0 as a singleton
    assert mean_silhouettes(np.array([[0.0], [1], [5]]), [np.array([0, 0, 1])]) == pytest.approx(((0.8 + 0.75) / 3,))


def test_silhouettes_divide_b_by_the_cluster_size_unlike_the_printed_formula() -> None:
    # 0, 1 | 4, 6 | 9: for 0: a = 1, b = min((4 + 6)/2, 9) = 5
    points, labels = np.array([[0.0], [1], [4], [6], [9]]), np.array([0, 0, 1, 1, 2])
    by_hand = [(5 - 1) / 5, (4 - 1) / 4, (3.5 - 2) / 3.5, (3 - 2) / 3, 0]
    assert mean_silhouettes(points, [labels])[0] == pytest.approx(np.mean(by_hand))


def test_equal_rows_are_at_distance_zero_however_far_from_the_origin() -> None:
    points = np.repeat(1e3 + np.random.default_rng(0).standard_normal((3, 50)), 40, axis=0)
    assert mean_silhouettes(points, [np.repeat([0, 1, 2], 40)]) == (1.0,)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_silhouettes_are_free_of_scale(scale: float) -> None:
    rng = np.random.default_rng(1)
    points, labels = rng.standard_normal((200, 5)), rng.integers(0, 4, 200)
    assert mean_silhouettes(scale * points, [labels]) == pytest.approx(mean_silhouettes(points, [labels]), abs=1e-12)


def test_one_cluster_has_no_silhouette_and_equal_rows_in_two_clusters_score_0() -> None:
    labels = [np.zeros(6, int), np.array([0, 0, 0, 1, 1, 1])]
    assert mean_silhouettes(np.ones((6, 2)), labels) == (None, 0.0)


def test_memory_grows_with_n_and_not_with_its_square() -> None:
    points = np.random.default_rng(4).standard_normal((6000, 4))
    tracemalloc.start()
    mean_silhouettes(points, [np.arange(6000) % k for k in (2, 3)])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6000**2 * 8 / 20
