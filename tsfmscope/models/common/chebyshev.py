"""Embeddings of a chosen rank, made of Chebyshev polynomials (Yu et al. 2026, Appendix I)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

# Number of ids that stand for no value and have a vector of their own: PAD and EOS.
WITHOUT_VALUE = 2


def chebyshev_embedding(
    points: Float[np.ndarray, " point"], *, rank: int, width: int, seed: int
) -> tuple[Float[np.ndarray, "point width"], Float[np.ndarray, "special width"]]:
    """Return embedding vectors of the values, of rank `rank`, and of the ids without value, in float64.

    Phi_k(x) = sum over j = 1..k of T_j(x / x_max) u_j, T_j(cos a) = cos(j a), u_j random orthonormal columns.
    Source: Yu et al. 2026, Appendix I. As printed there, the sum begins at T_1, so that Phi_1 is linear.
    Deviations: x_max is max |x| of the points (15 in Chronos). Appendix I does not mention PAD and EOS; they
    get two further columns of the same orthonormal matrix, so that they lie outside the subspace of the
    values.
    Raises ValueError for a rank below 1, above the number of points, or so large that rank + 2 columns do not
    fit the width. Raises ValueError for points that are all zero or not finite.
    """
    top = float(np.max(np.abs(points), initial=0.0))
    if not 0 < top < np.inf:
        raise ValueError(f"points: expected finite values that are not all zero, got max |x| {top:g}")
    if not 1 <= rank <= min(width - WITHOUT_VALUE, len(points)):
        raise ValueError(
            f"chebyshev_rank: got {rank}, expected 1..{min(width - WITHOUT_VALUE, len(points))} for width {width} and "
            f"{len(points)} values"
        )
    gaussian = np.random.default_rng(seed).normal(size=(width, rank + WITHOUT_VALUE))
    columns, _ = np.linalg.qr(gaussian)  # [d, k + 2], orthonormal
    angles = np.arccos(np.asarray(points, np.float64) / top)
    polynomials = np.cos(np.arange(1, rank + 1) * angles[:, None])  # [L, k]
    return polynomials @ columns[:, :rank].T, columns[:, rank:].T
