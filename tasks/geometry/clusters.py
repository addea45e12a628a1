"""Clusters by K-means, their number by the silhouette."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from tasks.geometry.dimension import Spectrum, covariance_spectrum, principal_coordinates
from tasks.geometry.kmeans import Partition, kmeans
from tasks.geometry.silhouette import mean_silhouettes


@dataclass(frozen=True)
class ClusterOptions:
    """K runs over 2..k_max; below min_silhouette K is 1; silhouettes are taken on at most silhouette_rows rows."""

    k_max: int = 10
    restarts: int = 10
    min_silhouette: float = 0.1  # Cai et al. 2021
    silhouette_rows: int = 20_000

    def __post_init__(self) -> None:
        for name, least in (("k_max", 2), ("restarts", 1), ("silhouette_rows", 3)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected at least {least}")


@dataclass(frozen=True, eq=False)
class Clustering:
    """The chosen K with its labels, and mean silhouettes and inertias for K = 2, 3, … as far as they are defined.

    A silhouette is None where the sampled rows fell into one cluster. Inertia is a share of that of one cluster.
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
    """K-means for each K, and the K whose mean silhouette is largest (the smaller K on a tie).

    Source: isotropy paper, section 4.3 and appendix D; Rousseeuw 1987. K never passes the number of distinct rows or
    N - 1, where no silhouette exists. spectrum: of the same states, if at hand. Distances are taken after a rotation
    that drops directions without variance. Raises ValueError for fewer than 3 rows, or rows all equal.
    """
    options = options or ClusterOptions()
    k_max = min(options.k_max, distinct_rows(states, options.k_max), len(states) - 1)
    if k_max < 2:
        raise ValueError(f"states: got {len(states)} rows, expected at least 3 of which 2 differ")
    points = principal_coordinates(states, spectrum or covariance_spectrum(states))
    fits = kmeans(points, k_max, restarts=options.restarts, seed=seed)
    sample = _sample(len(points), options.silhouette_rows, seed)
    scores = mean_silhouettes(points[sample], [fit.labels[sample] for fit in fits])
    total = float(np.einsum("nd,nd->", points, points))
    inertias = tuple(fit.inertia / total for fit in fits)
    labels = _best(fits, scores, options.min_silhouette, len(points))
    return Clustering(int(labels.max()) + 1, labels, scores, inertias)


def distinct_rows(states: Float[np.ndarray, "token width"], limit: int) -> int:
    """Number of distinct rows, counted no further than limit."""
    rows = np.asarray(states)
    found = min(limit, len(np.unique(rows[: 4 * limit], axis=0)))  # settles it for most states
    if found == limit:
        return found
    found = 0
    while len(rows) and found < limit:
        rows = rows[(rows != rows[0]).any(axis=1)]
        found += 1
    return found


def _sample(n: int, limit: int, seed: int) -> np.ndarray:
    if n <= limit:
        return np.arange(n)
    return np.sort(np.random.default_rng([seed, 1]).choice(n, limit, replace=False))


def _best(fits: list[Partition], scores: Sequence[float | None], least: float, n: int) -> np.ndarray:
    known = [-np.inf if score is None else score for score in scores]
    best = int(np.argmax(known))
    return fits[best].labels if known[best] >= least else np.zeros(n, dtype=np.int64)
