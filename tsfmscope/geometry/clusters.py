"""Clusters by K-means, with the number of clusters chosen by the silhouette."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from tsfmscope.geometry.dimension import Spectrum, covariance_spectrum, principal_coordinates
from tsfmscope.geometry.kmeans import kmeans
from tsfmscope.geometry.options import ClusterOptions
from tsfmscope.geometry.silhouette import mean_silhouettes


@dataclass(frozen=True, eq=False)
class Clustering:
    """Chosen K with its labels, and mean silhouettes and inertias for K = 2, 3, …

    A silhouette is None where the sampled rows all belong to one cluster. Inertias are shares of the inertia
    of one single cluster. Both lists end at the largest K that the rows allow.
    """

    k: int
    labels: Int[np.ndarray, " token"]
    silhouettes: tuple[float | None, ...]
    inertias: tuple[float, ...]


def choose_clusters(
    states: Float[np.ndarray, "token width"],
    options: ClusterOptions | None = None,
    *,
    seed: int,
    spectrum: Spectrum | None = None,
) -> Clustering:
    """Run K-means for each K and choose the K with the largest mean silhouette (the smaller K on a tie).

    Source: Shelim et al. 2025, section 4.3 and appendix D; Rousseeuw 1987. K is 1 where the largest mean
    silhouette is below options.min_silhouette. K never exceeds the number of distinct rows or N - 1, beyond
    which no silhouette exists. spectrum: covariance spectrum of the same states, computed here if None.
    Distances are computed after a rotation that drops directions without variance. Raises ValueError for
    fewer than 3 rows, or where all rows are equal.
    """
    options = options or ClusterOptions()
    if largest_k(states, options.k_max) < 2:
        raise ValueError(f"states: got {len(states)} rows, expected at least 3 of which 2 differ")
    points = principal_coordinates(states, spectrum or covariance_spectrum(states))
    return choose_among(states, points, options, seed=seed)


def largest_k(states: Float[np.ndarray, "token width"], k_max: int) -> int:
    """Return the largest K up to k_max that has a silhouette; a value below 2 means that none has."""
    return min(k_max, distinct_rows(states, k_max), len(states) - 1)


def choose_among(
    states: Float[np.ndarray, "token width"],
    points: Float[np.ndarray, "token axis"],
    options: ClusterOptions,
    *,
    seed: int,
    quick: bool = False,
) -> Clustering:
    """Choose the clusters of states from their principal coordinates, as `choose_clusters` does.

    points: result of `principal_coordinates` of the states. quick: K-means uses the leading axes only, and
    inertias leave out the others. Silhouettes use all axes.
    """
    k_max = largest_k(states, options.k_max)
    fits = kmeans(points, k_max, restarts=options.restarts, quick=quick, seed=seed)
    n, limit = len(points), options.silhouette_rows
    is_large = n > limit
    sample = np.sort(np.random.default_rng([seed, 1]).choice(n, limit, replace=False)) if is_large else np.arange(n)
    scores = mean_silhouettes(points[sample], [fit.labels[sample] for fit in fits])
    total = float(np.einsum("nd,nd->", points, points))
    inertias = tuple(fit.inertia / total for fit in fits)
    known = [-np.inf if score is None else score for score in scores]
    best = int(np.argmax(known))
    labels = fits[best].labels if known[best] >= options.min_silhouette else np.zeros(n, dtype=np.int64)
    return Clustering(int(labels.max()) + 1, labels, scores, inertias)


def distinct_rows(states: Float[np.ndarray, "token width"], limit: int) -> int:
    """Count the distinct rows, stopping at limit."""
    rows = np.asarray(states)
    # The first rows are enough to reach the limit for most states.
    if _count_distinct(rows[: 4 * limit], limit) == limit:
        return limit
    return _count_distinct(rows, limit)


def _count_distinct(rows: np.ndarray, limit: int) -> int:
    count = 0
    while len(rows) and count < limit:
        rows = rows[(rows != rows[0]).any(axis=1)]
        count += 1
    return count
