"""Lloyd steps of many sets of centres against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsfmscope.tasks.geometry import lloyd
from tsfmscope.tasks.geometry.lloyd import CHUNK, AugmentedPoints, chunks, step, to_full_space
from tsfmscope.tasks.geometry.parallel import blas_workers


def _slow(points: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, float]:
    """One step of one set, row by row: moved centres, and inertia of the old ones."""
    distances = ((points[:, None] - centres) ** 2).sum(axis=2)
    near = distances.argmin(axis=1)
    moved = [points[near == c].mean(axis=0) if (near == c).any() else centres[c] for c in range(len(centres))]
    return np.stack(moved), float(distances.min(axis=1).sum())


@settings(deadline=None, max_examples=40)
@given(n=st.integers(1, 60), axes=st.integers(1, 5), ks=st.lists(st.integers(1, 5), min_size=1, max_size=3),
       starts=st.integers(1, 4), seed=st.integers(0, 2**32))  # fmt: skip
def test_a_step_of_several_groups_is_the_step_of_each_set_alone(n, axes, ks, starts, seed) -> None:
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((n, axes))
    groups = [rng.standard_normal((starts, k, axes)) for k in ks]
    with blas_workers() as spread:
        answers = step(AugmentedPoints.of(points, np.float64), groups, spread)
    for centres, moved in zip(groups, answers, strict=True):
        for at, one in enumerate(centres):
            expected, inertia = _slow(points, one)
            np.testing.assert_allclose(moved.centres[at], expected, atol=1e-12)
            assert moved.inertia[at] == pytest.approx(inertia, rel=1e-9, abs=1e-9)
            assert moved.shift[at] == pytest.approx(((expected - one) ** 2).sum(), abs=1e-12)


def test_steps_over_many_chunks_and_blocks_count_every_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lloyd, "CELLS", 1)  # the smallest blocks
    rng = np.random.default_rng(1)
    points, centres = rng.standard_normal((2 * CHUNK + 77, 3)), rng.standard_normal((4, 3))
    with blas_workers() as spread:
        (moved,) = step(AugmentedPoints.of(points), [centres[None]], spread)
    expected, inertia = _slow(points, centres)
    np.testing.assert_allclose(moved.centres[0], expected, atol=1e-4)
    assert moved.inertia[0] == pytest.approx(inertia, rel=1e-5)


def test_a_centre_without_rows_stays_and_one_at_equal_distance_shares_the_row() -> None:
    points, centres = np.array([[0.0], [1.0], [2.0]]), np.array([[0.0], [2.0], [50.0]])
    with blas_workers() as spread:
        (moved,) = step(AugmentedPoints.of(points), [centres[None]], spread)
    assert moved.centres[0, :, 0].tolist() == [0.5, 1.5, 50.0]
    assert moved.inertia[0] == 1.0


def test_lifted_centres_are_the_means_in_all_axes_of_the_clusters_made_in_few() -> None:
    rng = np.random.default_rng(2)
    points = rng.standard_normal((300, 6))
    centres = np.concatenate([rng.standard_normal((3, 2)), [[90.0, 0]]])
    near = ((points[:, None, :2] - centres) ** 2).sum(axis=2).argmin(axis=1)
    with blas_workers() as spread:
        (lifted,) = to_full_space(
            AugmentedPoints.of(points[:, :2]), [centres[None]], AugmentedPoints.of(points), spread
        )
    for cluster in range(3):
        np.testing.assert_allclose(lifted[0, cluster], points[near == cluster].mean(axis=0), atol=1e-5)
    assert lifted[0, 3].tolist() == [90.0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("n", [0, 1, CHUNK, CHUNK + 1, 3 * CHUNK - 1])
def test_chunks_cover_every_row_once(n: int) -> None:
    assert np.concatenate([np.arange(n)[part] for part in chunks(n)] or [[]]).tolist() == list(range(n))


def test_the_total_is_the_inertia_of_one_cluster_of_centred_points() -> None:
    points = np.random.default_rng(3).standard_normal((100, 4))
    points -= points.mean(axis=0)
    assert AugmentedPoints.of(points, np.float64).total == pytest.approx((points**2).sum())
