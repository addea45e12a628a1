"""Number of clusters against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score

from tsfmscope.geometry.clusters import choose_clusters, distinct_rows
from tsfmscope.geometry.options import ClusterOptions


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


def test_three_rows_have_one_k() -> None:
    assert len(choose_clusters(np.array([[0.0, 0], [0, 1], [9, 9]]), seed=0).silhouettes) == 1


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


@pytest.mark.parametrize(("name", "value"), [("k_max", 1), ("restarts", 0), ("silhouette_rows", 2)])
def test_an_impossible_option_is_named(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=rf"{name}\n.*greater than or equal to .*input_value={value}"):
        ClusterOptions(**{name: value})
