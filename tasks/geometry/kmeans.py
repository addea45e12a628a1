"""K-means for several K at once: every restart of one K is one matrix product."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

BLOCK = 1024  # rows a product: distances to 280 centres (28 starts, K = 10) stay near the second-level cache
STARTS = 2  # k-means++ starts a restart asked for: short ones are cheap, and fewer lose to scikit-learn on duplicates
GROWN = 8  # starts made from the best solution with one centre less (Likas et al. 2003, global k-means)
KEPT_SEEDED, KEPT_GROWN = 8, 4  # the two kinds are ranked apart: grown ones are ahead early, not always at the end
FIRST_STEPS = 4  # steps of every start
LOOSE = 1e-4  # a kept start is parked once a step gains less than this share of its inertia
SLACK = 10  # a kept start is dropped when this many steps of its last gain would leave it behind the best
MIDDLE_STEPS, LAST_STEPS = 100, 300  # 300: scikit-learn's max_iter
TIGHT = 1e-4  # share of inertia left under which float32 distances hold too few digits for the next K: float64 then
TOLERANCE = 1e-4  # of the mean variance an axis, on the summed squared shift of the centres: scikit-learn's tol


@dataclass(frozen=True, eq=False)
class Partition:
    """Cluster of every row, from 0 and none empty, and the sum of squared distances to the clusters' means."""

    labels: Int[np.ndarray, " token"]
    inertia: float


class Rows(NamedTuple):
    """The points with a column of ones, in float64 and as the search uses them, and the squared norms of the latter."""

    exact: Float[np.ndarray, "token axis_and_one"]
    fast: Float[np.ndarray, "token axis_and_one"]
    squares: Float[np.ndarray, " token"]

    @classmethod
    def of(cls, points: np.ndarray, dtype: type = np.float32) -> Rows:
        """Rows whose search runs in `dtype`."""
        exact = np.concatenate([points, np.ones((len(points), 1))], axis=1)
        fast: np.ndarray = exact.astype(dtype, copy=False)
        return cls(exact, fast, np.einsum("nd,nd->n", fast[:, :-1], fast[:, :-1]))


def kmeans(
    points: Float[np.ndarray, "token axis"], k_max: int, *, restarts: int = 10, seed: int
) -> Iterator[Partition]:
    """The best partition found for K = 2..k_max, one after the other.

    Greedy k-means++ starts as in scikit-learn (one draw of k_max centres serves every K: its first K are one of K),
    and starts grown from the solution for K - 1; all take a few Lloyd steps, the best go on, the best of those until
    scikit-learn's tolerance. Products in float32, sums in float64, the last steps and the labels in float64.
    points: centred, of root mean square norm near 1 (dimension.principal_coordinates), with at least k_max distinct
    rows. Raises ValueError for fewer rows than k_max.
    """
    if len(points) < k_max:
        raise ValueError(f"points: got {len(points)} rows, expected at least k_max = {k_max}")
    rng = np.random.default_rng(seed)
    rows = Rows.of(points)
    starts = _seed(rows, k_max, STARTS * restarts, rng)
    best = points.mean(axis=0, keepdims=True)
    for k in range(2, k_max + 1):
        seeded = points[starts[:, :k]]  # [R, K, D]
        best = _search(rows, seeded, _grow(rows, best, rng))
        fit = _partition(points, best)
        yield fit
        if rows.fast.dtype == np.float32 and fit.inertia < TIGHT * rows.squares.sum(dtype=np.float64):
            rows = Rows.of(points, np.float64)
            starts = _seed(rows, k_max, STARTS * restarts, rng)


def _search(rows: Rows, seeded: np.ndarray, grown: np.ndarray) -> np.ndarray:
    """The best centres [K, D] reached from two kinds of starts [R, K, D]."""
    centres = np.concatenate([seeded, grown])
    for _ in range(FIRST_STEPS):
        centres, inertia, _ = _step(rows.fast, rows.squares, centres)
    order = np.argsort(inertia, kind="stable")
    order = np.concatenate([order[order < len(seeded)][:KEPT_SEEDED], order[order >= len(seeded)][:KEPT_GROWN]])
    best = _race(rows, centres[order], inertia[order])
    for table in (rows.fast, rows.exact):
        best = _converge(table, rows.squares, best)
    return best


