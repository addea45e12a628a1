"""Angles between the lines that vectors span."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def line_angles(vectors: Float[np.ndarray, "vector width"]) -> Float[np.ndarray, "vector vector"]:
    """θ_ij = arccos(|x_i·x_j| / (‖x_i‖ ‖x_j‖)) in radians, in [0, π/2], symmetric, 0 of a vector with itself.

    Source: rank_structure.md eq. 2 (which prints the cosine) and Appendix H (the arccos). Ours: 2 atan2(‖a − b‖,
    ‖a + b‖) of unit vectors a and ±b, of the sign that makes a·b ≥ 0, since arccos loses half the digits of small
    angles: it answers 0 below 1e-8. A zero vector spans no line: NaN with every vector and with itself.
    Raises ValueError for a wrong shape, NaN or infinity.
    """
    vectors = np.asarray(vectors)
    if vectors.ndim != 2 or not np.isfinite(vectors).all():
        raise ValueError(f"vectors: expected finite [vector, width], got shape {vectors.shape} or NaN or infinity")
    units = _units(vectors.astype(np.float64))
    signs = np.where(units @ units.T < 0, -1.0, 1.0)
    angles = np.empty(signs.shape)
    for row, unit in enumerate(units):  # one row at a time: all differences at once are N² d
        aligned = signs[row, :, None] * units
        apart, together = (np.linalg.norm(part, axis=1) for part in (unit - aligned, unit + aligned))
        angles[row] = np.minimum(2 * np.arctan2(apart, together), np.pi / 2)
    return angles


def _units(vectors: np.ndarray) -> np.ndarray:
    """Rows of norm 1; rows of NaN for zero rows. By the largest entry first, so that no square passes or vanishes."""
    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0.0)
    safe = np.where(largest > 0, largest, np.nan)
    scaled = vectors / safe
    units: np.ndarray = scaled / np.linalg.norm(scaled, axis=1, keepdims=True)
    return units
