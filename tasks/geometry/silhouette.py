"""Mean silhouettes of several labelings from one pass over the distances."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from tasks.geometry.crew import Spread, crew
from tasks.geometry.lloyd import chunks

BLOCK = 512  # rows a side of a block of distances: 1 MiB in float32, half a second-level cache
EXACT_ROWS = 2048  # up to as many rows distances are taken in float64: it costs little
NEAR = 1e-5  # share of the squared norm: float32 leaves a squared distance below it hardly two digits
MANY = 3e-2  # share of near pairs from which float64 is worth its price: 2 % of them cost a mean silhouette 4e-5
PROBED = 512  # rows that the share is estimated from
SAME = 32 * np.finfo(np.float64).eps  # share of the squared norms under which a squared distance is rounding


def mean_silhouettes(
    points: Float[np.ndarray, "token axis"], labelings: Sequence[Int[np.ndarray, " token"]]
) -> tuple[float | None, ...]:
    """Mean silhouette of each labeling, as scikit-learn's silhouette_score, from one pass over the distances.

    s = (b - a) / max(a, b), singletons and 0/0 give 0. Source: Rousseeuw 1987 (appendix D of the isotropy paper prints
    b without its mean). Every block of distances meets the one-hot labels of all labelings at once, so memory is
    O(N ΣK), not O(N²). Distances are float32 products beyond EXACT_ROWS rows unless many rows nearly coincide (within
    1e-6 of scikit-learn's mean silhouettes, 1e-4 where up to MANY pairs do), sums float64. Equal rows are at distance
    exactly 0 in float64. A labeling with one cluster gives None.
    """
    indicators = [(labels[:, None] == np.unique(labels)).astype(np.float64) for labels in labelings]
    table, scale = _table(np.asarray(points))
    with crew() as spread:
        sums = scale * _distance_sums(table, np.concatenate(indicators, axis=1), spread)
    ends = np.cumsum([indicator.shape[1] for indicator in indicators])
    parts = np.split(sums, ends[:-1], axis=1)
    return tuple(_mean_silhouette(part, indicator) for part, indicator in zip(parts, indicators, strict=True))


def _table(points: np.ndarray) -> tuple[Float[np.ndarray, "token axis_and_two"], float]:
    """[x, ‖x‖², 1] of the centred points over their largest entry, and that entry."""
    mean = points.mean(axis=0, dtype=np.float64)
    scale = float(max((points.max(axis=0) - mean).max(), (mean - points.min(axis=0)).max())) or 1.0
    probed = np.linspace(0, len(points) - 1, min(len(points), 2 * PROBED)).astype(np.int64)
    fast = len(points) > EXACT_ROWS and _near_share((points[probed] - mean) / scale) < MANY
    table = np.empty((len(points), points.shape[1] + 2), np.float32 if fast else np.float64)
    for part in chunks(len(points)):
        rows = (points[part] - mean) / scale
        table[part, :-2], table[part, -2], table[part, -1] = rows, np.einsum("nd,nd->n", rows, rows), 1
    if not fast:
        table[:, -2] *= 1 - SAME
    return table, scale


def _near_share(rows: np.ndarray) -> float:
    """Share of near pairs among these rows, every second against the others."""
    some, others = rows[::2], rows[1::2]
    squares = np.einsum("nd,nd->n", some, some)[:, None]
    distances = squares + np.einsum("nd,nd->n", others, others) - 2 * some @ others.T
    return float((distances < NEAR * squares).mean())


def _distance_sums(table: np.ndarray, indicators: np.ndarray, spread: Spread) -> np.ndarray:
    """Summed distances [N, ΣK] from each row to the rows that each indicator column marks."""
    marks = indicators.astype(table.dtype)
    n = len(table)

    def one(begin: int) -> np.ndarray:
        """Distances of a block of rows to itself and all later rows, added up for both sides: [N - begin, ΣK]."""
        upper = slice(begin, begin + BLOCK)
        left = -2 * table[upper]
        left[:, -2], left[:, -1] = 1, table[upper, -2]
        sums = np.zeros((n - begin, indicators.shape[1]))
        for at in range(begin, n, BLOCK):
            lower = slice(at, at + BLOCK)
            distances = left @ table[lower].T
            np.maximum(distances, 0, out=distances)
            np.sqrt(distances, out=distances)
            if at == begin:
                np.fill_diagonal(distances, 0)
            else:
                sums[at - begin : at - begin + BLOCK] += distances.T @ marks[upper]
            sums[:BLOCK] += distances @ marks[lower]
        return sums

    sums = np.zeros_like(indicators)
    begins = range(0, n, BLOCK)
    for begin, some in zip(begins, spread(one, begins), strict=True):
        sums[begin:] += some
    return sums


def _mean_silhouette(sums: np.ndarray, indicator: np.ndarray) -> float | None:
    sizes = indicator.sum(axis=0)
    if len(sizes) < 2:
        return None
    own = indicator.astype(bool)  # [N, K]; one True a row
    size = sizes[own.argmax(axis=1)]
    inside = sums[own] / np.maximum(size - 1, 1)
    outside = np.where(own, np.inf, sums / sizes).min(axis=1)
    larger = np.maximum(inside, outside)
    scores = np.where(size > 1, (outside - inside) / np.where(larger > 0, larger, 1.0), 0.0)
    return float(scores.mean())
