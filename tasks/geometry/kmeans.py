"""K-means for K = 2, 3, … in one go: searched in few axes, settled in all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from tasks.geometry.crew import Spread, crew
from tasks.geometry.kmeans_search import run, search
from tasks.geometry.lloyd import Centres, Table, chunks, lift, step

STARTS = 2  # k-means++ starts a restart asked for: in few axes they are cheap
SPARE = 2  # axes of the search beside k_max: fewer local optima than in all axes, and a step costs a fraction
LAST = 300  # steps of settling at most: scikit-learn's max_iter
TIGHT = 1e-4  # share of inertia under which float32 distances hold too few digits: float64 throughout then
TOLERANCE = 1e-4  # of the mean variance an axis, on the summed squared shift of the centres: scikit-learn's tol


@dataclass(frozen=True, eq=False)
class Partition:
    """Cluster of every row, from 0 and none empty, and the sum of squared distances to the clusters' means."""

    labels: Int[np.ndarray, " token"]
    inertia: float


def kmeans(points: Float[np.ndarray, "token axis"], k_max: int, *, restarts: int = 10, seed: int) -> list[Partition]:
    """The best partition found for each K = 2..k_max.

    A search over all K in the leading axes of the points hands on a few ends a K; these take steps in all axes, and
    the best goes on until scikit-learn's tolerance. On the states of a random T5 the few axes lead to lower inertia
    than restarts in all 768 do. Products in float32, sums in float64; the last steps and the labels in float64.

    points: principal coordinates, leading axis first (dimension.principal_coordinates), of root mean square norm near
    1, with at least k_max distinct rows. restarts: half the k-means++ starts. Raises ValueError for rows under k_max.
    """
    if len(points) < k_max:
        raise ValueError(f"points: got {len(points)} rows, expected at least k_max = {k_max}")
    with crew() as spread:
        dtype: type = np.float32
        for dtype in (np.float32, np.float64):
            few = Table.of(points[:, : k_max + SPARE], dtype)
            found = search(few, k_max, STARTS * restarts, np.random.default_rng(seed), spread)
            if min(ends.inertia[0] for ends in found) > TIGHT * few.total:
                break
        table = Table.of(points, dtype)
        lifted = lift(few, [one.centres for one in found], table, spread)
        ends = run(table, lifted, [np.full(len(centres), np.inf) for centres in lifted], spread)
        best = [centres[[np.argmin(inertia)]] for centres, inertia in ends]
        if dtype is np.float32:
            best = _settle(table, best, spread)
            table = Table.of(points, np.float64)
        best = _settle(table, best, spread)
        del table
        return _partitions(points, [centres[0] for centres in best], spread)


def _settle(table: Table, groups: list[Centres], spread: Spread) -> list[Centres]:
    """Steps of one start a group, [1, K, D], until its centres rest."""
    limit = TOLERANCE * table.total / table.rows[:, :-1].size
    settled, moving = list(groups), list(range(len(groups)))
    for _ in range(LAST):
        answers = step(table, [settled[at] for at in moving], spread)
        for at, moved in zip(moving, answers, strict=True):
            settled[at] = moved.centres
        moving = [at for at, moved in zip(moving, answers, strict=True) if moved.shift[0] > limit]
        if not moving:
            break
    return settled


def _partitions(
    points: np.ndarray, sets: Sequence[Float[np.ndarray, "cluster axis"]], spread: Spread
) -> list[Partition]:
    """Labels by the nearest centre, and their inertia, in float64."""
    labels, sums = _labelled(points, sets, spread)
    total = float(np.einsum("nd,nd->", points, points))
    partitions = []
    for centres, label, sizes_and_sums in zip(sets, labels, sums, strict=True):
        sizes, means = sizes_and_sums
        if not sizes.all():
            partitions.append(_reseated(points, centres, spread))
            continue
        inertia = total - float(sizes @ np.einsum("kd,kd->k", means, means))
        if inertia < TIGHT * total:  # the difference of the two would be rounding
            residuals = points - means[label]
            inertia = float(np.einsum("nd,nd->", residuals, residuals))
        partitions.append(Partition(label, inertia))
    return partitions


def _labelled(
    points: np.ndarray, sets: Sequence[Float[np.ndarray, "cluster axis"]], spread: Spread
) -> tuple[list[Int[np.ndarray, " token"]], list[tuple[np.ndarray, np.ndarray]]]:
    """Nearest centre of every row for each set of centres, and sizes [K] and means [K, D] of the clusters so made."""
    left = np.concatenate(sets)
    squares = np.einsum("kd,kd->k", left, left)[:, None]
    left = -2 * left
    ends = np.cumsum([len(centres) for centres in sets])[:-1]

    def one(part: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        distances = left @ points[part].T
        distances += squares
        labels = [cells.argmin(axis=0) for cells in np.split(distances, ends)]
        onehot = [label == np.arange(len(centres))[:, None] for label, centres in zip(labels, sets, strict=True)]
        marks = np.concatenate(onehot).astype(np.float64)
        return np.stack(labels), marks.sum(axis=1), marks @ points[part]

    labels = np.empty((len(sets), len(points)), dtype=np.int64)
    sizes, sums = np.zeros(len(left)), np.zeros(left.shape)
    for part, (label, size, some) in zip(chunks(len(points)), spread(one, chunks(len(points))), strict=True):
        labels[:, part] = label
        sizes += size
        sums += some
    means = sums / np.maximum(sizes, 1)[:, None]
    return list(labels), list(zip(np.split(sizes, ends), np.split(means, ends), strict=True))


def _reseated(points: np.ndarray, centres: Float[np.ndarray, "cluster axis"], spread: Spread) -> Partition:
    """The partition once a centre that no row is nearest to has moved to the row that is farthest from its own.

    Fewer clusters than centres come back only where rows differ by rounding.
    """
    centres = centres.copy()
    for _ in range(2 * len(centres)):
        (label,), ((sizes, _),) = _labelled(points, [centres], spread)
        if sizes.all():
            break
        residuals = points - centres[label]
        centres[np.argmin(sizes)] = points[np.argmax(np.einsum("nd,nd->n", residuals, residuals))]
    label = np.unique(label, return_inverse=True)[1]
    means = np.stack([points[label == c].mean(axis=0) for c in range(label.max() + 1)])
    residuals = points - means[label]
    return Partition(label, float(np.einsum("nd,nd->", residuals, residuals)))
