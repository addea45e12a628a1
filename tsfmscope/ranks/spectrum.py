"""Singular values of one matrix, its numerical ranks, and the tolerance below which rounding decides them."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

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


def numerical_rank(values: Float[np.ndarray, " value"], epsilon: float, *, inclusive: bool = False) -> int:
    """Return the numerical rank #{j : σ_j / σ_1 > ε}.

    Source: Yu et al. 2026, eq. 1. inclusive: ≥ instead of >, as in the authors' code for Table 2, whose ε = 0
    therefore keeps every direction. A matrix of zeros, or without values, has rank 0 in both cases. A single
    row that is not zero has rank 1 for ε below 1; a constant matrix has rank 1 for ε between rounding and 1.
    Raises ValueError for NaN or negative values, and for an ε outside [0, 1].
    """
    if not 0 <= epsilon <= 1:
        raise ValueError(f"epsilon: got {epsilon}, expected a tolerance relative to σ_1, from 0 to 1")
    values = np.asarray(values, dtype=np.float64)
    if not (values >= 0).all():
        raise ValueError("values: expected singular values of at least 0, got NaN or a negative one")
    largest = values.max(initial=0.0)
    if largest == 0:
        return 0
    ratios = values / largest
    return int(np.count_nonzero(ratios >= epsilon if inclusive else ratios > epsilon))


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
