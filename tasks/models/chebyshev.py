"""Embeddings of a chosen rank, made of Chebyshev polynomials (Appendix I of the rank paper)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

WITHOUT_VALUE = 2  # ids that stand for no value and have a vector of their own: PAD and EOS


def chebyshev_embedding(
    points: Float[np.ndarray, " point"], *, rank: int, width: int, seed: int
) -> tuple[Float[np.ndarray, "point width"], Float[np.ndarray, "special width"]]:
    """Vectors of values, of rank `rank` exactly, and of the ids that have no value, in float64.

    Phi_k(x) = sum over j = 1..k of T_j(x / x_max) u_j, T_j(cos a) = cos(j a), u_j random orthonormal columns.
    Source: rank_structure.md, Appendix I; the sum begins at T_1, so that Phi_1 is linear, as printed there.
    Deviation: x_max is max |x| of the points (15 in Chronos), and PAD and EOS, which Appendix I says nothing of, get
    two further columns of the same orthonormal draw, so that they lie outside the values' subspace.
    ValueError for a rank below 1, above the number of points or so large that rank + 2 columns do not fit the width,
    and for points that are all zero or not finite.
    """
    top = float(np.max(np.abs(points), initial=0.0))
    if not 0 < top < np.inf:
        raise ValueError(f"points: expected finite values that are not all zero, got max |x| {top:g}")
    if not 1 <= rank <= min(width - WITHOUT_VALUE, len(points)):
        raise ValueError(
            f"chebyshev_rank: got {rank}, expected 1..{min(width - WITHOUT_VALUE, len(points))} for width {width} and "
            f"{len(points)} values"
        )
    drawn = np.random.default_rng(seed).normal(size=(width, rank + WITHOUT_VALUE))
    columns, _ = np.linalg.qr(drawn)  # [d, k + 2], orthonormal
    angles = np.arccos(np.asarray(points, np.float64) / top)
    polynomials = np.cos(np.arange(1, rank + 1) * angles[:, None])  # [L, k]
    return polynomials @ columns[:, :rank].T, columns[:, rank:].T
