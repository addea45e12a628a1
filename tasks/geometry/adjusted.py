"""Cosine inside clusters, after each cluster's mean is taken away, and what chance would make of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer

from tasks.geometry.cosine import inter_token_cosine

SAME = 1e-12  # a residual under this share of the cluster's largest norm is rounding of equal rows (float64)


@dataclass(frozen=True)
class Adjusted:
    """zeta′ as the plain mean over clusters, weighted by size, its mechanical floor, and with the floor removed.

    null, null_sd: mean and standard deviation of `mean` over column permutations; p: two-sided, from them.
    used: clusters averaged; small: clusters left out for having under min_cluster rows. None of it when none is used,
    and no null where no permutations were asked for.
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


def adjusted_cosine(
    states: Float[np.ndarray, "token width"],
    labels: Integer[np.ndarray, " token"],
    types: Integer[np.ndarray, " token"] | None = None,
    *,
    min_cluster: int = 30,
    permutations: int = 0,
    seed: int = 0,
) -> Adjusted:
    """ζ′ = mean over clusters of ζ(ψ - mean of the cluster), token types counted inside the cluster.

    Source: isotropy paper, eq. 6. n_c centred rows have ζ near -1/(n_c - 1) however isotropic they are, so clusters
    under min_cluster rows are left out, and `corrected` = mean of ζ_c + 1/(n_c - 1) stands beside. A cluster of equal
    rows, or of one type, has no ζ and is left out as well (neither used nor small). NaN gives NaN: check before.

    permutations: how often the columns of every used cluster's residuals are shuffled against each other, which leaves
    every coordinate's values and no relation between coordinates. p = 2 min(#{≤} + 1, #{≥} + 1) / (permutations + 1),
    at most 1: of 39 it is 0.05 where ζ′ lies outside all, and above it ζ′ is indistinguishable from isotropic.
    """
    if len(labels) != len(states):
        raise ValueError(f"labels: got {len(labels)}, expected one a row, {len(states)}")
    order = np.argsort(labels, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(np.asarray(labels)[order])) + 1)
    rng = np.random.default_rng([seed, 3])
    zetas, sizes, nulls, small = [], [], [], 0
    for rows in groups:
        if len(rows) < min_cluster:
            small += 1
            continue
        residuals, kinds = _residuals(states[rows]), None if types is None else types[rows]
        zeta = inter_token_cosine(residuals, kinds).zeta
        if zeta is not None:
            zetas.append(zeta)
            sizes.append(len(rows))
            nulls.append(permuted_cosines(residuals, kinds, permutations, rng))
    if not zetas:
        return Adjusted(small=small)
    floor, mean = float(np.mean([-1 / (n - 1) for n in sizes])), float(np.mean(zetas))
    weighted, null = float(np.average(zetas, weights=sizes)), _against(mean, np.mean(nulls, axis=0))
    return Adjusted(mean, weighted, floor, mean - floor, *null, used=len(zetas), small=small)


def permuted_cosines(
    residuals: Float[np.ndarray, "token width"],
    types: Integer[np.ndarray, " token"] | None,
    permutations: int,
    rng: np.random.Generator,
) -> Float[np.ndarray, " permutation"]:
    """ζ of rows whose columns are shuffled against each other; types stay in their places.

    Each time the rows come in one random order, in which every column is turned by its own random number of places: a
    shuffle of 768 columns at the price of a copy. Float32, sums in float64; a row of norm 0 is a zero vector.
    """
    n, width = residuals.shape
    counts = np.ones(n) if types is None else np.unique(types, return_counts=True)[1].astype(np.float64)
    starts = np.concatenate([[0], np.cumsum(counts[:-1])]).astype(np.int64)
    share = np.repeat(1 / counts, counts.astype(np.int64))  # of a row in the mean of the type that has its place
    largest = np.abs(residuals).max() or 1.0
    columns = np.ascontiguousarray((residuals / largest).T, dtype=np.float32)  # [d, N]
    turned, zetas = np.empty_like(columns), np.empty(permutations)
    for at in range(permutations):
        order = np.tile(rng.permutation(n), 2)
        turns = rng.integers(n, size=(width,))
        for column, place, turn in zip(columns, turned, turns, strict=True):
            np.take(column, order[turn : turn + n], out=place, mode="clip")  # "raise" would buffer
        norms = np.sqrt(np.einsum("dn,dn->n", turned, turned))
        weights = (share / np.where(norms > 0, norms, 1)).astype(np.float32)
        total = (turned @ weights).astype(np.float64)
        if types is None:
            own = float(np.count_nonzero(norms))
        else:
            own = float(np.square(np.add.reduceat(turned * weights, starts, axis=1)).sum(dtype=np.float64))
        zetas[at] = (total @ total - own) / (len(counts) ** 2 - len(counts))
    return zetas


def _against(value: float, null: np.ndarray) -> tuple[float | None, float | None, float | None]:
    """Mean and standard deviation of the null, and the two-sided p of a value against it."""
    if len(null) < 2:
        return None, None, None
    tail = min(int((null <= value).sum()), int((null >= value).sum()))
    return float(null.mean()), float(null.std(ddof=1)), min(1.0, 2 * (tail + 1) / (len(null) + 1))


def _residuals(rows: np.ndarray) -> np.ndarray:
    """Rows less their mean in float64; those that differ from it by rounding alone become exactly zero."""
    rows = np.asarray(rows, dtype=np.float64)
    residuals: np.ndarray = rows - rows.mean(axis=0)
    rounding = np.abs(residuals).max(axis=1) <= SAME * np.abs(rows).max()
    residuals[rounding] = 0.0
    return residuals
