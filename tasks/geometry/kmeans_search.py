"""Where K-means may end: local search over every K at once, each K learning from its neighbours."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from tasks.geometry.crew import Spread
from tasks.geometry.lloyd import Centres, Table, step

FIRST, KEPT = 3, 6  # steps of every k-means++ start, and starts of a K that go on
DRAWN = 16  # rows tried as a new centre
MOVED, GROWN, SHRUNK = 4, 3, 2  # the best so made that take steps
RANDOM = 4  # centres moved without looking, beside
ROUNDS = 12  # of local search at most
IDLE = 2  # rounds in which neither a K nor its neighbours were bettered, after which it rests
LAST = 100  # steps of a race at most
LOOSE = 1e-4  # a start is parked once a step gains less than this share of its inertia
SLACK = 10  # a start is dropped when this many steps of its last gain would leave it behind the best
ENDS = 6  # different ends of a K that are handed on
SAME = 1e-4  # ends whose inertias differ by less than this share are taken as one


class Ends:
    """The different sets of centres [C, K, D] found so far for one K, at most ENDS, and inertia [C], ascending."""

    def __init__(self, centres: Centres, inertia: Float[np.ndarray, " start"]) -> None:
        self.centres, self.inertia = centres[:0], inertia[:0]
        self.add(centres, inertia)

    def add(self, centres: Centres, inertia: Float[np.ndarray, " start"]) -> bool:
        """Take these in; whether the best is bettered."""
        least = self.inertia[0] if len(self.inertia) else np.inf
        together, inertia = np.concatenate([self.centres, centres]), np.concatenate([self.inertia, inertia])
        order = np.argsort(inertia, kind="stable")
        new = np.diff(inertia[order], prepend=-np.inf) > SAME * inertia[order]
        order = order[new][:ENDS]
        self.centres, self.inertia = together[order], inertia[order]
        return bool(self.inertia[0] < (1 - SAME) * least)


def search(table: Table, k_max: int, starts: int, rng: np.random.Generator, spread: Spread) -> list[Ends]:
    """The best ends found for K = 2..k_max.

    Every K begins with greedy k-means++ starts as in scikit-learn (one draw of k_max centres serves every K: its first
    K are one of K). Then, in rounds, it tries its best with one centre moved elsewhere (Fränti 2018, random swap), the
    best of K - 1 with a row more (Likas et al. 2003, global k-means) and the best of K + 1 with a centre less, until
    neither it nor these are bettered.
    """
    points = table.rows[:, :-1]
    chosen = seed_rows(table, k_max, starts, rng)
    best = [Ends(*end) for end in race(table, [points[chosen[:, :k]] for k in range(2, k_max + 1)], spread)]
    idle = np.zeros(len(best), dtype=np.int64)
    for _ in range(ROUNDS):
        awake = np.flatnonzero(idle < IDLE).tolist()
        if not awake:
            break
        idle[awake] += 1
        found = [one.centres[0] for one in best]
        starts_of = [_neighbours(table, found, at, rng) for at in awake]
        ends = run(table, starts_of, [np.full(len(group), np.inf) for group in starts_of], spread)
        for at, end in zip(awake, ends, strict=True):
            if best[at].add(*end):
                idle[max(at - 1, 0) : at + 2] = 0
    return best


def race(table: Table, groups: list[Centres], spread: Spread) -> list[tuple[Centres, np.ndarray]]:
    """Ends [C, K, D] and inertias [C] of starts of each K: all take a few steps, the best go on."""
    for _ in range(FIRST):
        answers = step(table, groups, spread)
        groups = [moved.centres for moved in answers]
    kept = [np.argsort(moved.inertia, kind="stable")[:KEPT] for moved in answers]
    centres = [moved.centres[rows] for moved, rows in zip(answers, kept, strict=True)]
    return run(table, centres, [moved.inertia[rows] for moved, rows in zip(answers, kept, strict=True)], spread)


def run(
    table: Table, groups: list[Centres], before: list[np.ndarray], spread: Spread
) -> list[tuple[Centres, np.ndarray]]:
    """Steps of every group, one a K, until all its starts are parked or hopeless; before: inertia [R] of each."""
    floor = 8 * np.finfo(table.rows.dtype).eps * table.total  # an inertia below is rounding
    groups, inertias = [group.astype(np.float64) for group in groups], [inertia.copy() for inertia in before]
    live = {at: np.arange(len(group)) for at, group in enumerate(groups)}
    for _ in range(LAST):
        if not live:
            break
        answers = step(table, [groups[at][rows] for at, rows in live.items()], spread)
        for (at, rows), moved in zip(list(live.items()), answers, strict=True):
            gain = inertias[at][rows] - moved.inertia
            groups[at][rows], inertias[at][rows] = moved.centres, moved.inertia
            hope = moved.inertia - SLACK * gain <= inertias[at].min()
            live[at] = rows[(gain > LOOSE * np.maximum(moved.inertia, floor)) & hope]
            if not len(live[at]):
                del live[at]
    return list(zip(groups, inertias, strict=True))


def seed_rows(table: Table, k_max: int, starts: int, rng: np.random.Generator) -> Int[np.ndarray, "start cluster"]:
    """Rows of greedy k-means++ (Arthur & Vassilvitskii 2007): the best of 2 + log K draws at each step."""
    n = len(table.squares)
    trials = 2 + int(np.log(k_max))
    chosen = np.empty((starts, k_max), dtype=np.int64)
    chosen[:, 0] = rng.integers(n, size=starts)
    closest = _squared_distances(table, chosen[:, 0])  # [R, N]
    each = np.arange(starts)
    for k in range(1, k_max):
        drawn = np.stack([_draw(potential, trials, rng) for potential in closest])
        distances = _squared_distances(table, drawn.reshape(-1)).reshape(starts, trials, n)
        np.minimum(distances, closest[:, None], out=distances)
        winner = distances.sum(axis=2, dtype=np.float64).argmin(axis=1)
        chosen[:, k], closest = drawn[each, winner], distances[each, winner]
    return chosen


def _neighbours(
    table: Table, best: list[Float[np.ndarray, "cluster axis"]], at: int, rng: np.random.Generator
) -> Centres:
    """Starts of K from the best of its own, of K - 1 and of K + 1."""
    fewer = best[at - 1] if at else table.rows[:, :-1].mean(axis=0, keepdims=True)
    kinds = [_moved(table, best[at], rng), _grown(table, fewer, rng)]
    if at + 1 < len(best):
        kinds.append(_shrunk(table, best[at + 1]))
    return np.concatenate(kinds)


def _moved(table: Table, centres: Float[np.ndarray, "cluster axis"], rng: np.random.Generator) -> Centres:
    """Starts [MOVED + RANDOM, K, D]: one centre moved to a drawn row; those that leave least before any step."""
    near, least, second = _two_nearest(table, centres)
    drawn = _draw(least, DRAWN, rng)
    distances = _squared_distances(table, drawn)  # [G, N]
    kept = np.minimum(distances, least)
    lost = np.minimum(distances, second) - kept  # what a row pays when its centre goes
    onehot = (near[:, None] == np.arange(len(centres))).astype(table.rows.dtype)
    left = kept.sum(axis=1, dtype=np.float64)[:, None] + lost @ onehot  # [G, K]
    comes = np.concatenate([_least_distinct(left.min(axis=1), MOVED), np.arange(RANDOM)])
    goes = left.argmin(axis=1)[comes]
    goes[-RANDOM:] = rng.integers(len(centres), size=RANDOM)
    starts = np.repeat(centres[None], len(comes), axis=0)
    starts[np.arange(len(comes)), goes] = table.rows[drawn[comes], :-1]
    return starts


def _grown(table: Table, centres: Float[np.ndarray, "cluster axis"], rng: np.random.Generator) -> Centres:
    """Starts [GROWN, K + 1, D]: a drawn row more, those that leave the least inertia before any step."""
    _, least, _ = _two_nearest(table, centres)
    drawn = _draw(least, DRAWN, rng)
    left = np.minimum(_squared_distances(table, drawn), least).sum(axis=1, dtype=np.float64)
    chosen = drawn[_least_distinct(left, GROWN)]
    return np.stack([np.concatenate([centres, table.rows[row : row + 1, :-1]]) for row in chosen])


def _shrunk(table: Table, centres: Float[np.ndarray, "cluster axis"]) -> Centres:
    """Starts [SHRUNK, K - 1, D]: a centre less, those that leave the least inertia before any step."""
    near, least, second = _two_nearest(table, centres)
    lost = np.bincount(near, second - least, minlength=len(centres))
    return np.stack([np.delete(centres, at, axis=0) for at in np.argsort(lost, kind="stable")[:SHRUNK]])


def _least_distinct(values: np.ndarray, count: int) -> Int[np.ndarray, " chosen"]:
    """Where the least of the values stand, each value once: equal rows make equal starts."""
    chosen: np.ndarray = np.unique(values, return_index=True)[1][:count]
    return chosen


def _two_nearest(
    table: Table, centres: Float[np.ndarray, "cluster axis"]
) -> tuple[Int[np.ndarray, " token"], Float[np.ndarray, " token"], Float[np.ndarray, " token"]]:
    """The nearest centre of every row, the squared distance to it, and that to the next (that again where K = 1)."""
    fast = centres.astype(table.rows.dtype)
    distances = np.einsum("kd,kd->k", fast, fast)[:, None] - 2 * fast @ table.rows[:, :-1].T
    distances += table.squares
    np.maximum(distances, 0, out=distances)
    near = distances.argmin(axis=0)
    least, second = np.partition(distances, min(1, len(centres) - 1), axis=0)[[0, min(1, len(centres) - 1)]]
    return near, least, second


def _draw(potential: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Indices drawn with chances as the potential [N] says."""
    cumulated = np.cumsum(potential, dtype=np.float64)
    drawn = np.searchsorted(cumulated, rng.random(size) * cumulated[-1], side="right")
    inside: np.ndarray = np.minimum(drawn, len(potential) - 1)
    return inside


def _squared_distances(table: Table, chosen: np.ndarray) -> Float[np.ndarray, "chosen token"]:
    """Squared distances from chosen rows to all."""
    points = table.rows[:, :-1]
    distances: np.ndarray = (-2 * points[chosen]) @ points.T
    distances += table.squares
    distances += table.squares[chosen, None]
    np.maximum(distances, 0, out=distances)
    return distances
