"""Yu et al. 2026, Appendix J.2: loss of an input's row space under a sparse sketch (eq. 30)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from tsfmscope.theory.matrices import exponential_values, orthonormal

# Singular values decay from e^0 to e^-20; the paper only says "exponentially decaying".
DECAY = 20.0


def sketch_error(values: Float[np.ndarray, " width"], projected: Float[np.ndarray, "width row"]) -> float:
    """Return ‖QQᵀXᵀ - Xᵀ‖₂ with Q = orth(XᵀWᵀ), for X = U diag(values) Vᵀ and projected = UᵀWᵀ.

    Source: Yu et al. 2026, eq. 30. V cancels: with q = orth(diag(values) projected), where projected is [d, h d̃],
    the distance is ‖diag(values) (I - qqᵀ)‖₂ for any number of tokens.
    """
    from scipy.linalg import orth
    from scipy.sparse.linalg import LinearOperator, eigsh

    basis = orth(values[:, None] * projected)
    size = len(values)
    if basis.shape[1] >= size:
        return 0.0

    def apply(x: np.ndarray) -> np.ndarray:
        residual = x.ravel() - basis @ (basis.T @ x.ravel())
        residual = values**2 * residual
        out: np.ndarray = residual - basis @ (basis.T @ residual)
        return out

    operator = LinearOperator((size, size), matvec=apply, dtype=np.float64)
    # A fixed start vector makes the result reproducible.
    start = values[:, None].ravel() + 1e-3
    largest = eigsh(operator, k=1, v0=start, tol=1e-8, return_eigenvectors=False)[0]
    return float(np.sqrt(max(largest, 0.0)))


def sketch(rng: np.random.Generator, width: int, rows: int, n_filled: int) -> Float[np.ndarray, "row width"]:
    """Draw a sketch of `rows` rows, each with `n_filled` entries from N(0, 1) at random positions."""
    positions = np.argsort(rng.random((rows, width)), axis=1)[:, :n_filled]
    matrix = np.zeros((rows, width))
    np.put_along_axis(matrix, positions, rng.standard_normal((rows, n_filled)), axis=1)
    return matrix


def sketch_points(
    seed: int, *, width: int, rank: int, heads: Sequence[int], dense: bool = False
) -> list[dict[str, float | bool]]:
    """Return the distance of eq. 30 for every h, and the effective rank of the sketch.

    The effective rank is the number of singular values of X above the distance. Each of the h d̃ rows has d/h
    entries, so every h has the same number of entries. dense: each row has d entries. No sketch of h d̃ rows
    gets below σ_{hd̃+1} (`least`).
    """
    rng = np.random.default_rng([seed, 33])
    values, basis = exponential_values(width, DECAY), orthonormal(rng, width, width)
    points = []
    for count in heads:
        rows = count * rank
        matrix = sketch(rng, width, rows, width if dense else width // count)
        distance = sketch_error(values, (matrix @ basis).T)
        least = float(values[rows]) if rows < width else 0.0
        effective = int((values > distance).sum())
        points.append({"heads": count, "distance": distance, "least": least, "x": float(count), "y": float(effective)})
    return points
