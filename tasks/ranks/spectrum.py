"""Singular values of one matrix, the ranks that follow from them, and what rounding leaves of them."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

# Round to nearest of a value in [2^e, 2^(e+1)) errs by a uniform ±u 2^e. Root mean square over Benford's mantissas,
# E[err²] / E[value²] = (u² / 3) / (3 / (2 ln 2)): 0.39 u
ROUNDING = 0.3924
TYPES = {  # unit roundoff, and the distance of two subnormal numbers
    "bfloat16": (2.0**-8, 2.0**-133),
    "float16": (2.0**-11, 2.0**-24),
    "float32": (2.0**-24, 2.0**-149),
    "float64": (2.0**-53, 2.0**-1074),
}
ARITHMETIC = 1e-13  # of σ₁: what float64 factorisations err by, with room: bench/spectra.py measured 2e-15
SAFETY = 3.0  # science.md section 1: three times the rounding error's σ₁


def singular_values(matrix: Float[np.ndarray, "row column"]) -> Float[np.ndarray, " value"]:
    """All min(m, n), descending, in float64 (LAPACK gesdd, which scales huge and tiny matrices itself).

    Of a matrix without rows or columns: none. Raises ValueError for a wrong shape, NaN, infinity, or where the largest
    is beyond float64.
    """
    from scipy.linalg import svdvals

    matrix = np.asarray(matrix)
    if matrix.ndim != 2:
        raise ValueError(f"matrix: got shape {matrix.shape}, expected [row, column]")
    if not np.isfinite(matrix).all():
        raise ValueError("matrix: holds NaN or infinity; check the checkpoint and its dtype")
    if not matrix.size:
        return np.empty(0)
    found: np.ndarray = svdvals(matrix.astype(np.float64), check_finite=False, overwrite_a=True)
    if not np.isfinite(found).all():
        raise ValueError("singular values: beyond the largest float64; divide the matrix by 1e10")
    return found


def numerical_rank(values: Float[np.ndarray, " value"], epsilon: float, *, inclusive: bool = False) -> int:
    """#{j : σ_j / σ_1 > ε}.

    Source: rank_structure.md eq. 1. inclusive: ≥ for >, as the authors' code has it for Table 2, whose ε = 0 so keeps
    every direction. A matrix of zeros, or without any value, has rank 0 either way.
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
    """Smallest ε at which the ε-rank of a matrix stored in `dtype` is its own, not its rounding's.

    3 ‖E‖₂ / σ_1, E the rounding errors: independent, so that ‖E‖₂ is near the largest root mean square norm of a column
    and of a row of E together (Latała 2005; exact for equal variances), each 0.39 unit roundoffs times the matrix's
    own; where values are subnormal, of a uniform error of half their distance. At 4096 × 512 and rank 1 that is 2.8e-4
    in bfloat16, 3.4e-5 in float16 and 4.2e-9 in float32. Against measured errors of Gaussian, decaying, rank-one and
    constant matrices and ones with a massive row or column: 0.99 to 1.46 of 3 ‖E‖₂ / σ_1. At least ARITHMETIC; at most
    1, which a matrix of zeros has.
    leading: σ_1. longest_row, longest_column: largest norms.
    Raises ValueError for an unknown dtype.
    """
    if dtype not in TYPES:
        raise ValueError(f"dtype: got {dtype!r}, expected one of {list(TYPES)}")
    if not leading > 0:
        return 1.0
    roundoff, step = TYPES[dtype]
    relative = ROUNDING * roundoff * (longest_row / leading + longest_column / leading)
    absolute = step / np.sqrt(12) / leading * (np.sqrt(shape[0]) + np.sqrt(shape[1]))
    return float(np.clip(SAFETY * max(relative, absolute), ARITHMETIC, 1.0))


def matrix_floor(matrix: Float[np.ndarray, "row column"], leading: float, *, dtype: str) -> float:
    """`rounding_floor` of a matrix at hand, whose σ_1 is `leading`."""
    scaled = np.asarray(matrix, dtype=np.float64) / (leading or 1.0)  # so that squares neither pass nor vanish
    rows, columns = (float(np.linalg.norm(scaled, axis=axis).max(initial=0.0)) for axis in (1, 0))
    longest = {"longest_row": rows * leading, "longest_column": columns * leading}
    return rounding_floor(leading, dtype=dtype, shape=(len(scaled), scaled.shape[1]), **longest)
