"""Isotropy measures of Cai et al. (2021), computed as in their released code."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Integer

from tsfmscope.geometry.clusters import choose_clusters, distinct_rows
from tsfmscope.geometry.cosine import unit_rows
from tsfmscope.geometry.options import ClusterOptions

# Settings of the released analysis.py with --cluster.
OPTIONS = ClusterOptions(k_max=15, restarts=10, min_silhouette=0.1, silhouette_rows=20_000)


@dataclass(frozen=True)
class Cai:
    """Result of `cai`: cosines and clusters of one occurrence per token type.

    - n: number of occurrences.
    - inter_cosine: mean cosine of all pairs; None for fewer than two occurrences.
    - k: number of clusters; silhouettes: mean silhouettes for K = 2, 3, … k is None and silhouettes is empty
      where no clustering exists; a single silhouette is None where it is undefined.
    - cluster_cosine: mean over clusters of the mean cosine within the centred cluster, or None.
    """

    n: int
    inter_cosine: float | None
    k: int | None
    silhouettes: tuple[float | None, ...]
    cluster_cosine: float | None


def cai(
    states: Float[np.ndarray, "token width"], types: Integer[np.ndarray, " token"] | None = None, *, seed: int
) -> Cai:
    """Measure cosines and clusters on one random occurrence of each token type.

    K-means runs for K = 2..15. Cosines are averaged over all pairs, and within every centred cluster. K has
    the largest mean silhouette (on at most 20,000 points); K is 1 where that silhouette is below 0.1.

    Source: Cai et al. 2021, sections 3 and 4; repository iclr21_isotropy_contxt, analysis.py with --maxl 1
    --inter_cos, and with --maxl 1 --cluster --cluster_cos --center.

    Differences from ζ′: every cluster of two or more rows has equal weight. A zero row has cosine 0 with
    every row, itself included, and 1 is still subtracted for its pair with itself.

    Constant input, a single token, and fewer than 3 occurrences have no clusters: k and cluster_cosine are
    None. NaN and infinity are not accepted (the eigendecomposition raises LinAlgError): check the states
    first. Raises ValueError where types and states differ in length.
    """
    if types is not None and len(types) != len(states):
        raise ValueError(f"types: got {len(types)}, expected one per row, {len(states)}")
    rows = np.asarray(states)
    if types is not None:
        rows = rows[sample_one_per_type(types, np.random.default_rng([seed, 4]))]
    rows = rows.astype(np.float64)
    inter = _mean_cosine(rows)
    if len(rows) < 3 or distinct_rows(rows, 2) < 2:
        return Cai(len(rows), inter, None, (), None)
    clusters = choose_clusters(rows, OPTIONS, seed=seed)
    members = [rows[clusters.labels == label] for label in range(clusters.k)]
    inside = [_mean_cosine(own - own.mean(axis=0)) for own in members]
    known = [cosine for cosine in inside if cosine is not None]
    return Cai(len(rows), inter, clusters.k, clusters.silhouettes, float(np.mean(known)) if known else None)


def sample_one_per_type(types: Integer[np.ndarray, " token"], rng: np.random.Generator) -> Int[np.ndarray, " type"]:
    """Return the index of one random row of every type, types ascending; each row of a type is equally likely."""
    shuffled = rng.permutation(len(types))
    first = np.unique(np.asarray(types)[shuffled], return_index=True)[1]
    row_ids: np.ndarray = shuffled[first]
    return row_ids


def _mean_cosine(rows: np.ndarray) -> float | None:
    """Return the mean cosine over pairs of different rows, (Σ_ij cos - n) / (n (n - 1)).

    None for fewer than two rows.
    """
    n = len(rows)
    if n < 2:
        return None
    total = unit_rows(rows)[0].sum(axis=0)
    return float((total @ total - n) / (n * (n - 1)))