def _race(rows: Rows, centres: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Steps until every start is parked or hopeless; the centres of the one with least inertia."""
    best: np.ndarray = centres[0]
    least = np.inf
    floor = 8 * np.finfo(rows.fast.dtype).eps * rows.squares.sum(dtype=np.float64)  # an inertia below is rounding
    for _ in range(MIDDLE_STEPS):
        centres, inertia, _ = _step(rows.fast, rows.squares, centres)
        first = int(np.argmin(inertia))
        if inertia[first] < least:
            best, least = centres[first], inertia[first]
        gain = before - inertia
        live = (gain > LOOSE * np.maximum(inertia, floor)) & (inertia - SLACK * gain <= least)
        if not live.any():
            break
        centres, before = centres[live], inertia[live]
    return best


def _converge(table: np.ndarray, squares: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Lloyd steps of one start [K, D] until its centres rest."""
    limit = TOLERANCE * squares.mean(dtype=np.float64) / (table.shape[1] - 1)
    for _ in range(LAST_STEPS):
        moved, _, shift = _step(table, squares, centres[None])
        centres = moved[0]
        if shift[0] <= limit:
            break
    return centres


def _step(table: np.ndarray, squares: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One Lloyd step of R starts: new centres [R, K, D], inertia [R] of the old ones, squared shift [R].

    table is the points with a column of ones, so that one product gives ‖c‖² - 2 c·x and another sums and counts.
    A centre without rows stays where it is; a row at equal distances counts for each.
    """
    starts, k, axes = centres.shape
    left = np.empty((starts * k, axes + 1), table.dtype)
    left[:, :axes] = -2 * centres.reshape(-1, axes)
    left[:, axes] = np.einsum("rkd,rkd->rk", centres, centres).reshape(-1)
    sums = np.zeros((starts * k, axes + 1))
    inertia = np.full(starts, squares.sum(dtype=np.float64))
    buffer = np.empty((starts * k, min(BLOCK, len(table))), table.dtype)
    for begin in range(0, len(table), BLOCK):
        block = table[begin : begin + BLOCK]
        distances = buffer.reshape(-1)[: starts * k * len(block)].reshape(starts * k, len(block))
        np.matmul(left, block.T, out=distances)
        by_start = distances.reshape(starts, k, len(block))
        nearest = by_start.min(axis=1)
        inertia += nearest.sum(axis=1, dtype=np.float64)
        np.copyto(by_start, by_start == nearest[:, None])  # one-hot, in the same memory
        sums += distances @ block
    sums = sums.reshape(starts, k, axes + 1)
    counts = sums[..., axes:]
    moved = np.where(counts > 0, sums[..., :axes] / np.maximum(counts, 1), centres)
    return moved, inertia, np.square(moved - centres).sum(axis=(1, 2))


def _seed(rows: Rows, k_max: int, restarts: int, rng: np.random.Generator) -> np.ndarray:
    """Rows [R, k_max] of greedy k-means++ (Arthur & Vassilvitskii 2007): the best of 2 + log K draws at each step."""
    n = len(rows.squares)
    trials = 2 + int(np.log(k_max))
    chosen = np.empty((restarts, k_max), dtype=np.int64)
    chosen[:, 0] = rng.integers(n, size=restarts)
    closest = _squared_distances(rows, chosen[:, 0])  # [R, N]
    each = np.arange(restarts)
    for k in range(1, k_max):
        drawn = np.stack([_draw(potential, trials, rng) for potential in closest])
        distances = _squared_distances(rows, drawn.reshape(-1)).reshape(restarts, trials, n)
        np.minimum(distances, closest[:, None], out=distances)
        winner = distances.sum(axis=2, dtype=np.float64).argmin(axis=1)
        chosen[:, k], closest = drawn[each, winner], distances[each, winner]
    return chosen


def _grow(rows: Rows, centres: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Starts [G, K + 1, D]: the K centres and one row more, the GROWN best of many draws."""
    fast = centres.astype(rows.fast.dtype)
    points = rows.fast[:, :-1]
    closest = (rows.squares + np.einsum("kd,kd->k", fast, fast)[:, None] - 2 * fast @ points.T).min(axis=0)
    drawn = np.unique(_draw(np.maximum(closest, 0), 4 * GROWN, rng))
    left = np.minimum(_squared_distances(rows, drawn), closest).sum(axis=1, dtype=np.float64)
    drawn = drawn[np.argsort(left, kind="stable")[:GROWN]]
    return np.stack([np.concatenate([centres, rows.exact[i : i + 1, :-1]]) for i in drawn])


def _draw(potential: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Indices drawn with chances as the potential [N] says."""
    cumulated = np.cumsum(potential, dtype=np.float64)
    drawn = np.searchsorted(cumulated, rng.random(size) * cumulated[-1], side="right")
    inside: np.ndarray = np.minimum(drawn, len(potential) - 1)
    return inside


def _squared_distances(rows: Rows, chosen: np.ndarray) -> np.ndarray:
    """Squared distances [M, N] from chosen rows [M] to all."""
    points = rows.fast[:, :-1]
    distances: np.ndarray = (-2 * points[chosen]) @ points.T
    distances += rows.squares
    distances += rows.squares[chosen, None]
    np.maximum(distances, 0, out=distances)
    return distances


def _partition(points: np.ndarray, centres: np.ndarray) -> Partition:
    """Labels in float64; a centre that no row is nearest to moves to the row that is farthest from its own.

    Fewer clusters than centres come back only where rows differ by rounding.
    """
    centres = centres.copy()
    for _ in range(2 * len(centres)):
        labels = (np.einsum("kd,kd->k", centres, centres) - 2 * points @ centres.T).argmin(axis=1)
        empty = np.flatnonzero(np.bincount(labels, minlength=len(centres)) == 0)
        if not len(empty):
            break
        residuals = points - centres[labels]
        centres[empty[0]] = points[np.argmax(np.einsum("nd,nd->n", residuals, residuals))]
    labels = np.unique(labels, return_inverse=True)[1]
    return Partition(labels, _within(points, labels))


def _within(points: np.ndarray, labels: np.ndarray) -> float:
    """Sum of squared distances to the means of the labelled clusters."""
    onehot = (labels[:, None] == np.unique(labels)).astype(np.float64)  # [N, K]
    residuals = points - (onehot.T @ points / onehot.sum(axis=0)[:, None])[labels]
    return float(np.einsum("nd,nd->", residuals, residuals))
