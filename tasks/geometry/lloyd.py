"""Lloyd steps of many sets of centres at once: every set of every K is one part of one matrix product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from tasks.geometry.crew import Spread

CHUNK = 2048  # rows a thread takes at a time; fixed, so that sums do not depend on the number of threads
CELLS = 2**19  # distances in memory at once, a thread: 2 MiB in float32, a second-level cache

Centres = Float[np.ndarray, "start cluster axis"]


class Table(NamedTuple):
    """Points with a column of ones, so that a product that sums rows counts them too, and their squared norms."""

    rows: Float[np.ndarray, "token axis_and_one"]
    squares: Float[np.ndarray, " token"]

    @classmethod
    def of(cls, points: Float[np.ndarray, "token axis"], dtype: type = np.float32) -> Table:
        """The table in `dtype`."""
        rows = np.empty((len(points), points.shape[1] + 1), dtype)
        rows[:, :-1], rows[:, -1] = points, 1
        return cls(rows, np.einsum("nd,nd->n", rows[:, :-1], rows[:, :-1]))

    @property
    def total(self) -> float:
        """Sum of the squared norms: the inertia of one cluster where the points are centred."""
        return float(self.squares.sum(dtype=np.float64))


class Moved(NamedTuple):
    """What one step makes of sets of centres [R, K, D]: the new ones, inertia [R] of the old, squared shift [R]."""

    centres: Centres
    inertia: Float[np.ndarray, " start"]
    shift: Float[np.ndarray, " start"]


def chunks(n: int) -> list[slice]:
    """n rows in the parts that threads take."""
    return [slice(begin, begin + CHUNK) for begin in range(0, n, CHUNK)]


def step(table: Table, groups: Sequence[Centres], spread: Spread) -> list[Moved]:
    """One Lloyd step of every group, each of sets with the same K; all groups share two products a block of rows.

    A centre without rows stays where it is; a row at equal distances counts for each. Products in the table's type,
    sums over blocks in float64.
    """
    sums, nearest = assigned(table, groups, table.rows, spread)
    answers = []
    for centres, total, near in zip(groups, _split(sums, groups), np.split(nearest, _ends(groups, 1)), strict=True):
        counts = total[..., -1:]
        moved = np.where(counts > 0, total[..., :-1] / np.maximum(counts, 1), centres)
        answers.append(Moved(moved, table.total + near, np.square(moved - centres).sum(axis=(1, 2))))
    return answers


def lift(table: Table, groups: Sequence[Centres], full: Table, spread: Spread) -> list[Centres]:
    """Centres in all axes of the clusters that centres in the leading axes make; without rows, zero in the others."""
    sums, _ = assigned(table, groups, full.rows, spread)
    answers = []
    for centres, total in zip(groups, _split(sums, groups), strict=True):
        counts = total[..., -1:]
        padded = np.zeros(total[..., :-1].shape)
        padded[..., : centres.shape[2]] = centres
        answers.append(np.where(counts > 0, total[..., :-1] / np.maximum(counts, 1), padded))
    return answers


def assigned(table: Table, groups: Sequence[Centres], summed: np.ndarray, spread: Spread) -> tuple[np.ndarray, ...]:
    """Rows of `summed` added up by nearest centre [ΣRK, ·], and Σ (‖c‖² - 2 c·x) over rows [ΣR], in float64."""
    left = _left(table, groups)
    shapes = [centres.shape[:2] for centres in groups]

    def one(part: slice) -> tuple[np.ndarray, np.ndarray]:
        return _chunk(left, shapes, table.rows[part], summed[part])

    sums, nearest = np.zeros((len(left), summed.shape[1])), np.zeros(sum(r for r, _ in shapes))
    for some, near in spread(one, chunks(len(table.rows))):
        sums += some
        nearest += near
    return sums, nearest


def _left(table: Table, groups: Sequence[Centres]) -> np.ndarray:
    """[-2 c, ‖c‖²] of every centre, which times a row with a one gives its squared distance less the row's norm."""
    flat = np.concatenate([centres.reshape(-1, centres.shape[2]) for centres in groups])
    left = np.empty((len(flat), flat.shape[1] + 1), table.rows.dtype)
    left[:, :-1], left[:, -1] = -2 * flat, np.einsum("kd,kd->k", flat, flat)
    return left


def _chunk(
    left: np.ndarray, shapes: Sequence[tuple[int, int]], rows: np.ndarray, summed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    sums, nearest = np.zeros((len(left), summed.shape[1])), np.zeros(sum(r for r, _ in shapes))
    size = min(max(CELLS // len(left), 128), CHUNK)
    for begin in range(0, len(rows), size):
        block = rows[begin : begin + size]
        distances = left @ block.T
        at, start = 0, 0
        for starts, k in shapes:
            cells = distances[at : at + starts * k].reshape(starts, k, -1)
            least = cells.min(axis=1)
            nearest[start : start + starts] += least.sum(axis=1, dtype=np.float64)
            np.equal(cells, least[:, None], out=cells)  # one-hot, in the same memory
            at, start = at + starts * k, start + starts
        sums += distances @ summed[begin : begin + size]
    return sums, nearest


def _ends(groups: Sequence[Centres], axes: int) -> Int[np.ndarray, " cut"]:
    return np.cumsum([int(np.prod(centres.shape[:axes])) for centres in groups])[:-1]


def _split(sums: np.ndarray, groups: Sequence[Centres]) -> list[np.ndarray]:
    """[ΣRK, ·] as [R, K, ·] a group."""
    parts = np.split(sums, _ends(groups, 2))
    return [part.reshape(*centres.shape[:2], -1) for part, centres in zip(parts, groups, strict=True)]
