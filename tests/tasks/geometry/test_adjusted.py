"""Cosine inside clusters."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.geometry.adjusted import adjusted_cosine
from tasks.geometry.cosine import inter_token_cosine


def _slow(states: np.ndarray, labels: np.ndarray, types: np.ndarray) -> list[float]:
    """Eq. 6 cluster by cluster with loops over pairs of types."""
    zetas = []
    for label in np.unique(labels):
        rows, kinds = states[labels == label] - states[labels == label].mean(axis=0), types[labels == label]
        units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        names = np.unique(kinds)
        pairs = [np.mean(units[kinds == a] @ units[kinds == b].T) for i, a in enumerate(names) for b in names[i + 1 :]]
        zetas.append(float(np.mean(pairs)))
    return zetas


def test_adjusted_cosine_equals_the_loop_over_clusters_and_pairs() -> None:
    rng = np.random.default_rng(0)
    labels, types = rng.choice(3, 150, p=[0.5, 0.3, 0.2]), rng.integers(0, 12, 150)
    states = rng.standard_normal((150, 5)) + 4 * np.eye(5)[labels]
    zetas, sizes = _slow(states, labels, types), np.bincount(labels)
    got = adjusted_cosine(states, labels, types, min_cluster=5)
    assert got.mean == pytest.approx(np.mean(zetas), abs=1e-12)
    assert got.weighted == pytest.approx(np.average(zetas, weights=sizes), abs=1e-12)
    assert got.floor == pytest.approx(np.mean(-1 / (sizes - 1)), abs=1e-15)
    assert got.corrected == pytest.approx(np.mean(np.array(zetas) + 1 / (sizes - 1)), abs=1e-12)
    assert (got.used, got.small) == (3, 0)


def test_two_centred_rows_stand_at_the_floor_of_minus_one() -> None:
    got = adjusted_cosine(np.array([[5.0, 1], [7, 4]]), np.zeros(2, int), min_cluster=2)
    assert (got.mean, got.floor, got.corrected) == pytest.approx((-1.0, -1.0, 0.0), abs=1e-12)


def test_an_isotropic_cluster_stands_at_its_floor_and_the_corrected_value_at_zero() -> None:
    states = np.random.default_rng(1).standard_normal((1300, 16)) + 3
    got = adjusted_cosine(states, np.zeros(1300, int))
    assert got.floor == pytest.approx(-1 / 1299)
    assert abs(got.corrected) < 1e-4 < abs(got.mean)


def test_adjusted_cosine_is_free_of_the_place_of_each_cluster_and_of_scale() -> None:
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 3, 200)
    states = rng.standard_normal((200, 4)) ** 3
    moved = 1e3 * (states + 50 * np.eye(4)[labels])
    got, plain = adjusted_cosine(moved, labels), adjusted_cosine(states, labels)
    assert got.mean == pytest.approx(plain.mean, abs=1e-10)


def test_clusters_of_few_rows_are_left_out_and_counted() -> None:
    rng = np.random.default_rng(3)
    states, labels = rng.standard_normal((70, 3)), np.repeat([0, 1, 2], [40, 29, 1])
    got = adjusted_cosine(states, labels)
    assert (got.used, got.small) == (1, 2)
    assert got.mean == pytest.approx(inter_token_cosine(states[:40] - states[:40].mean(axis=0)).zeta)


@pytest.mark.parametrize(
    ("states", "types"),
    [
        (np.full((50, 3), 0.1), None),  # the mean of 0.1s is not 0.1: residuals are rounding, not directions
        (np.full((50, 3), 1e30, dtype=np.float32), np.arange(50)),
        (np.random.default_rng(4).standard_normal((50, 3)), np.zeros(50, int)),
        (np.random.default_rng(4).standard_normal((5, 3)), None),
    ],
)
def test_equal_rows_one_type_or_few_rows_have_no_adjusted_cosine(states: np.ndarray, types) -> None:
    got = adjusted_cosine(states, np.zeros(len(states), int), types)
    assert (got.mean, got.weighted, got.floor, got.corrected, got.used) == (None, None, None, None, 0)


def test_a_label_too_few_is_refused() -> None:
    with pytest.raises(ValueError, match=r"labels: got 2, expected one a row, 3"):
        adjusted_cosine(np.ones((3, 2)), np.zeros(2, int))
