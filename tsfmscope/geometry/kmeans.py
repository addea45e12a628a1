"""K-means for all K = 2, 3, … with scikit-learn: starts in few axes, last steps in all axes."""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from tsfmscope.geometry.parallel import blas_workers

# Axes of the search in addition to k_max: there are fewer local optima than in all axes, and a step
# costs a fraction.
SPARE = 2
# scikit-learn's `tol` in the search: its default, 1e-4, takes a fifth longer, and the inertia in
# all axes is equal within 0.03 % on average.
SEARCH_TOLERANCE = 1e-2


@dataclass(frozen=True, eq=False)
class Partition:
    """Cluster of every row (numbered from 0, none empty) and the sum of squared distances to cluster centres."""

    labels: Int[np.ndarray, " token"]
    inertia: float


def kmeans(
    points: Float[np.ndarray, "token axis"], k_max: int, *, restarts: int = 10, quick: bool = False, seed: int
) -> list[Partition]:
    """Return the best partition found for each K = 2..k_max.

    For each K, the best of some greedy k-means++ starts in the leading axes continues in all axes. Starts in
    all 768 axes of a T5 take ten times as long and end at a higher inertia (bench/geometry.py).

    points: principal coordinates, leading axis first (`dimension.principal_coordinates`), with at least k_max
    distinct rows; of rows that differ by rounding only, fewer clusters may result. They must be finite, which is
    not checked. restarts: number of starts for each K. quick: return the clusters of the search, and inertias in
    its axes.
    Raises ValueError for fewer than k_max rows.
    """
    if len(points) < k_max:
        raise ValueError(f"points: got {len(points)} rows, expected at least k_max = {k_max}")
    few = np.ascontiguousarray(points[:, : k_max + SPARE])

    def fit(k: int) -> Partition:
        random = np.random.RandomState(np.random.MT19937(np.random.SeedSequence([seed, k])))
        clusters = _fit(few, k, n_init=restarts, tol=SEARCH_TOLERANCE, random_state=random)
        if not quick:
            clusters = _fit(points, k, n_init=1, init=_means(points, clusters.labels_, k))
        labels = np.unique(clusters.labels_, return_inverse=True)[1]
        return Partition(labels, float(clusters.inertia_))

    with warnings.catch_warnings(), blas_workers() as spread:
        # scikit-learn warns where fewer clusters than K result.
        warnings.filterwarnings("ignore", "Number of distinct clusters")
        # The largest K takes longest and begins first.
        return list(spread(fit, range(k_max, 1, -1)))[::-1]


def _fit(points: np.ndarray, k: int, **options: Any) -> Any:
    """Return scikit-learn's KMeans of the points, computed on one thread: sums over threads vary by rounding."""
    from sklearn import config_context
    from sklearn.cluster import KMeans

    # Checks of parameters and of the points take a third of the time of the smallest fits. An infinite or NaN point
    # has already stopped the eigendecomposition that the points come from.
    with config_context(skip_parameter_validation=True, assume_finite=True), _openmp().limit(limits=1):
        return KMeans(k, **options).fit(points)


@functools.cache
def _openmp() -> Any:
    """Return the controller of the OpenMP libraries, cached because finding them takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="openmp")


def _means(points: np.ndarray, labels: np.ndarray, k: int) -> Float[np.ndarray, "cluster axis"]:
    """Return the mean of every cluster; 0 for a cluster without rows, which scikit-learn moves to a far row."""
    onehot = (labels == np.arange(k)[:, None]).astype(np.float64)
    means: np.ndarray = onehot @ points / np.maximum(onehot.sum(axis=1), 1)[:, None]
    return means
