"""Singular values of a matrix, the tolerance below which rounding decides its rank, and the geometry of its rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from tsfmscope.ranks.tall import TallQR

# Rounding a value in [2^e, 2^(e+1)) to nearest errs by a uniform ±u 2^e. The root mean square over
# Benford's mantissas is E[err²] / E[value²] = (u² / 3) / (3 / (2 ln 2)): 0.39 u.
RELATIVE_ROUNDING = 0.3924
# Unit roundoff, and the spacing of subnormal numbers.
TYPES = {
    "bfloat16": (2.0**-8, 2.0**-133),
    "float16": (2.0**-11, 2.0**-24),
    "float32": (2.0**-24, 2.0**-149),
    "float64": (2.0**-53, 2.0**-1074),
}
# Error of float64 factorisations relative to σ₁, with a margin: bench/spectra.py measured 2e-15.
ARITHMETIC = 1e-13
# docs/science.md, Numerical rank: three times the largest singular value of the rounding error.
SAFETY = 3.0


def singular_values(matrix: Float[np.ndarray, "row column"]) -> Float[np.ndarray, " value"]:
    """Return all min(m, n) singular values, descending, in float64.

    LAPACK gesdd is used, which scales very large and very small matrices itself. A matrix without rows or
    columns has none. Raises ValueError for a wrong shape, for NaN or infinity, and where the largest singular
    value is beyond float64.
    """
    from scipy.linalg import svdvals

    matrix = np.asarray(matrix)
    if matrix.ndim != 2:
        raise ValueError(f"matrix: got shape {matrix.shape}, expected [row, column]")
    if not np.isfinite(matrix).all():
        raise ValueError("matrix: got NaN or infinity, expected finite values; check the checkpoint and its dtype")
    if not matrix.size:
        return np.empty(0)
    values: np.ndarray = svdvals(matrix.astype(np.float64), check_finite=False, overwrite_a=True)
    if not np.isfinite(values).all():
        raise ValueError("singular values: got more than the largest float64; divide the matrix by 1e10")
    return values


def numerical_rank(values: Float[np.ndarray, " value"], epsilon: float) -> int:
    """Return the numerical rank #{j : σ_j / σ_1 > ε}.

    Source: Yu et al. 2026, eq. 1. Deviation: the authors' code for Table 2 counts ≥, so that its ε = 0 keeps every
    direction. A matrix of zeros, or without values, has rank 0. A single row that is not zero has rank 1 for ε
    below 1; a constant matrix has rank 1 for ε between rounding and 1. Raises ValueError for NaN or negative
    values, and for an ε outside [0, 1].
    """
    if not 0 <= epsilon <= 1:
        raise ValueError(f"epsilon: got {epsilon}, expected a tolerance relative to σ_1, from 0 to 1")
    values = np.asarray(values, dtype=np.float64)
    if not (values >= 0).all():
        raise ValueError("values: expected singular values of at least 0, got NaN or a negative one")
    largest = values.max(initial=0.0)
    if largest == 0:
        return 0
    return int(np.count_nonzero(values / largest > epsilon))


def rounding_floor(
    leading: float, *, dtype: str, shape: tuple[int, int], longest_row: float, longest_column: float
) -> float:
    """Return the smallest ε at which rounding to `dtype` does not decide the numerical rank of a matrix.

        floor = 3 ‖E‖₂ / σ_1, at least ARITHMETIC and at most 1 (a matrix of zeros has 1)

    E is the matrix of rounding errors. Its entries are independent, so ‖E‖₂ is close to the sum of the
    largest root mean square norms of a column and of a row of E (Latała 2005; exact for equal variances).
    Each of these is 0.39 unit roundoffs times the norm in the matrix itself. Where values are subnormal, the
    error is uniform within half of their spacing.

    Examples for a constant matrix of 4096 × 512 (rank 1): 2.8e-4 in bfloat16, 3.4e-5 in float16 and 4.2e-9 in
    float32. Compared with the measured errors of Gaussian, decaying, rank-one and constant matrices, and of
    matrices with a massive row or column, the floor is 0.99 to 1.46 times 3 ‖E‖₂ / σ_1. Source: docs/science.md,
    Numerical rank.

    leading: σ_1. longest_row, longest_column: largest norms. Raises ValueError for an unknown dtype.
    """
    if dtype not in TYPES:
        raise ValueError(f"dtype: got {dtype!r}, expected one of {list(TYPES)}")
    if not leading > 0:
        return 1.0
    roundoff, step = TYPES[dtype]
    relative = RELATIVE_ROUNDING * roundoff * (longest_row / leading + longest_column / leading)
    absolute = step / np.sqrt(12) / leading * (np.sqrt(shape[0]) + np.sqrt(shape[1]))
    return float(np.clip(SAFETY * max(relative, absolute), ARITHMETIC, 1.0))


def matrix_floor(matrix: Float[np.ndarray, "row column"], leading: float, *, dtype: str) -> float:
    """Return the `rounding_floor` of a matrix in memory whose largest singular value is `leading`."""
    # Scaled, so that squares neither overflow nor underflow.
    scaled = np.asarray(matrix, dtype=np.float64) / (leading or 1.0)
    rows, columns = (float(np.linalg.norm(scaled, axis=axis).max(initial=0.0)) for axis in (1, 0))
    longest = {"longest_row": rows * leading, "longest_column": columns * leading}
    return rounding_floor(leading, dtype=dtype, shape=(len(scaled), scaled.shape[1]), **longest)


NO_ROWS = "no token of these kinds"


def input_row(states: np.ndarray, *, dtype: str, tokens: str, what: str = "input") -> dict[str, Any]:
    """Return the columns of `spectra` for a layer's input tokens [N, d], without the columns that identify it."""
    qr = TallQR.of([states])
    values, centred = qr.singular_values(), qr.singular_values(centred=True)
    floor = rounding_floor(
        float(values.max(initial=0.0)),
        dtype=dtype,
        shape=(qr.rows, qr.width),
        longest_row=qr.longest_row,
        longest_column=qr.longest_column,
    )
    reason = None if values.any() else "all tokens are zero" if qr.rows else NO_ROWS
    return {
        **dict.fromkeys(("matrix", "attention", "head", "heads", "step")),
        "what": what,
        "tokens": tokens,
        "n_rows": qr.rows,
        "n_columns": qr.width,
        "dtype": dtype,
        "floor": floor,
        "singular_values": values.tolist(),
        "singular_values_centred": centred.tolist(),
        "reason": reason,
    }


