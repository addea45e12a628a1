"""Number of clusters against scikit-learn's."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score

from tsfmscope.geometry.clusters import (
    EXACT_ROWS,
    _table,
    choose_by_type,
    choose_clusters,
    distinct_rows,
    kmeans,
    mean_silhouettes,
)
from tsfmscope.geometry.measures import measure_states
from tsfmscope.geometry.options import ClusterOptions
from tsfmscope.geometry.spectrum import covariance_spectrum, principal_coordinates


def _blobs(k: int, spread: float = 0.3, n: int = 400, width: int = 10) -> np.ndarray:
    rng = np.random.default_rng(k)
    return rng.standard_normal((k, width))[np.arange(n) % k] + spread * rng.standard_normal((n, width))


@pytest.mark.parametrize("k", [2, 8])
def test_the_number_of_blobs_is_found_as_scikit_learn_finds_it(k: int) -> None:
    states = _blobs(k)
    got = choose_clusters(states, seed=0)
    fits = [KMeans(j, n_init=10, random_state=0).fit(states).labels_ for j in range(2, 11)]
    theirs = [silhouette_score(states, labels) for labels in fits]
    assert got.k == k == 2 + int(np.argmax(theirs))
    assert got.silhouettes[k - 2] == pytest.approx(theirs[k - 2], abs=1e-7)
    assert len(got.silhouettes) == len(got.inertias) == 9
    assert [len(set(np.arange(len(states))[got.labels == c] % k)) for c in range(k)] == [1] * k


def test_below_the_least_silhouette_there_is_one_cluster() -> None:
    states = np.random.default_rng(1).standard_normal((500, 32))
    got = choose_clusters(states, seed=0)
    assert got.k == 1
    assert not got.labels.any()
    assert max(got.silhouettes) < 0.1
    assert choose_clusters(states, ClusterOptions(min_silhouette=-1.0), seed=0).k > 1


@pytest.mark.parametrize("distinct", [2, 3, 6])
def test_k_never_passes_the_number_of_distinct_rows(distinct: int) -> None:
    states = np.random.default_rng(2).standard_normal((distinct, 8))[np.arange(200) % distinct].astype(np.float16)
    got = choose_clusters(states, seed=0)
    assert len(got.silhouettes) == distinct - 1
    assert got.k == distinct
    assert got.silhouettes[-1] == 1.0


def test_three_rows_have_one_k_and_its_inertia_is_a_share_of_the_total() -> None:
    got, mean = choose_clusters(np.array([[0.0], [1], [9]]), ClusterOptions(min_silhouette=-1.0), seed=0), 10 / 3
    assert len(got.silhouettes) == 1
    assert got.inertias == (pytest.approx(0.5 / (mean**2 + (1 - mean) ** 2 + (9 - mean) ** 2)),)


@pytest.mark.parametrize("states", [np.ones((50, 4)), np.zeros((50, 4)), np.eye(2)])
def test_equal_or_too_few_rows_are_refused(states: np.ndarray) -> None:
    with pytest.raises(ValueError, match="expected at least 3 of which 2 differ"):
        choose_clusters(states, seed=0)


def test_silhouettes_of_a_sample_are_near_those_of_all_and_its_labels_cover_all_rows() -> None:
    states = _blobs(4, n=2000)
    few, every = choose_clusters(states, ClusterOptions(silhouette_rows=300), seed=0), choose_clusters(states, seed=0)
    assert few.silhouettes == pytest.approx(every.silhouettes, abs=0.05)
    assert few.silhouettes != every.silhouettes
    assert len(few.labels) == 2000


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_clusters_are_free_of_scale_shift_and_rotation(scale: float) -> None:
    states = _blobs(5)
    turn = np.linalg.qr(np.random.default_rng(3).standard_normal((10, 10)))[0]
    moved, plain = choose_clusters(scale * (states @ turn + 3), seed=0), choose_clusters(states, seed=0)
    assert moved.k == plain.k
    assert moved.silhouettes[3] == pytest.approx(plain.silhouettes[3], abs=1e-9)


@pytest.mark.parametrize(
    ("rows", "limit", "count"),
    [
        (np.arange(8.0)[:, None], 10, 8),
        (np.arange(50.0)[:, None], 10, 10),
        (np.repeat([[1.0, 2], [3, 4]], 90, axis=0), 10, 2),
        (np.r_[np.zeros(500), 1, 2, 3][:, None], 10, 4),
        (np.array([[0.0], [-0.0]]), 10, 1),
        (np.ones((0, 2)), 10, 0),
    ],
)
def test_distinct_rows_are_counted_to_the_limit(rows: np.ndarray, limit: int, count: int) -> None:
    assert distinct_rows(rows, limit) == count


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
    "many columns that tell nothing apart": RNG.standard_normal((800, 120)),
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


@pytest.mark.parametrize("scale", [1e-200, 1e-160, 1e160, 1e200])
def test_states_whose_squares_leave_float64_are_refused_with_what_to_do(scale: float) -> None:
    with pytest.raises(ValueError, match=r"states: largest entry .*, expected 0 or 1e-100 to 1e\+100; scale them"):
        measure_states(scale * blobs(60, 4), seed=0)


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


def test_islands_outside_the_leading_axes_of_the_search_are_parted_in_all_axes() -> None:
    rng = np.random.default_rng(10)
    states = np.zeros((900, 30))
    states[:, 6:] = rng.standard_normal((900, 24))
    states[np.arange(900), np.arange(900) % 6] = 7.0  # six islands of equal weight: five leading axes hold them
    found = kmeans(_points(states), 6, seed=0)[-1].labels
    assert [len(set(found[island::6])) for island in range(6)] == [1] * 6


def test_more_clusters_than_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="got 3 rows, expected at least k_max = 4"):
        list(kmeans(np.eye(3), 4, seed=0))


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


@pytest.mark.parametrize(("count", "shift"), [(1000, 40), (40, 1000)])
def test_equal_rows_in_clusters_of_their_own_score_exactly_1_wherever_they_lie(count: int, shift: int) -> None:
    points = np.repeat(np.random.default_rng(9).standard_normal((3, 50)) + shift, count, axis=0)
    assert mean_silhouettes(points, [np.repeat([0, 1, 2], count)]) == (1.0,)


def test_silhouettes_divide_b_by_the_cluster_size_unlike_the_printed_formula() -> None:
    # 0, 1 | 4, 6 | 9: for 0: a = 1, b = min((4 + 6)/2, 9) = 5
    points, labels = np.array([[0.0], [1], [4], [6], [9]]), np.array([0, 0, 1, 1, 2])
    by_hand = [(5 - 1) / 5, (4 - 1) / 4, (3.5 - 2) / 3.5, (3 - 2) / 3, 0]
    assert mean_silhouettes(points, [labels])[0] == pytest.approx(np.mean(by_hand))


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


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_equal_rows_of_a_type_give_the_clusters_of_the_types_each_once(dtype: type) -> None:
    rng = np.random.default_rng(0)
    states = (5 * np.eye(9)[np.arange(40) % 3] + rng.standard_normal((40, 9))).astype(dtype)
    types = np.r_[np.arange(40), rng.choice(40, 300, p=np.arange(1, 41) / 820)]
    rows = states[types].astype(np.float64)
    got = choose_by_type(rows, types + 7, rows, ClusterOptions(), seed=3)
    expected = choose_clusters(states.astype(np.float64), seed=3)
    assert (got.k, got.silhouettes, got.inertias) == (expected.k, expected.silhouettes, expected.inertias)
    assert np.array_equal(got.labels, expected.labels[types])
    assert got.k == 3


def test_without_types_clusters_are_those_of_the_rows() -> None:
    states = np.random.default_rng(1).standard_normal((90, 5)) + 6 * np.eye(5)[np.arange(90) % 2]
    points = principal_coordinates(states, covariance_spectrum(states))
    got = choose_by_type(states, None, points, ClusterOptions(), seed=4)
    expected = choose_clusters(states, seed=4)
    assert (got.k, got.silhouettes) == (expected.k, expected.silhouettes)
    assert np.array_equal(got.labels, expected.labels)


FEW = {
    "one type": (np.random.default_rng(2).standard_normal((50, 3)), np.zeros(50, int)),
    "two types": (np.random.default_rng(2).standard_normal((50, 3)), np.arange(50) % 2),
    "equal type means": (np.tile([[1.0, 2.0], [-1.0, -2.0]], (30, 1)), np.repeat(np.arange(15), 4)),
    "equal rows in each of three types": (np.full((60, 2), 0.1), np.arange(60) % 3),
}


@pytest.mark.parametrize("name", FEW)
def test_types_that_cannot_be_parted_are_one_cluster(name: str) -> None:
    states, types = FEW[name]
    got = choose_by_type(states, types, states, ClusterOptions(), seed=0)
    assert (got.k, got.silhouettes, set(got.labels)) == (1, (), {0})
    assert len(got.labels) == len(states)
