"""The isotropy measures of Cai et al. (2021), as their released code takes them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Integer

from tasks.geometry.clusters import ClusterOptions, choose_clusters, distinct_rows
from tasks.geometry.cosine import unit_rows

OPTIONS = ClusterOptions(k_max=15, restarts=10, min_silhouette=0.1, silhouette_rows=20_000)  # analysis.py, --cluster


@dataclass(frozen=True)
class Cai:
    """inter_cosine: mean cosine of one occurrence a type; cluster_cosine: that inside centred clusters, their mean.

    n: occurrences; k: clusters; silhouettes for K = 2, 3, … None, or empty, where they do not exist.
    """

    n: int
    inter_cosine: float | None
    k: int | None
    silhouettes: tuple[float | None, ...]
    cluster_cosine: float | None


def cai(
    states: Float[np.ndarray, "token width"], types: Integer[np.ndarray, " token"] | None = None, *, seed: int
) -> Cai:
    """One random occurrence a type; K-means for K = 2..15; cosines in all of them and inside every centred cluster.

    Source: Cai et al. 2021, sections 3 and 4; iclr21_isotropy_contxt, analysis.py with --maxl 1 --inter_cos, and with
    --maxl 1 --cluster --cluster_cos --center. K is the one of the largest mean silhouette (at most 20,000 points), 1
    below 0.1. Unlike ζ′: every cluster of two rows and more counts the same, and a zero row has cosine 0 with all, also
    with itself though 1 is taken off for it. Fewer than 3 occurrences of which 2 differ have no clusters.
    """
    if types is not None and len(types) != len(states):
        raise ValueError(f"types: got {len(types)}, expected one a row, {len(states)}")
    rows = np.asarray(states)
    if types is not None:
        rows = rows[one_a_type(types, np.random.default_rng([seed, 4]))]
    rows = rows.astype(np.float64)
    inter = _mean_cosine(rows)
    if len(rows) < 3 or distinct_rows(rows, 2) < 2:
        return Cai(len(rows), inter, None, (), None)
    chosen = choose_clusters(rows, OPTIONS, seed=seed)
    inside = [_mean_cosine(_centred(rows[chosen.labels == label])) for label in range(chosen.k)]
    known = [cosine for cosine in inside if cosine is not None]
    return Cai(len(rows), inter, chosen.k, chosen.silhouettes, float(np.mean(known)) if known else None)


def one_a_type(types: Integer[np.ndarray, " token"], rng: np.random.Generator) -> Int[np.ndarray, " type"]:
    """A row of every type, each of its rows with the same chance, types ascending."""
    shuffled = rng.permutation(len(types))
    first = np.unique(np.asarray(types)[shuffled], return_index=True)[1]
    chosen: np.ndarray = shuffled[first]
    return chosen


def _centred(rows: np.ndarray) -> np.ndarray:
    centred: np.ndarray = rows - rows.mean(axis=0)
    return centred


def _mean_cosine(rows: np.ndarray) -> float | None:
    """Mean over pairs of different rows as (Σ_ij cos - n) / (n (n - 1)); one row has none."""
    n = len(rows)
    if n < 2:
        return None
    total = unit_rows(rows)[0].sum(axis=0)
    return float((total @ total - n) / (n * (n - 1)))
