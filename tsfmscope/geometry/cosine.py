"""Inter-token cosine ζ in closed form, and adjusted cosine ζ′ within centred clusters, with its floor and its nulls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Integer
from numpy.lib.stride_tricks import sliding_window_view

Rows = Float[np.ndarray, "token width"]
Types = Integer[np.ndarray, " token"]


@dataclass(frozen=True)
class Cosine:
    """Inter-token cosines: zeta weighs token types, zeta_token weighs occurrences.

    Both are None with fewer than two types. Zero rows are left out. n_types: types that have rows that are
    not zero. n_zero: number of rows left out.
    """

    zeta: float | None
    zeta_token: float | None
    n_types: int
    n_zero: int


def inter_token_cosine(states: Rows, types: Types | None = None) -> Cosine:
    """Return the expected cosine between two different token types, in O(N d).

    With u_i the unit rows, ū_k the mean and s_k the sum of the u_i of type k, n_k their number and K types:

        zeta = (‖Σ ū_k‖² - Σ ‖ū_k‖²) / (K² - K)
        zeta_token = (‖Σ u_i‖² - Σ ‖s_k‖²) / (N² - Σ n_k²)

    Source: Shelim et al. 2025, eq. 1. zeta is the exact expectation of eq. 1 over one random instance per
    type. Without types, every row is its own type, and the two are equal.

    Constant input: both are 1 where there are at least two types. A single token, one type, or zero rows
    only: both are None. NaN and infinity are not detected: a row with NaN is left out like a zero row, and a
    row with infinity makes both -1. Check the states first. Raises ValueError where types and states differ
    in length.
    """
    if types is not None and len(types) != len(states):
        raise ValueError(f"types: got {len(types)}, expected one per row, {len(states)}")
    units, is_nonzero = unit_rows(states)
    n_zero = len(states) - len(units)
    if types is None:
        sums, counts = units, np.ones(len(units))
    else:
        kinds = np.asarray(types)[is_nonzero]
        order = np.argsort(kinds, kind="stable")
        _, starts, rows_by_type = np.unique(kinds[order], return_index=True, return_counts=True)
        counts = rows_by_type.astype(np.float64)
        sums = np.add.reduceat(units[order], starts, axis=0) if len(starts) else units
    n_types = len(sums)
    if n_types < 2:
        return Cosine(None, None, n_types, n_zero)
    means = sums / counts[:, None]
    zeta = _off_diagonal(means) / (n_types**2 - n_types)
    n = counts.sum()
    zeta_token = _off_diagonal(sums) / (n**2 - counts @ counts)
    return Cosine(_clip(zeta), _clip(zeta_token), n_types, n_zero)


def unit_rows(states: Rows) -> tuple[Float[np.ndarray, "kept width"], np.ndarray]:
    """Return rows divided by their Euclidean norm in float64, without zero rows, and the mask [N] of kept rows.

    Each row is first divided by its largest entry, so that no square overflows or underflows.
    """
    rows = np.asarray(states, dtype=np.float64)
    largest = np.abs(rows).max(axis=1, initial=0.0)
    is_nonzero = largest > 0
    scaled = rows[is_nonzero] / largest[is_nonzero, None]
    return scaled / np.sqrt(np.einsum("nd,nd->n", scaled, scaled))[:, None], is_nonzero


def _off_diagonal(vectors: np.ndarray) -> float:
    """Return the sum of v_i · v_j over i ≠ j."""
    total = vectors.sum(axis=0)
    return float(total @ total - np.einsum("kd,kd->", vectors, vectors))


def _clip(cosine: float) -> float:
    # Rounding can exceed ±1.
    return min(1.0, max(-1.0, float(cosine)))


# A residual below this share of the cluster's largest norm is the float64 rounding of equal rows.
SAME = 1e-12
# The null is summed in float32. Cosines that differ by less than this are ties (two types of equal
# rows always give -1).
ROUNDING = 1e-6
# Below this number of types, each column gets its own shuffle: rotations of one order would be too
# few.
FEW_TYPES = 64
# Normal numbers of which all draws of random directions take parts: they cost 1 ms, and 30 million take 300 ms.
POOL = 2**16
# Steps to the spatial median, of rows whose largest entry is 1, and the least distance from it.
STEPS, TINY = 5, 1e-30


@dataclass(frozen=True)
class Null:
    """Mean and standard deviation of ζ′ over the draws of a null, and ζ′ compared with them.

    p: two-sided p-value. excess: ζ′ minus the mean. All are None with fewer than 2 draws.
    """

    mean: float | None = None
    sd: float | None = None
    p: float | None = None
    excess: float | None = None


@dataclass(frozen=True)
class Adjusted:
    """Adjusted cosine ζ′ averaged over clusters, with its floor and its nulls.

    - mean: plain mean of ζ over the used clusters; weighted: the mean weighted by cluster size.
    - floor: mean of `isotropic_floor` over the used clusters.
    - permuted: null of permutations of the type means.
    - directed: null of random directions for the type means, which keep their norms.
    - used: number of clusters averaged.
    - small: number of clusters left out because they have fewer than min_cluster rows.
    - single: number of clusters left out because they have one token type, or because all their rows are
      equal.

    Every measure is None where no cluster is used.
    """

    mean: float | None = None
    weighted: float | None = None
    floor: float | None = None
    permuted: Null = Null()
    directed: Null = Null()
    used: int = 0
    small: int = 0
    single: int = 0


def adjusted_cosine(
    states: Rows,
    labels: Types,
    types: Types | None = None,
    *,
    min_cluster: int = 30,
    permutations: int = 0,
    directions: int = 0,
    seed: int = 0,
) -> Adjusted:
    """Average the inter-token cosine ζ of rows minus their cluster mean over clusters.

        ζ′ = mean over clusters c of ζ(ψ_i - mean of c, i in c), token types counted inside each cluster

    Source: Shelim et al. 2025, eq. 6; docs/science.md, Adjusted cosine.

    Floor and nulls: ζ weighs types, so all describe the types of a cluster and the number of rows of each
    type. See `isotropic_floor`, `permuted_cosines` and `directed_cosines`. Without types, every row is its own type.
    permutations, directions: number of draws of each null. p = 2 min(#{≤} + 1, #{≥} + 1) / (draws + 1), at most 1.
    With 39 draws, p is 0.05 where ζ′ lies outside all draws. K-means also cuts a single isotropic cloud, and its parts
    are not isotropic. directed.p is therefore the larger of that within the clusters and that of all rows as one
    cluster. A larger p does not show isotropy: residuals of equal norm have the same sum of cosines whatever their
    covariance is.

    Left out: clusters of fewer than min_cluster rows (not types), and clusters of one type or of equal rows, which have
    no ζ. Constant states and a single token therefore give None. NaN and infinity are not detected (NaN rows
    of a cluster count as zero rows): check the states first. Raises ValueError where labels and states differ
    in length.
    """
    if len(labels) != len(states):
        raise ValueError(f"labels: got {len(labels)}, expected one per row, {len(states)}")
    order = np.argsort(labels, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(np.asarray(labels)[order])) + 1)
    # Two generators, so that the number of draws of one null does not change the other.
    rng, other_rng = np.random.default_rng([seed, 3]), np.random.default_rng([seed, 8])
    zetas, sizes, floors, permuted, directed, small, single = [], [], [], [], [], 0, 0
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
        permuted.append(permuted_cosines(residuals, kinds, permutations, rng))
        directed.append(directed_cosines(residuals, kinds, directions, other_rng))
    if not zetas:
        return Adjusted(small=small, single=single)
    mean, weighted = float(np.mean(zetas)), float(np.average(zetas, weights=sizes))
    null, other_null = (_null(mean, np.mean(draws, axis=0)) for draws in (permuted, directed))
    if directions > 1 and len(groups) > 1:
        together = adjusted_cosine(
            states, np.zeros(len(states), int), types, min_cluster=min_cluster, directions=directions, seed=seed
        )
        other_null = replace(other_null, p=max(other_null.p or 0.0, together.directed.p or 0.0))
    return Adjusted(mean, weighted, float(np.mean(floors)), null, other_null, len(zetas), small, single)


def _null(zeta: float, draws: Float[np.ndarray, " draw"]) -> Null:
    """Summarise the draws of a null of this ζ′."""
    if len(draws) < 2:
        return Null()
    tail = min(int((draws <= zeta + ROUNDING).sum()), int((draws >= zeta - ROUNDING).sum()))
    null, p = float(draws.mean()), min(1.0, 2 * (tail + 1) / (len(draws) + 1))
    return Null(null, float(draws.std(ddof=1)), p, zeta - null)


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
    residuals: Rows, types: Types | None, permutations: int, rng: np.random.Generator
) -> Float[np.ndarray, " permutation"]:
    """Return ζ of the rows after each shuffle of their type means, column by column, and a new centring.

    Each row keeps its position, its type and its difference from the mean of its type. Every column of the
    type means is assigned to the types in its own random order. This keeps the values of every coordinate and
    removes the relation between coordinates. Source: docs/science.md, Adjusted cosine. Arithmetic in float32, sums in
    float64. Returns one value per permutation, within [-1, 1].
    """

    def redraw(means: np.ndarray) -> Iterator[np.ndarray]:
        return (_shuffle_columns(means, rng) for _ in range(permutations))

    return _redrawn_cosines(residuals, types, redraw) if permutations else np.zeros(0)


def directed_cosines(
    residuals: Rows, types: Types | None, draws: int, rng: np.random.Generator
) -> Float[np.ndarray, " draw"]:
    """Return ζ of the rows after each draw of random directions for their type means, and a new centring.

    Each row keeps its type and its difference from the mean of its type. Each type mean gets a uniformly random
    direction and the norm that it had before centring (`norms_before_centring`). Directions are parts of POOL normal
    numbers, with a random sign for each type. Source: docs/science.md, Adjusted cosine. Arithmetic in float32, sums
    in float64. Returns one value per draw, within [-1, 1].
    """

    def redraw(means: np.ndarray) -> Iterator[np.ndarray]:
        norms, (width, n) = norms_before_centring(means), means.shape
        parts = sliding_window_view(rng.standard_normal(max(POOL, 2 * n), np.float32), n)
        for _ in range(draws):
            rows = parts[rng.integers(len(parts), size=width)]
            lengths = np.sqrt(np.einsum("dn,dn->n", rows, rows))
            # In place: a new array of this size costs as much as all other steps.
            rows *= (rng.choice([-1, 1], n) * norms / lengths).astype(np.float32)
            yield rows

    return _redrawn_cosines(residuals, types, redraw) if draws else np.zeros(0)


def norms_before_centring(means: Float[np.ndarray, "width type"]) -> Float[np.ndarray, " type"]:
    """Estimate the norms of vectors of random directions from the vectors minus an unknown centre.

    Each norm is the distance from the spatial median times √(T / (T - 1)), which corrects T equal norms for the error
    of the median. The mean is not precise enough: long vectors and frequent types move it. The median results from
    STEPS steps of Weiszfeld 1937. Equal vectors have norm 0.
    """
    n, centre = len(means.T), means.mean(axis=1)
    for _ in range(STEPS):
        differences = means - centre[:, None]
        distances = np.sqrt(np.einsum("dn,dn->n", differences, differences))
        weights = 1 / np.maximum(distances, TINY)
        centre = means @ (weights / weights.sum())
    return np.asarray(distances * np.sqrt(n / (n - 1)))


def _redrawn_cosines(
    residuals: Rows, types: Types | None, redraw: Callable[[np.ndarray], Iterator[np.ndarray]]
) -> Float[np.ndarray, " draw"]:
    """Return ζ of the rows for each redrawn set of type means, and a new centring.

    redraw: gets the type means [d, T] in float32 and yields others, as new arrays. Each row keeps its difference from
    the mean of its type.
    """
    kinds = np.arange(len(residuals)) if types is None else np.unique(types, return_inverse=True)[1]
    order = np.argsort(kinds, kind="stable")
    counts = np.bincount(kinds)
    starts = np.concatenate([[0], np.cumsum(counts[:-1])])
    largest = np.abs(residuals).max() or 1.0
    is_own = len(counts) == len(order)
    columns = np.ascontiguousarray((residuals[order] / largest).T, np.float32 if is_own else np.float64)  # [d, N]
    means = columns if is_own else np.add.reduceat(columns, starts, axis=1) / counts
    differences = 0 if is_own else (columns - np.repeat(means, counts, axis=1)).astype(np.float32)
    shares, zetas = (counts / len(order)).astype(np.float32), []
    for drawn in redraw(means.astype(np.float32)):
        # BLAS reads whole vectors of memory, and what lies beyond the array may set the flag "invalid".
        with np.errstate(invalid="ignore"):
            drawn -= (drawn @ shares)[:, None]
            rows = drawn if is_own else np.repeat(drawn, counts, axis=1) + differences
            zetas.append(_cosine(rows, counts, starts))
    return np.array(zetas).clip(-1, 1)


def _shuffle_columns(
    columns: Float[np.ndarray, "width type"], rng: np.random.Generator
) -> Float[np.ndarray, "width type"]:
    """Shuffle each column's values over the types.

    With FEW_TYPES types or more, all columns share one random order, and each column is rotated by its own
    random offset. This shuffles 768 columns at the cost of a copy.
    """
    width, n = columns.shape
    if n < FEW_TYPES:
        return np.asarray(rng.permuted(columns, axis=1))
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
