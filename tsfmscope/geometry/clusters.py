"""Clusters by K-means, for K = 2, 3, …, and the choice of K by the mean silhouette."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Integer

from tsfmscope.geometry.options import ClusterOptions
from tsfmscope.geometry.parallel import ParallelMap, blas_workers, chunks, thread_controller
from tsfmscope.geometry.spectrum import covariance_spectrum, principal_coordinates

States = Float[np.ndarray, "token width"]
Types = Integer[np.ndarray, " token"]
Points = Float[np.ndarray, "token axis"]
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


def kmeans(points: Points, k_max: int, *, restarts: int = 10, quick: bool = False, seed: int) -> list[Partition]:
    """Return the best partition found for each K = 2..k_max.

    For each K, the best of some greedy k-means++ starts in the leading axes continues in all axes. Starts in
    all 768 axes of a T5 take ten times as long and end at a higher inertia (bench/geometry.py).

    points: principal coordinates, leading axis first (`principal_coordinates`), with at least k_max
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
    with (
        config_context(skip_parameter_validation=True, assume_finite=True),
        thread_controller("openmp").limit(limits=1),
    ):
        return KMeans(k, **options).fit(points)


def _means(points: np.ndarray, labels: np.ndarray, k: int) -> Float[np.ndarray, "cluster axis"]:
    """Return the mean of every cluster; 0 for a cluster without rows, which scikit-learn moves to a far row."""
    onehot = (labels == np.arange(k)[:, None]).astype(np.float64)
    return np.asarray(onehot @ points / np.maximum(onehot.sum(axis=1), 1)[:, None])


# Rows on each side of a block of distances: 1 MiB in float32, half a second-level cache.
BLOCK = 512
# Up to this number of rows, distances are computed in float64: it costs little.
EXACT_ROWS = 2048
# Share of the squared norm. Of a squared distance below it, float32 keeps hardly two digits.
NEAR = 1e-5
# Share of near pairs from which float64 is worth its cost: with 2 % of them, a mean silhouette errs
# by 4e-5.
MANY = 3e-2
# Number of rows from which the share of near pairs is estimated.
PROBED = 512
# Share of the squared norms below which a squared distance is rounding.
SAME = 32 * np.finfo(np.float64).eps


def mean_silhouettes(points: Points, labelings: Sequence[Int[np.ndarray, " token"]]) -> tuple[float | None, ...]:
    """Return the mean silhouette of each labeling, as scikit-learn's silhouette_score, from one pass.

        s = (b - a) / max(a, b);  singletons and 0/0 give 0

    Source: Rousseeuw 1987. Appendix D of Shelim et al. 2025 prints b without its mean; the mean is used here.
    Every block of distances is multiplied with the one-hot labels of all labelings at once, so memory is O(N
    ΣK), not O(N²).

    Accuracy: with more than EXACT_ROWS rows, distances are float32 products unless many rows nearly coincide;
    mean silhouettes are then within 1e-6 of scikit-learn's (1e-4 where a share of near pairs up to MANY
    exists). Sums are in float64. Equal rows have distance exactly 0 in float64.

    A labeling with one cluster, hence a single token, gives None. Constant points give 0. NaN gives NaN.
    """
    indicators = [(labels[:, None] == np.unique(labels)).astype(np.float64) for labels in labelings]
    table, scale = _table(np.asarray(points))
    with blas_workers() as spread:
        sums = scale * _distance_sums(table, np.concatenate(indicators, axis=1), spread)
    ends = np.cumsum([indicator.shape[1] for indicator in indicators])
    parts = np.split(sums, ends[:-1], axis=1)
    return tuple(_mean_silhouette(part, indicator) for part, indicator in zip(parts, indicators, strict=True))


def _table(points: np.ndarray) -> tuple[Float[np.ndarray, "token axis_and_two"], float]:
    """Return [x, ‖x‖², 1] of the centred points divided by their largest entry, and that entry."""
    mean = points.mean(axis=0, dtype=np.float64)
    scale = float(max((points.max(axis=0) - mean).max(), (mean - points.min(axis=0)).max())) or 1.0
    probed = np.linspace(0, len(points) - 1, min(len(points), 2 * PROBED)).astype(np.int64)
    fast = len(points) > EXACT_ROWS and _near_share((points[probed] - mean) / scale) < MANY
    table = np.empty((len(points), points.shape[1] + 2), np.float32 if fast else np.float64)
    for part in chunks(len(points)):
        rows = (points[part] - mean) / scale
        table[part, :-2], table[part, -2], table[part, -1] = rows, np.einsum("nd,nd->n", rows, rows), 1
    if not fast:
        table[:, -2] *= 1 - SAME
    return table, scale


