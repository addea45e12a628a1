"""Adjusted cosine ζ′ (cosine within centred clusters), with its floor and its null for isotropic token types."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer

from tsfmscope.geometry.cosine import inter_token_cosine

# A residual below this share of the cluster's largest norm is the float64 rounding of equal rows.
SAME = 1e-12
# The null is summed in float32. Cosines that differ by less than this are ties (two types of equal
# rows always give -1).
ROUNDING = 1e-6
# Below this number of types, each column gets its own shuffle: rotations of one order would be too
# few.
FEW_TYPES = 64


@dataclass(frozen=True)
class Adjusted:
    """Adjusted cosine ζ′ averaged over clusters, with its floor, its null and its p-value.

    - mean: plain mean of ζ over the used clusters; weighted: the mean weighted by cluster size.
    - floor: mean of `isotropic_floor` over the used clusters.
    - null, null_sd: mean and standard deviation of `mean` over permutations of the type means.
    - p: two-sided p-value of `mean` against that null; corrected: mean - null.
    - used: number of clusters averaged.
    - small: number of clusters left out because they have fewer than min_cluster rows.
    - single: number of clusters left out because they have one token type, or because all their rows are
      equal.

    Every measure is None where no cluster is used. null, null_sd, p and corrected are None with fewer than 2
    permutations.
    """

    mean: float | None = None
    weighted: float | None = None
    floor: float | None = None
    corrected: float | None = None
    null: float | None = None
    null_sd: float | None = None
    p: float | None = None
    used: int = 0
    small: int = 0
    single: int = 0


def adjusted_cosine(
    states: Float[np.ndarray, "token width"],
    labels: Integer[np.ndarray, " token"],
    types: Integer[np.ndarray, " token"] | None = None,
    *,
    min_cluster: int = 30,
    permutations: int = 0,
    seed: int = 0,
) -> Adjusted:
    """Average the inter-token cosine ζ of rows minus their cluster mean over clusters.

        ζ′ = mean over clusters c of ζ(ψ_i - mean of c, i in c), token types counted inside each cluster

    Source: Shelim et al. 2025, eq. 6; docs/science.md, Adjusted cosine.

    Floor and null: ζ weighs types, so both describe the types of a cluster and the number of rows of each
    type. See `isotropic_floor` and `permuted_cosines`. Without types, every row is its own type.
    permutations: number of draws of the null. p = 2 min(#{≤} + 1, #{≥} + 1) / (permutations + 1), at most 1.
    With 39 permutations, p is 0.05 where ζ′ lies outside all draws. A larger p does not show that the states are
    isotropic: residuals of equal norm have the same sum of cosines whatever their covariance is.

    Left out: clusters of fewer than min_cluster rows, and clusters of one type or of equal rows, which have
    no ζ. Constant states and a single token therefore give None. NaN and infinity are not detected (NaN rows
    of a cluster count as zero rows): check the states first. Raises ValueError where labels and states differ
    in length.
    """
    if len(labels) != len(states):
        raise ValueError(f"labels: got {len(labels)}, expected one per row, {len(states)}")
    order = np.argsort(labels, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(np.asarray(labels)[order])) + 1)
    rng = np.random.default_rng([seed, 3])
    zetas, sizes, floors, nulls, small, single = [], [], [], [], 0, 0
    for rows in groups:
        if len(rows) < min_cluster:
            small += 1
            continue
        kinds = None if types is None else types[rows]
        members = np.asarray(states[rows], dtype=np.float64)
        residuals = members - members.mean(axis=0)
        # Residuals that are rounding alone become exactly zero.
        residuals[np.abs(residuals).max(axis=1) <= SAME * np.abs(members).max()] = 0.0
        zeta = inter_token_cosine(residuals, kinds).zeta
        if zeta is None:
            single += 1
            continue
        zetas.append(zeta)
        sizes.append(len(rows))
        counts = np.ones(len(rows), np.int64) if kinds is None else np.unique(kinds, return_counts=True)[1]
        floors.append(isotropic_floor(counts))
        nulls.append(permuted_cosines(residuals, kinds, permutations, rng))
    if not zetas:
        return Adjusted(small=small, single=single)
    mean, weighted = float(np.mean(zetas)), float(np.average(zetas, weights=sizes))
    floor, draws, used = float(np.mean(floors)), np.mean(nulls, axis=0), len(zetas)
    if len(draws) < 2:
        return Adjusted(mean, weighted, floor, used=used, small=small, single=single)
    null, null_sd = float(draws.mean()), float(draws.std(ddof=1))
    tail = min(int((draws <= mean + ROUNDING).sum()), int((draws >= mean - ROUNDING).sum()))
    p = min(1.0, 2 * (tail + 1) / (len(draws) + 1))
    return Adjusted(mean, weighted, floor, mean - null, null, null_sd, p, used, small, single)


def isotropic_floor(counts: Integer[np.ndarray, " type"]) -> float:
    """Return the expected ζ of centred isotropic types in high dimension, where rows of one type are equal.

    With shares w_t = n_t/n and s = Σ w_t², the floor is the mean over pairs t ≠ u of

        (s - w_t - w_u) / √((1 - 2 w_t + s) (1 - 2 w_u + s))

    This is -1/(K - 1) where all K counts are equal. Source: docs/science.md, Adjusted cosine. Types with the same count
    are processed together, so time grows with the number of different counts. Raises ValueError for fewer
    than two types.
    """
    if len(counts) < 2:
        raise ValueError(f"counts: got {len(counts)} types, expected at least 2")
    values, types = np.unique(counts, return_counts=True)
    shares = values / np.sum(counts, dtype=np.float64)
    total = float(types @ np.square(shares))
    # Norm of a centred type, relative to the norm of an isotropic type that is not centred.
    norms = np.sqrt(1 - 2 * shares + total)
    cosines = (total - shares[:, None] - shares) / (norms[:, None] * norms)
    pairs = types[:, None] * types - np.diag(types)
    return float((cosines * pairs).sum() / pairs.sum())


def permuted_cosines(
    residuals: Float[np.ndarray, "token width"],
    types: Integer[np.ndarray, " token"] | None,
    permutations: int,
    rng: np.random.Generator,
) -> Float[np.ndarray, " permutation"]:
    """Return ζ of the rows after each shuffle of their type means, column by column, and a new centring.

    Each row keeps its position, its type and its difference from the mean of its type. Every column of the
    type means is assigned to the types in its own random order. This keeps the values of every coordinate and
    removes the relation between coordinates. Source: docs/science.md, Adjusted cosine. Arithmetic in float32, sums in
    float64. Returns one value per permutation, within [-1, 1].
    """
    kinds = np.arange(len(residuals)) if types is None else np.unique(types, return_inverse=True)[1]
    order = np.argsort(kinds, kind="stable")
    counts = np.bincount(kinds)
    starts = np.concatenate([[0], np.cumsum(counts[:-1])])
    largest = np.abs(residuals).max() or 1.0
    columns = np.ascontiguousarray((residuals[order] / largest).T, dtype=np.float64)  # [d, N], types together
    means = np.add.reduceat(columns, starts, axis=1) / counts
    # Index of each row's type.
    own = np.repeat(np.arange(len(counts)), counts)
    differences = (columns - means[:, own]).astype(np.float32) if len(counts) < len(own) else None
    shares, means = counts / len(own), means.astype(np.float32)
    zetas = np.empty(permutations)
    for at in range(permutations):
        shuffled_means = _shuffle_columns(means, rng)
        # BLAS reads whole vectors of memory, and what lies beyond the array may set the flag "invalid".
        with np.errstate(invalid="ignore"):
            shuffled_means -= (shuffled_means @ shares.astype(np.float32))[:, None]
        zetas[at] = _cosine(
            shuffled_means if differences is None else shuffled_means[:, own] + differences, counts, starts
        )
    clipped: np.ndarray = zetas.clip(-1, 1)
    return clipped


def _shuffle_columns(
    columns: Float[np.ndarray, "width type"], rng: np.random.Generator
) -> Float[np.ndarray, "width type"]:
    """Shuffle each column's values over the types.

    With FEW_TYPES types or more, all columns share one random order, and each column is rotated by its own
    random offset. This shuffles 768 columns at the cost of a copy.
    """
    width, n = columns.shape
    if n < FEW_TYPES:
        shuffled: np.ndarray = rng.permuted(columns, axis=1)
        return shuffled
    order, turned = np.tile(rng.permutation(n), 2), np.empty_like(columns)
    for column, target, turn in zip(columns, turned, rng.integers(n, size=(width,)), strict=True):
        # mode="raise" would allocate a buffer.
        np.take(column, order[turn : turn + n], out=target, mode="clip")
    return turned


def _cosine(columns: np.ndarray, counts: np.ndarray, starts: np.ndarray) -> float:
    """Return ζ of rows [d, N] that are sorted by type.

    Rows of norm 0, and types that have only such rows, are left out.
    """
    norms = np.sqrt(np.einsum("dn,dn->n", columns, columns))
    nonzero_counts = np.add.reduceat((norms > 0).astype(np.int64), starts)
    # Weight of a row in the mean of its type.
    share = np.repeat(1 / np.maximum(nonzero_counts, 1), counts)
    weights = (share / np.where(norms > 0, norms, 1)).astype(np.float32)
    total = (columns @ weights).astype(np.float64)
    n_types = int(np.count_nonzero(nonzero_counts))
    if len(counts) == len(norms):
        own = float(n_types)
    else:
        own = float(np.square(np.add.reduceat(columns * weights, starts, axis=1)).sum(dtype=np.float64))
    return (float(total @ total) - own) / max(n_types**2 - n_types, 1)
