"""K-means for all K = 2, 3, … together: a search in few axes, then final steps in all axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from tsfmscope.tasks.geometry.kmeans_search import ROUNDS, run, search
from tsfmscope.tasks.geometry.lloyd import AugmentedPoints, Centres, chunks, step, to_full_space
from tsfmscope.tasks.geometry.parallel import ParallelMap, blas_workers

# Number of k-means++ starts per requested restart: in few axes they are cheap.
STARTS = 2
# Axes of the search in addition to k_max: there are fewer local optima than in all axes, and a step
# costs a fraction.
SPARE = 2
# Maximum number of final steps: scikit-learn's max_iter.
LAST = 300
# Below this share of inertia, float32 distances have too few digits, and float64 is used
# throughout.
TIGHT = 1e-4
# Limit on the summed squared shift of the centres, relative to the mean variance per axis:
# scikit-learn's tol.
TOLERANCE = 1e-4


@dataclass(frozen=True, eq=False)
class Partition:
    """Cluster of every row (numbered from 0, none empty) and the sum of squared distances to cluster means."""

    labels: Int[np.ndarray, " token"]
    inertia: float


def kmeans(
    points: Float[np.ndarray, "token axis"], k_max: int, *, restarts: int = 10, rounds: int = ROUNDS, seed: int
) -> list[Partition]:
    """Return the best partition found for each K = 2..k_max.

    A search over all K in the leading axes of the points returns a few candidate sets of centres for each K.
    These take steps in all axes, and the best continues until scikit-learn's tolerance. On the states of a
    random T5, the search in few axes leads to lower inertia than restarts in all 768 axes. Products are in
    float32, sums in float64; the last steps and the labels are in float64.

    points: principal coordinates, leading axis first (`dimension.principal_coordinates`), with root mean
    square norm near 1 and at least k_max distinct rows. restarts: half the number of k-means++ starts.
    rounds: maximum number of rounds of local search. Raises ValueError for fewer than k_max rows.
    """
    if len(points) < k_max:
        raise ValueError(f"points: got {len(points)} rows, expected at least k_max = {k_max}")
    with blas_workers() as spread:
        dtype: type = np.float32
        for dtype in (np.float32, np.float64):
            few = AugmentedPoints.of(points[:, : k_max + SPARE], dtype)
            results = search(few, k_max, STARTS * restarts, np.random.default_rng(seed), spread, rounds=rounds)
            if min(ends.inertia[0] for ends in results) > TIGHT * few.total:
                break
        table = AugmentedPoints.of(points, dtype)
        lifted = to_full_space(few, [partition.centres for partition in results], table, spread)
        ends = run(table, lifted, [np.full(len(centres), np.inf) for centres in lifted], spread)
        best = [centres[[np.argmin(inertia)]] for centres, inertia in ends]
        if dtype is np.float32:
            best = _run_lloyd(table, best, spread)
            table = AugmentedPoints.of(points, np.float64)
        best = _run_lloyd(table, best, spread)
        del table
        return _partitions(points, [centres[0] for centres in best], spread)


def _run_lloyd(table: AugmentedPoints, groups: list[Centres], spread: ParallelMap) -> list[Centres]:
    """Run Lloyd steps on one start per group, [1, K, D], until its centres stop moving."""
    limit = TOLERANCE * table.total / table.rows[:, :-1].size
    settled, moving = list(groups), list(range(len(groups)))
    for _ in range(LAST):
        answers = step(table, [settled[at] for at in moving], spread)
        for at, update in zip(moving, answers, strict=True):
            settled[at] = update.centres
        moving = [at for at, update in zip(moving, answers, strict=True) if update.shift[0] > limit]
        if not moving:
            break
    return settled


def _partitions(
    points: np.ndarray, sets: Sequence[Float[np.ndarray, "cluster axis"]], spread: ParallelMap
) -> list[Partition]:
    """Label rows by the nearest centre and compute inertias, in float64."""
    labels, sums = _assign_rows(points, sets, spread)
    total = float(np.einsum("nd,nd->", points, points))
    partitions = []
    for centres, label, sizes_and_sums in zip(sets, labels, sums, strict=True):
        sizes, means = sizes_and_sums
        if not sizes.all():
            partitions.append(_reseat_empty(points, centres, spread))
            continue
        inertia = total - float(sizes @ np.einsum("kd,kd->k", means, means))
        # The difference of the two sums would be rounding.
        if inertia < TIGHT * total:
            residuals = points - means[label]
            inertia = float(np.einsum("nd,nd->", residuals, residuals))
        partitions.append(Partition(label, inertia))
    return partitions


def _assign_rows(
    points: np.ndarray, sets: Sequence[Float[np.ndarray, "cluster axis"]], spread: ParallelMap
) -> tuple[list[Int[np.ndarray, " token"]], list[tuple[np.ndarray, np.ndarray]]]:
    """Return, for each set of centres, the nearest centre of every row, and cluster sizes and means.

    Sizes have shape [K], means [K, D].
    """
    factors = np.concatenate(sets)
    squares = np.einsum("kd,kd->k", factors, factors)[:, None]
    factors = -2 * factors
    ends = np.cumsum([len(centres) for centres in sets])[:-1]

    def assign_chunk(part: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        distances = factors @ points[part].T
        distances += squares
        labels = [cells.argmin(axis=0) for cells in np.split(distances, ends)]
        onehot = [label == np.arange(len(centres))[:, None] for label, centres in zip(labels, sets, strict=True)]
        marks = np.concatenate(onehot).astype(np.float64)
        return np.stack(labels), marks.sum(axis=1), marks @ points[part]

    labels = np.empty((len(sets), len(points)), dtype=np.int64)
    sizes, sums = np.zeros(len(factors)), np.zeros(factors.shape)
    for part, (label, size, chunk_sums) in zip(
        chunks(len(points)), spread(assign_chunk, chunks(len(points))), strict=True
    ):
        labels[:, part] = label
        sizes += size
        sums += chunk_sums
    means = sums / np.maximum(sizes, 1)[:, None]
    return list(labels), list(zip(np.split(sizes, ends), np.split(means, ends), strict=True))


def _reseat_empty(points: np.ndarray, centres: Float[np.ndarray, "cluster axis"], spread: ParallelMap) -> Partition:
    """Return the partition after moving each centre without rows to the row farthest from its own centre.

    Fewer clusters than centres are returned only where rows differ by rounding.
    """
    centres = centres.copy()
    for _ in range(2 * len(centres)):
        (label,), ((sizes, _),) = _assign_rows(points, [centres], spread)
        if sizes.all():
            break
        residuals = points - centres[label]
        centres[np.argmin(sizes)] = points[np.argmax(np.einsum("nd,nd->n", residuals, residuals))]
    label = np.unique(label, return_inverse=True)[1]
    means = np.stack([points[label == c].mean(axis=0) for c in range(label.max() + 1)])
    residuals = points - means[label]
    return Partition(label, float(np.einsum("nd,nd->", residuals, residuals)))
