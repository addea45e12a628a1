"""Lloyd steps of many sets of centres at once, as parts of one matrix product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from tsfmscope.tasks.geometry.parallel import ParallelMap

# Rows per task of a thread. The number is fixed, so that sums do not depend on the number of
# threads.
CHUNK = 2048
# Distances in memory at once, per thread: 2 MiB in float32, a second-level cache.
CELLS = 2**19

Centres = Float[np.ndarray, "start cluster axis"]


class AugmentedPoints(NamedTuple):
    """Points with an added column of ones, and their squared norms.

    With the column of ones, a product that sums rows also counts them.
    """

    rows: Float[np.ndarray, "token axis_and_one"]
    squares: Float[np.ndarray, " token"]

    @classmethod
    def of(cls, points: Float[np.ndarray, "token axis"], dtype: type = np.float32) -> AugmentedPoints:
        """Build the table in `dtype`."""
        rows = np.empty((len(points), points.shape[1] + 1), dtype)
        rows[:, :-1], rows[:, -1] = points, 1
        return cls(rows, np.einsum("nd,nd->n", rows[:, :-1], rows[:, :-1]))

    @property
    def total(self) -> float:
        """Sum of the squared norms, which is the inertia of one cluster where the points are centred."""
        return float(self.squares.sum(dtype=np.float64))


class LloydStep(NamedTuple):
    """Result of one step for sets of centres [R, K, D].

    centres: the new centres. inertia: inertia [R] of the old centres. shift: summed squared shift [R].
    """

    centres: Centres
    inertia: Float[np.ndarray, " start"]
    shift: Float[np.ndarray, " start"]


def chunks(n: int) -> list[slice]:
    """Split n rows into the slices that threads process."""
    return [slice(begin, begin + CHUNK) for begin in range(0, n, CHUNK)]


def step(table: AugmentedPoints, groups: Sequence[Centres], spread: ParallelMap) -> list[LloydStep]:
    """Do one Lloyd step for every group; a group contains sets with the same K.

    All groups share two products per block of rows. A centre without rows stays in its position. A row with
    equal distances to several centres counts for each of them. Products are in the table's dtype, sums over
    blocks in float64.
    """
    sums, nearest = sum_by_centre(table, groups, table.rows, spread)
    answers = []
    for centres, total, near in zip(groups, _split(sums, groups), np.split(nearest, _ends(groups, 1)), strict=True):
        counts = total[..., -1:]
        new_centres = np.where(counts > 0, total[..., :-1] / np.maximum(counts, 1), centres)
        answers.append(LloydStep(new_centres, table.total + near, np.square(new_centres - centres).sum(axis=(1, 2))))
    return answers


def to_full_space(
    table: AugmentedPoints, groups: Sequence[Centres], full: AugmentedPoints, spread: ParallelMap
) -> list[Centres]:
    """Return the centres in all axes of the clusters that centres in the leading axes define.

    A centre without rows keeps its coordinates in the leading axes and gets zero in the others.
    """
    sums, _ = sum_by_centre(table, groups, full.rows, spread)
    answers = []
    for centres, total in zip(groups, _split(sums, groups), strict=True):
        counts = total[..., -1:]
        padded = np.zeros(total[..., :-1].shape)
        padded[..., : centres.shape[2]] = centres
        answers.append(np.where(counts > 0, total[..., :-1] / np.maximum(counts, 1), padded))
    return answers


def sum_by_centre(
    table: AugmentedPoints, groups: Sequence[Centres], summed: np.ndarray, spread: ParallelMap
) -> tuple[np.ndarray, ...]:
    """Sum rows of `summed` by nearest centre [ΣRK, ·], and Σ (‖c‖² - 2 c·x) over rows [ΣR], in float64."""
    factors = _make_factors(table, groups)
    shapes = [centres.shape[:2] for centres in groups]

    def assign_chunk(part: slice) -> tuple[np.ndarray, np.ndarray]:
        return _chunk(factors, shapes, table.rows[part], summed[part])

    sums, nearest = np.zeros((len(factors), summed.shape[1])), np.zeros(sum(r for r, _ in shapes))
    for chunk_sums, near in spread(assign_chunk, chunks(len(table.rows))):
        sums += chunk_sums
        nearest += near
    return sums, nearest


def _make_factors(table: AugmentedPoints, groups: Sequence[Centres]) -> np.ndarray:
    """Return [-2 c, ‖c‖²] of every centre.

    Its product with a row that ends in a one is the squared distance minus the row's squared norm.
    """
    flat = np.concatenate([centres.reshape(-1, centres.shape[2]) for centres in groups])
    factors = np.empty((len(flat), flat.shape[1] + 1), table.rows.dtype)
    factors[:, :-1], factors[:, -1] = -2 * flat, np.einsum("kd,kd->k", flat, flat)
    return factors


def _chunk(
    factors: np.ndarray, shapes: Sequence[tuple[int, int]], rows: np.ndarray, summed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    sums, nearest = np.zeros((len(factors), summed.shape[1])), np.zeros(sum(r for r, _ in shapes))
    size = min(max(CELLS // len(factors), 128), CHUNK)
    for begin in range(0, len(rows), size):
        block = rows[begin : begin + size]
        distances = factors @ block.T
        at, start = 0, 0
        for starts, k in shapes:
            cells = distances[at : at + starts * k].reshape(starts, k, -1)
            least = cells.min(axis=1)
            nearest[start : start + starts] += least.sum(axis=1, dtype=np.float64)
            # One-hot assignment, written into the same memory.
            np.equal(cells, least[:, None], out=cells)
            at, start = at + starts * k, start + starts
        sums += distances @ summed[begin : begin + size]
    return sums, nearest


def _ends(groups: Sequence[Centres], axes: int) -> Int[np.ndarray, " cut"]:
    return np.cumsum([int(np.prod(centres.shape[:axes])) for centres in groups])[:-1]


def _split(sums: np.ndarray, groups: Sequence[Centres]) -> list[np.ndarray]:
    """Split [ΣRK, ·] into one array [R, K, ·] per group."""
    parts = np.split(sums, _ends(groups, 2))
    return [part.reshape(*centres.shape[:2], -1) for part, centres in zip(parts, groups, strict=True)]