def _near_share(rows: np.ndarray) -> float:
    """Estimate the share of near pairs among these rows: every second row against the others."""
    even_rows, odd_rows = rows[::2], rows[1::2]
    squares = np.einsum("nd,nd->n", even_rows, even_rows)[:, None]
    distances = squares + np.einsum("nd,nd->n", odd_rows, odd_rows) - 2 * even_rows @ odd_rows.T
    return float((distances < NEAR * squares).mean())


def _distance_sums(table: np.ndarray, indicators: np.ndarray, spread: ParallelMap) -> np.ndarray:
    """Return the summed distances [N, ΣK] from each row to the rows that each indicator column marks."""
    marks = indicators.astype(table.dtype)
    n = len(table)

    def sum_block(begin: int) -> np.ndarray:
        """Sum distances between a block of rows and all rows from it on, for both sides: [N - begin, ΣK]."""
        upper = slice(begin, begin + BLOCK)
        left = -2 * table[upper]
        left[:, -2], left[:, -1] = 1, table[upper, -2]
        sums = np.zeros((n - begin, indicators.shape[1]))
        for at in range(begin, n, BLOCK):
            lower = slice(at, at + BLOCK)
            distances = left @ table[lower].T
            np.maximum(distances, 0, out=distances)
            np.sqrt(distances, out=distances)
            if at == begin:
                np.fill_diagonal(distances, 0)
            else:
                sums[at - begin : at - begin + BLOCK] += distances.T @ marks[upper]
            sums[:BLOCK] += distances @ marks[lower]
        return sums

    sums = np.zeros_like(indicators)
    begins = range(0, n, BLOCK)
    for begin, block_sums in zip(begins, spread(sum_block, begins), strict=True):
        sums[begin:] += block_sums
    return sums


def _mean_silhouette(sums: np.ndarray, indicator: np.ndarray) -> float | None:
    sizes = indicator.sum(axis=0)
    if len(sizes) < 2:
        return None
    # One True per row.
    own = indicator.astype(bool)  # [N, K]
    size = sizes[own.argmax(axis=1)]
    inside = sums[own] / np.maximum(size - 1, 1)
    outside = np.where(own, np.inf, sums / sizes).min(axis=1)
    larger = np.maximum(inside, outside)
    scores = np.where(size > 1, (outside - inside) / np.where(larger > 0, larger, 1.0), 0.0)
    return float(scores.mean())


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


def choose_clusters(states: States, options: ClusterOptions | None = None, *, seed: int) -> Clustering:
    """Run K-means for each K and choose the K with the largest mean silhouette (the smaller K on a tie).

    Source: Shelim et al. 2025, section 4.3 and appendix D; Rousseeuw 1987. K is 1 where the largest mean
    silhouette is below options.min_silhouette. K never exceeds the number of distinct rows or N - 1, beyond
    which no silhouette exists. Distances are computed after a rotation that drops directions without variance.
    Raises ValueError for fewer than 3 rows, or where all rows are equal.
    """
    options = options or ClusterOptions()
    if largest_k(states, options.k_max) < 2:
        raise ValueError(f"states: got {len(states)} rows, expected at least 3 of which 2 differ")
    points = principal_coordinates(states, covariance_spectrum(states))
    return choose_among(states, points, options, seed=seed)


def largest_k(states: States, k_max: int) -> int:
    """Return the largest K up to k_max that has a silhouette; a value below 2 means that none has."""
    return min(k_max, distinct_rows(states, k_max), len(states) - 1)


def choose_among(
    states: States, points: Points, options: ClusterOptions, *, seed: int, quick: bool = False
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


def choose_by_type(
    states: States, types: Types | None, points: Points, options: ClusterOptions, *, seed: int, quick: bool = False
) -> Clustering:
    """Choose clusters of the type means, each once, and give every row the cluster of its type.

    Without types, it is `choose_among`. Rows of frequent types would form clusters of their own: with 200 isotropic
    types and 512 rows, K was the largest one allowed. options.silhouette_rows counts type means; inertias are those of
    type means. K is 1, without silhouettes, for fewer than 3 types and where all type means are equal.
    """
    if types is None:
        return choose_among(states, points, options, seed=seed, quick=quick)
    _, first, own, counts = np.unique(types, return_index=True, return_inverse=True, return_counts=True)
    # The difference from the first row of the type is exactly 0 where all rows of a type are equal.
    order = np.argsort(own, kind="stable")
    sums = np.add.reduceat((states - states[first[own]])[order], np.cumsum(counts) - counts, axis=0)
    means = states[first] + sums / counts[:, None]
    if largest_k(means, options.k_max) < 2:
        return Clustering(1, np.zeros(len(states), dtype=np.int64), (), ())
    mean_points = principal_coordinates(means, covariance_spectrum(means))
    clusters = choose_among(means, mean_points, options, seed=seed, quick=quick)
    return replace(clusters, labels=clusters.labels[own])


def distinct_rows(states: States, limit: int) -> int:
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
