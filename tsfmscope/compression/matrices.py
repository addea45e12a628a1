"""Low-rank factors of one matrix: truncated SVD, SVD with weights, projection on input directions."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from tsfmscope.compression.products import Factors, triangle


def plain_factors(matrix: Float[np.ndarray, "row column"]) -> Factors:
    """Return the SVD as factors, each scaled by the square roots of the singular values.

    Source: Yu et al. 2026, Table 2.
    """
    u, values, vt = np.linalg.svd(matrix, full_matrices=False)
    halves = np.sqrt(values)
    return Factors(u * halves, halves[:, None] * vt, values)


def weighted_factors(matrix: Float[np.ndarray, "row column"], inputs: Float[np.ndarray, "n column"]) -> Factors:
    """Return the factors with the least mean squared error of the output W x.

    W̃ = U_r U_rᵀ W, with U from the SVD of W C^½.
    Source: docs/science.md, Compression; SVD-LLM's whitening (ICLR 2025) has the same optimum.
    inputs: R with RᵀR = C, the second moments of the inputs x. C is neither formed nor inverted.
    """
    root = triangle(inputs)
    # All directions of the outputs are kept, also those that the inputs do not reach.
    u, values, _ = np.linalg.svd(matrix @ root.T, full_matrices=len(root) < len(matrix))
    return Factors(u, u.T @ matrix, values)


def projected_factors(matrix: Float[np.ndarray, "row column"], inputs: Float[np.ndarray, "n column"]) -> Factors:
    """Return the factors of W̃ = W U_r U_rᵀ, with U the leading directions of the inputs.

    All matrices that read the same inputs get the same U. Source: Yu et al. 2026, proof of Theorem 3.
    inputs: as in `weighted_factors`.
    """
    _, lengths, vt = np.linalg.svd(inputs, full_matrices=False)
    left = matrix @ vt.T
    return Factors(left, vt, np.linalg.norm(left, axis=0) * lengths)
