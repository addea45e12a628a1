"""Angles between the lines that vectors span."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def line_angles(vectors: Float[np.ndarray, "vector width"]) -> Float[np.ndarray, "vector vector"]:
    """Return the angles θ_ij = arccos(|x_i·x_j| / (‖x_i‖ ‖x_j‖)) between the lines of all vectors.

    Angles are in radians, in [0, π/2]; the matrix is symmetric, and the angle of a vector with itself is 0.

    Source: Yu et al. 2026, eq. 2 (which prints the cosine) and Appendix H (the arccos). Computed as 2
    atan2(‖a − b‖, ‖a + b‖) of unit vectors a and ±b, with the sign that makes a·b ≥ 0. arccos would lose half
    the digits of small angles: it returns 0 below 1e-8.

    A zero vector spans no line: its angles with every vector and with itself are NaN. A single vector gives
    [[0]]. Raises ValueError for a wrong shape, NaN or infinity.
    """
    vectors = np.asarray(vectors)
    if vectors.ndim != 2 or not np.isfinite(vectors).all():
        raise ValueError(f"vectors: expected finite [vector, width], got shape {vectors.shape} or NaN or infinity")
    vectors = vectors.astype(np.float64)
    # Divided by the largest entry first, so that no square overflows or underflows.
    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0.0)
    scaled = vectors / np.where(largest > 0, largest, np.nan)
    units = scaled / np.linalg.norm(scaled, axis=1, keepdims=True)
    signs = np.where(units @ units.T < 0, -1.0, 1.0)
    angles = np.empty(signs.shape)
    # One row at a time: all differences at once would take N² d values.
    for row, unit in enumerate(units):
        aligned = signs[row, :, None] * units
        difference, total = (np.linalg.norm(part, axis=1) for part in (unit - aligned, unit + aligned))
        angles[row] = np.minimum(2 * np.arctan2(difference, total), np.pi / 2)
    return angles
