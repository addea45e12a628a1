"""The search behind K-means: what it keeps, what it tries, and that it leaves bad solutions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tsfmscope.tasks.geometry import kmeans_search
from tsfmscope.tasks.geometry.kmeans_search import Ends, race, run, search, seed_rows
from tsfmscope.tasks.geometry.lloyd import AugmentedPoints
from tsfmscope.tasks.geometry.parallel import blas_workers


def _islands(k: int, n: int = 400, axes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Points around k far centres, and the centres."""
    rng = np.random.default_rng(seed)
    centres = 20 * rng.standard_normal((k, axes))
    points = centres[np.arange(n) % k] + rng.standard_normal((n, axes))
    return points - points.mean(axis=0), centres - points.mean(axis=0)


def _potential(points: np.ndarray, centres: np.ndarray) -> float:
    return float(((points[:, None] - centres) ** 2).sum(axis=2).min(axis=1).sum())


def test_as_many_islands_as_centres_are_all_found() -> None:
    points, centres = _islands(9)
    with blas_workers() as spread:
        found = search(AugmentedPoints.of(points), 9, 2, np.random.default_rng(1), spread)
    assert [ends.centres.shape[1] for ends in found] == list(range(2, 10))
    nearest = np.abs(found[-1].centres[0][:, None] - centres).max(axis=2).min(axis=0)
    assert nearest.max() < 1.0


def test_one_bad_start_is_left_by_moving_a_centre(monkeypatch: pytest.MonkeyPatch) -> None:
    points, _ = _islands(6, seed=3)
    worst = np.zeros((1, 6), dtype=np.int64)  # every centre on one row
    monkeypatch.setattr(kmeans_search, "seed_rows", lambda *_: worst)
    with blas_workers() as spread:
        found = search(AugmentedPoints.of(points), 6, 1, np.random.default_rng(0), spread)
    assert found[-1].inertia[0] < 1.1 * 400 * 3


def test_the_best_moves_growths_and_shrinkings_are_those_of_a_search_through_all() -> None:
    rng = np.random.default_rng(4)
    points = rng.standard_normal((60, 2))
    centres, table = rng.standard_normal((4, 2)), AugmentedPoints.of(points, np.float64)
    moved = kmeans_search._move_centre(table, centres, np.random.default_rng(7))
    grown = kmeans_search._add_centre(table, centres, np.random.default_rng(7))  # the same draws
    (shrunk, *_) = kmeans_search._remove_centre(table, centres)
    drawn = kmeans_search._draw(kmeans_search._two_nearest(table, centres)[1], kmeans_search.DRAWN,
                                np.random.default_rng(7))  # fmt: skip
    swaps = [np.concatenate([np.delete(centres, at, axis=0), points[[row]]])
             for row, at in itertools.product(drawn, range(4))]  # fmt: skip
    assert _potential(points, moved[0]) == pytest.approx(min(_potential(points, one) for one in swaps))
    more = [np.concatenate([centres, points[[row]]]) for row in drawn]
    assert _potential(points, grown[0]) == pytest.approx(min(_potential(points, one) for one in more))
    fewer = [np.delete(centres, at, axis=0) for at in range(4)]
    assert _potential(points, shrunk) == pytest.approx(min(_potential(points, one) for one in fewer))


def test_ends_keep_the_best_of_different_inertia_and_say_when_the_best_is_bettered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kmeans_search, "ENDS", 3)
    marks = np.arange(5.0)[:, None, None]
    ends = Ends(marks, np.array([5.0, 3.0, 3.0000001, 9.0, 7.0]))
    assert ends.inertia.tolist() == [3.0, 5.0, 7.0]
    assert ends.centres[:, 0, 0].tolist() == [1.0, 0.0, 4.0]
    assert not ends.add(marks[:1], np.array([2.9999999]))  # the same end
    assert ends.add(marks[:1], np.array([2.0]))
    assert ends.inertia[0] == 2.0
    assert not ends.add(marks[:1], np.array([6.0]))
    assert len(ends.inertia) == 3


def test_a_race_never_ends_above_where_it_began_and_parks_what_stands_still() -> None:
    points, centres = _islands(4, seed=5)
    starts = np.stack([centres, centres + 3, points[:4]])
    with blas_workers() as spread:
        ((_, inertia),) = run(AugmentedPoints.of(points), [starts], [np.full(3, np.inf)], spread)
        ((_, raced),) = race(AugmentedPoints.of(points), [starts], spread)
    begun = [_potential(points, one) for one in starts]
    assert (inertia <= np.array(begun) * (1 + 1e-6)).all()
    assert raced.min() == pytest.approx(inertia.min(), rel=1e-4)


def test_seeds_of_a_start_are_rows_far_apart() -> None:
    points, _ = _islands(8, seed=6)
    rows = seed_rows(AugmentedPoints.of(points), 8, 5, np.random.default_rng(0))
    assert rows.shape == (5, 8)
    assert np.mean([len(np.unique(one % 8)) for one in rows]) > 7  # nearly every island has one


def test_equal_rows_are_tried_once() -> None:
    values = np.array([3.0, 1.0, 1.0, 2.0, 1.0])
    assert kmeans_search._smallest_distinct(values, 2).tolist() == [1, 3]
