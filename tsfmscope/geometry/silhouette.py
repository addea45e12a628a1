"""Mean silhouettes of several labelings, from one pass over the distances."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from tsfmscope.geometry.parallel import ParallelMap, blas_workers, chunks

# Rows on each side of a block of distances: 1 MiB in float32, half a second-level cache.
BLOCK = 512
# Up to this number of rows, distances are computed in float64: it costs little.
EXACT_ROWS = 2048
# Share of the squared norm. Of a squared distance below it, float32 keeps hardly two digits.
NEAR = 1e-5
# Share of near pairs from which float64 is worth its cost: with 2 % of them, a mean silhouette errs
# by 4e-5.
MANY = 3e-2
# Number of rows from which the share of near pairs is estimated.
PROBED = 512
# Share of the squared norms below which a squared distance is rounding.
SAME = 32 * np.finfo(np.float64).eps


def mean_silhouettes(
    points: Float[np.ndarray, "token axis"], labelings: Sequence[Int[np.ndarray, " token"]]
) -> tuple[float | None, ...]:
    """Return the mean silhouette of each labeling, as scikit-learn's silhouette_score, from one pass.

        s = (b - a) / max(a, b);  singletons and 0/0 give 0

    Source: Rousseeuw 1987. Appendix D of Shelim et al. 2025 prints b without its mean; the mean is used here.
    Every block of distances is multiplied with the one-hot labels of all labelings at once, so memory is O(N
    ΣK), not O(N²).

    Accuracy: with more than EXACT_ROWS rows, distances are float32 products unless many rows nearly coincide;
    mean silhouettes are then within 1e-6 of scikit-learn's (1e-4 where a share of near pairs up to MANY
    exists). Sums are in float64. Equal rows have distance exactly 0 in float64.

    A labeling with one cluster, hence a single token, gives None. Constant points give 0. NaN gives NaN.
    """
    indicators = [(labels[:, None] == np.unique(labels)).astype(np.float64) for labels in labelings]
    table, scale = _table(np.asarray(points))
    with blas_workers() as spread:
        sums = scale * _distance_sums(table, np.concatenate(indicators, axis=1), spread)
    ends = np.cumsum([indicator.shape[1] for indicator in indicators])
    parts = np.split(sums, ends[:-1], axis=1)
    return tuple(_mean_silhouette(part, indicator) for part, indicator in zip(parts, indicators, strict=True))


def _table(points: np.ndarray) -> tuple[Float[np.ndarray, "token axis_and_two"], float]:
    """Return [x, ‖x‖², 1] of the centred points divided by their largest entry, and that entry."""
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
    """Estimate the share of near pairs among these rows: every second row against the others."""
    even_rows, odd_rows = rows[::2], rows[1::2]
    squares = np.einsum("nd,nd->n", even_rows, even_rows)[:, None]
    distances = squares + np.einsum("nd,nd->n", odd_rows, odd_rows) - 2 * even_rows @ odd_rows.T
    return float((distances < NEAR * squares).mean())


def _distance_sums(table: np.ndarray, indicators: np.ndarray, spread: ParallelMap) -> np.ndarray:
    """Return the summed distances [N, ΣK] from each row to the rows that each indicator column marks."""
    marks = indicators.astype(table.dtype)
    n = len(table)

    def sum_block(begin: int) -> np.ndarray:
        """Sum distances between a block of rows and all rows from it on, for both sides: [N - begin, ΣK]."""
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
    for begin, block_sums in zip(begins, spread(sum_block, begins), strict=True):
        sums[begin:] += block_sums
    return sums


def _mean_silhouette(sums: np.ndarray, indicator: np.ndarray) -> float | None:
    sizes = indicator.sum(axis=0)
    if len(sizes) < 2:
        return None
    # One True per row.
    own = indicator.astype(bool)  # [N, K]
    size = sizes[own.argmax(axis=1)]
    inside = sums[own] / np.maximum(size - 1, 1)
    outside = np.where(own, np.inf, sums / sizes).min(axis=1)
    larger = np.maximum(inside, outside)
    scores = np.where(size > 1, (outside - inside) / np.where(larger > 0, larger, 1.0), 0.0)
    return float(scores.mean())
