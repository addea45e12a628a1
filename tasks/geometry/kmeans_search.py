"""Local search of K-means over every K at once; each K also uses its neighbours' centres."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from tsfmscope.tasks.geometry.lloyd import AugmentedPoints, Centres, step
from tsfmscope.tasks.geometry.parallel import ParallelMap

# Number of first steps of every k-means++ start, and number of starts of each K that continue.
FIRST, KEPT = 3, 6
# Number of rows tried as a new centre.
DRAWN = 16
# Number of best starts that take steps: with a centre moved, added, or removed.
MOVED, GROWN, SHRUNK = 4, 3, 2
# Number of additional starts in which a random centre moves, without comparing the inertia.
RANDOM = 4
# Maximum number of rounds of local search.
ROUNDS = 12
# A K is skipped after this many rounds without an improvement of it or of its neighbours.
IDLE = 2
# Maximum number of steps of one race.
LAST = 100
# A start stops once a step gains less than this share of its inertia.
LOOSE = 1e-4
# A start is dropped when this many steps of its last gain would leave it behind the best.
SLACK = 10
# Number of different sets of centres that are returned for each K.
ENDS = 6
# Sets of centres whose inertias differ by less than this share count as the same.
SAME = 1e-4


class Ends:
    """Different sets of centres [C, K, D] found so far for one K, at most ENDS, and inertia [C], ascending."""

    def __init__(self, centres: Centres, inertia: Float[np.ndarray, " start"]) -> None:
        self.centres, self.inertia = centres[:0], inertia[:0]
        self.add(centres, inertia)

    def add(self, centres: Centres, inertia: Float[np.ndarray, " start"]) -> bool:
        """Add sets of centres; return whether the best improved."""
        least = self.inertia[0] if len(self.inertia) else np.inf
        together, inertia = np.concatenate([self.centres, centres]), np.concatenate([self.inertia, inertia])
        order = np.argsort(inertia, kind="stable")
        new = np.diff(inertia[order], prepend=-np.inf) > SAME * inertia[order]
        order = order[new][:ENDS]
        self.centres, self.inertia = together[order], inertia[order]
        return bool(self.inertia[0] < (1 - SAME) * least)


def search(
    table: AugmentedPoints,
    k_max: int,
    starts: int,
    rng: np.random.Generator,
    spread: ParallelMap,
    *,
    rounds: int = ROUNDS,
) -> list[Ends]:
    """Return the best sets of centres found for K = 2..k_max, after at most `rounds` rounds of local search.

    Every K begins with greedy k-means++ starts as in scikit-learn. One draw of k_max centres serves every K:
    its first K centres are a draw for K. Each round then tries, for each K, three kinds of new starts: the
    best of K with one centre moved elsewhere (Fränti 2018, random swap), the best of K - 1 with one row added
    as a centre (Likas et al. 2003, global k-means), and the best of K + 1 with one centre removed. A K rests
    once neither it nor its neighbours improve.
    """
    points = table.rows[:, :-1]
    row_ids = seed_rows(table, k_max, starts, rng)
    best = [Ends(*end) for end in race(table, [points[row_ids[:, :k]] for k in range(2, k_max + 1)], spread)]
    idle = np.zeros(len(best), dtype=np.int64)
    for _ in range(rounds):
        awake = np.flatnonzero(idle < IDLE).tolist()
        if not awake:
            break
        idle[awake] += 1
        centres = [ends.centres[0] for ends in best]
        starts_of = [_starts_from_neighbours(table, centres, at, rng) for at in awake]
        ends = run(table, starts_of, [np.full(len(group), np.inf) for group in starts_of], spread)
        for at, end in zip(awake, ends, strict=True):
            if best[at].add(*end):
                idle[max(at - 1, 0) : at + 2] = 0
    return best


def race(table: AugmentedPoints, groups: list[Centres], spread: ParallelMap) -> list[tuple[Centres, np.ndarray]]:
    """Return final centres [C, K, D] and inertias [C] for the starts of each K.

    All starts take a few steps, and the best ones continue.
    """
    for _ in range(FIRST):
        answers = step(table, groups, spread)
        groups = [update.centres for update in answers]
    best_rows = [np.argsort(update.inertia, kind="stable")[:KEPT] for update in answers]
    centres = [update.centres[rows] for update, rows in zip(answers, best_rows, strict=True)]
    return run(table, centres, [update.inertia[rows] for update, rows in zip(answers, best_rows, strict=True)], spread)


def run(
    table: AugmentedPoints, groups: list[Centres], before: list[np.ndarray], spread: ParallelMap
) -> list[tuple[Centres, np.ndarray]]:
    """Step every group (one per K) until each of its starts gains too little or cannot reach the best.

    before: inertia [R] of each start before the first step.
    """
    # An inertia below this is rounding.
    floor = 8 * np.finfo(table.rows.dtype).eps * table.total
    groups, inertias = [group.astype(np.float64) for group in groups], [inertia.copy() for inertia in before]
    live = {at: np.arange(len(group)) for at, group in enumerate(groups)}
    for _ in range(LAST):
        if not live:
            break
        answers = step(table, [groups[at][rows] for at, rows in live.items()], spread)
        for (at, rows), update in zip(list(live.items()), answers, strict=True):
            gain = inertias[at][rows] - update.inertia
            groups[at][rows], inertias[at][rows] = update.centres, update.inertia
            hope = update.inertia - SLACK * gain <= inertias[at].min()
            live[at] = rows[(gain > LOOSE * np.maximum(update.inertia, floor)) & hope]
            if not len(live[at]):
                del live[at]
    return list(zip(groups, inertias, strict=True))


def seed_rows(
    table: AugmentedPoints, k_max: int, starts: int, rng: np.random.Generator
) -> Int[np.ndarray, "start cluster"]:
    """Choose rows by greedy k-means++ (Arthur & Vassilvitskii 2007): the best of 2 + log K draws at each step."""
    n = len(table.squares)
    trials = 2 + int(np.log(k_max))
    row_ids = np.empty((starts, k_max), dtype=np.int64)
    row_ids[:, 0] = rng.integers(n, size=starts)
    closest = _squared_distances(table, row_ids[:, 0])  # [R, N]
    run_ids = np.arange(starts)
    for k in range(1, k_max):
        candidates = np.stack([_draw(potential, trials, rng) for potential in closest])
        distances = _squared_distances(table, candidates.reshape(-1)).reshape(starts, trials, n)
        np.minimum(distances, closest[:, None], out=distances)
        winner = distances.sum(axis=2, dtype=np.float64).argmin(axis=1)
        row_ids[:, k], closest = candidates[run_ids, winner], distances[run_ids, winner]
    return row_ids


def _starts_from_neighbours(
    table: AugmentedPoints, best: list[Float[np.ndarray, "cluster axis"]], at: int, rng: np.random.Generator
) -> Centres:
    """Return starts for one K from the best centres of K and of its neighbours."""
    fewer = best[at - 1] if at else table.rows[:, :-1].mean(axis=0, keepdims=True)
    kinds = [_move_centre(table, best[at], rng), _add_centre(table, fewer, rng)]
    if at + 1 < len(best):
        kinds.append(_remove_centre(table, best[at + 1]))
    return np.concatenate(kinds)


def _move_centre(
    table: AugmentedPoints, centres: Float[np.ndarray, "cluster axis"], rng: np.random.Generator
) -> Centres:
    """Return starts [MOVED + RANDOM, K, D], each with one centre moved to a drawn row.

    MOVED of them have the least inertia before any step. In the other RANDOM, the moved centre is random.
    """
    near, least, second = _two_nearest(table, centres)
    candidates = _draw(least, DRAWN, rng)
    distances = _squared_distances(table, candidates)  # [G, N]
    reduced = np.minimum(distances, least)
    # Increase of a row's squared distance if its nearest centre is removed.
    increase = np.minimum(distances, second) - reduced
    onehot = (near[:, None] == np.arange(len(centres))).astype(table.rows.dtype)
    left = reduced.sum(axis=1, dtype=np.float64)[:, None] + increase @ onehot  # [G, K]
    comes = np.concatenate([_smallest_distinct(left.min(axis=1), MOVED), np.arange(RANDOM)])
    goes = left.argmin(axis=1)[comes]
    goes[-RANDOM:] = rng.integers(len(centres), size=RANDOM)
    starts = np.repeat(centres[None], len(comes), axis=0)
    starts[np.arange(len(comes)), goes] = table.rows[candidates[comes], :-1]
    return starts


def _add_centre(
    table: AugmentedPoints, centres: Float[np.ndarray, "cluster axis"], rng: np.random.Generator
) -> Centres:
    """Return starts [GROWN, K + 1, D] with a drawn row added: those with the least inertia before any step."""
    _, least, _ = _two_nearest(table, centres)
    candidates = _draw(least, DRAWN, rng)
    left = np.minimum(_squared_distances(table, candidates), least).sum(axis=1, dtype=np.float64)
    row_ids = candidates[_smallest_distinct(left, GROWN)]
    return np.stack([np.concatenate([centres, table.rows[row : row + 1, :-1]]) for row in row_ids])


def _remove_centre(table: AugmentedPoints, centres: Float[np.ndarray, "cluster axis"]) -> Centres:
    """Return starts [SHRUNK, K - 1, D] with a centre removed: those with the least inertia before any step."""
    near, least, second = _two_nearest(table, centres)
    increase = np.bincount(near, second - least, minlength=len(centres))
    return np.stack([np.delete(centres, at, axis=0) for at in np.argsort(increase, kind="stable")[:SHRUNK]])


def _smallest_distinct(values: np.ndarray, count: int) -> Int[np.ndarray, " chosen"]:
    """Return the indices of the smallest values, each value once: equal rows make equal starts."""
    indices: np.ndarray = np.unique(values, return_index=True)[1][:count]
    return indices


def _two_nearest(
    table: AugmentedPoints, centres: Float[np.ndarray, "cluster axis"]
) -> tuple[Int[np.ndarray, " token"], Float[np.ndarray, " token"], Float[np.ndarray, " token"]]:
    """Return the nearest centre of every row and the squared distances to the nearest and second nearest.

    Where K = 1, the second distance repeats the first.
    """
    fast = centres.astype(table.rows.dtype)
    distances = np.einsum("kd,kd->k", fast, fast)[:, None] - 2 * fast @ table.rows[:, :-1].T
    distances += table.squares
    np.maximum(distances, 0, out=distances)
    near = distances.argmin(axis=0)
    least, second = np.partition(distances, min(1, len(centres) - 1), axis=0)[[0, min(1, len(centres) - 1)]]
    return near, least, second


def _draw(potential: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Draw indices with probabilities proportional to the potential [N]."""
    cumulated = np.cumsum(potential, dtype=np.float64)
    indices = np.searchsorted(cumulated, rng.random(size) * cumulated[-1], side="right")
    inside: np.ndarray = np.minimum(indices, len(potential) - 1)
    return inside


def _squared_distances(table: AugmentedPoints, row_ids: np.ndarray) -> Float[np.ndarray, "chosen token"]:
    """Return squared distances from the chosen rows to all rows."""
    points = table.rows[:, :-1]
    distances: np.ndarray = (-2 * points[row_ids]) @ points.T
    distances += table.squares
    distances += table.squares[row_ids, None]
    np.maximum(distances, 0, out=distances)
    return distances
