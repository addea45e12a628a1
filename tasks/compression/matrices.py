"""One matrix at a time: truncated SVD, its form weighed by the inputs, and the projection of Theorem 3's proof."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from tasks.compression.products import Factors, triangle


def plain(matrix: Float[np.ndarray, "row column"]) -> Factors:
    """Truncated SVD (rank_structure.md, Table 2), the singular values shared evenly between the factors."""
    u, values, vt = np.linalg.svd(matrix, full_matrices=False)
    halves = np.sqrt(values)
    return Factors(u * halves, halves[:, None] * vt, values)


def weighed(matrix: Float[np.ndarray, "row column"], inputs: Float[np.ndarray, "n column"]) -> Factors:
    """Best for the mean squared output: W̃ = U_r U_rᵀ W, U that of W C^½ (science.md section 6).

    inputs: R with RᵀR = C, the second moments of what the matrix multiplies; C is never formed, nor inverted.
    """
    u, values, _ = np.linalg.svd(matrix @ triangle(inputs).T)
    return Factors(u, u.T @ matrix, values)


def projected(matrix: Float[np.ndarray, "row column"], inputs: Float[np.ndarray, "n column"]) -> Factors:
    """W̃ = W U_r U_rᵀ, U the leading directions of the inputs: the same for every matrix that reads them.

    Source: the proof of Theorem 3 in rank_structure.md. inputs: as of `weighed`.
    """
    _, lengths, vt = np.linalg.svd(inputs, full_matrices=False)
    left = matrix @ vt.T
    return Factors(left, vt, np.linalg.norm(left, axis=0) * lengths)