def weight_row(matrix: np.ndarray, *, dtype: str) -> dict[str, Any]:
    """Return the columns of `spectra` for one matrix [out, in], without those that identify the matrix."""
    values = singular_values(matrix)
    return {
        **dict.fromkeys(("normed", "tokens", "singular_values_centred")),
        "what": "weight",
        "n_rows": matrix.shape[0],
        "n_columns": matrix.shape[1],
        "dtype": dtype,
        "floor": matrix_floor(matrix, float(values.max(initial=0.0)), dtype=dtype),
        "singular_values": values.tolist(),
        "reason": None if values.any() else "all entries are zero",
    }


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


def leading_plane(rows: Float[np.ndarray, "row width"]) -> Float[np.ndarray, "row 2"]:
    """Return the coordinates of the rows on their two leading right singular vectors.

    The rows are not centred, and coordinates are in the rows' own units. Source: Yu et al. 2026, Fig. 2b and
    2c. The sign of a direction is arbitrary: here its entry of largest absolute value (the first among
    equals) is positive. Rows of rank 1 have second coordinates at rounding level; rows of width 1 have second
    coordinate 0. Raises ValueError for a wrong shape, NaN or infinity.
    """
    rows = np.asarray(rows)
    directions = TallQR.of([rows]).directions()[:, :2]
    largest = np.abs(directions).argmax(axis=0)
    directions = directions * np.where(directions[largest, np.arange(directions.shape[1])] < 0, -1.0, 1.0)
    plane = np.zeros((len(rows), 2))
    plane[:, : directions.shape[1]] = rows.astype(np.float64) @ directions
    return plane
