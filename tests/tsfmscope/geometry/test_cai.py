"""The preset of Cai et al. (2021) against their procedure, written with scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score
from sklearn.metrics.pairwise import cosine_similarity

from tsfmscope.geometry.cai import cai, sample_one_per_type


def _pairs(rows: np.ndarray) -> float:
    cosines = cosine_similarity(rows)
    return float((cosines.sum() - len(rows)) / (len(rows) * (len(rows) - 1)))


def _peer(rows: np.ndarray) -> tuple[float, int, list[float], float]:
    """What analysis.py does with --maxl 1: cosine of all rows; K, silhouettes, and cosine in centred clusters."""
    candidates = range(2, 16)
    labelings = [KMeans(k, n_init=10, random_state=0).fit(rows).labels_ for k in candidates]
    scores = [float(silhouette_score(rows, labels, sample_size=None)) for labels in labelings]
    best = int(np.argmax(scores))
    k, labels = (candidates[best], labelings[best]) if scores[best] >= 0.1 else (1, np.zeros(len(rows), int))
    inside = []
    for label in np.unique(labels):
        members = rows[labels == label]
        if len(members) > 1:  # a cluster of one row gives 0/0 there, and is passed over
            inside.append(_pairs(members - members.mean(axis=0)))
    return _pairs(rows), k, scores, float(np.mean(inside))


def _islands(seed: int, k: int, n: int = 300, width: int = 12) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return 4 * rng.standard_normal((k, width))[np.arange(n) % k] + rng.standard_normal((n, width)) + 1


@pytest.mark.parametrize("k", [3, 12])
def test_islands_are_found_and_measured_as_the_released_code_does(k: int) -> None:
    rows = _islands(k, k)
    inter, clusters, scores, inside = _peer(rows)
    got = cai(rows, seed=0)
    assert (got.n, got.k) == (300, clusters)
    assert got.k == k
    assert got.inter_cosine == pytest.approx(inter, abs=1e-12)
    assert len(got.silhouettes) == 14
    assert got.silhouettes[k - 2] == pytest.approx(scores[k - 2], abs=1e-6)
    assert got.cluster_cosine == pytest.approx(inside, abs=1e-9)


def test_below_a_silhouette_of_a_tenth_all_rows_are_one_centred_cluster() -> None:
    rows = np.random.default_rng(2).standard_normal((200, 30)) + 2
    inter, clusters, _, inside = _peer(rows)
    got = cai(rows, seed=0)
    assert got.k == clusters == 1
    assert (got.inter_cosine, got.cluster_cosine) == pytest.approx((inter, inside), abs=1e-12)


def test_one_occurrence_of_every_type_is_taken() -> None:
    rng = np.random.default_rng(3)
    types = rng.integers(0, 90, 1000)
    centre = 6 * rng.standard_normal((90, 8))
    got = cai(centre[types], types, seed=5)  # all occurrences alike: the answer is that of the types
    plain = cai(centre[np.unique(types)], seed=5)
    assert got == plain
    assert got.n == len(np.unique(types))


def test_every_occurrence_of_a_type_has_the_same_chance() -> None:
    types = np.array([4, 4, 9, 4, 4, 9])
    drawn = np.stack([sample_one_per_type(types, np.random.default_rng(seed)) for seed in range(2000)])
    assert np.isin(drawn[:, 0], [0, 1, 3, 4]).all() and np.isin(drawn[:, 1], [2, 5]).all()
    counts = np.bincount(drawn.ravel(), minlength=6) / 2000
    assert counts == pytest.approx([0.25, 0.25, 0.5, 0.25, 0.25, 0.5], abs=0.06)


def test_a_zero_row_has_cosine_0_with_all_and_1_is_taken_off_for_it() -> None:
    rows = np.r_[np.zeros((1, 3)), np.random.default_rng(4).standard_normal((9, 3))]
    assert cai(rows, seed=0).inter_cosine == pytest.approx(_pairs(rows), abs=1e-12)


@pytest.mark.parametrize(
    ("states", "types", "n", "inter"),
    [
        (np.zeros((0, 3)), None, 0, None),
        (np.ones((1, 3)), None, 1, None),
        (np.eye(2), None, 2, 0.0),
        (np.ones((50, 3)), None, 50, 1.0),
        (np.eye(50), np.zeros(50, int), 1, None),
    ],
)
def test_too_few_or_equal_occurrences_have_no_clusters(states, types, n: int, inter: float | None) -> None:
    got = cai(states, types, seed=0)
    assert (got.n, got.k, got.silhouettes, got.cluster_cosine) == (n, None, (), None)
    assert got.inter_cosine == (inter if inter is None else pytest.approx(inter, abs=1e-12))


def test_a_type_too_few_is_refused() -> None:
    with pytest.raises(ValueError, match="types: got 2, expected one per row, 3"):
        cai(np.eye(3), np.arange(2), seed=0)
