"""Fixed embeddings of values: Chebyshev polynomials of a chosen rank, and sines of many wavelengths."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

# Number of ids that stand for no value and have a vector of their own: PAD and EOS.
WITHOUT_VALUE = 2
# Shortest and longest wavelength, in units of scaled values, which go from -15 to 15. With 1,024
# ids, the bins of Chronos are 0.03 apart.
SHORTEST, LONGEST = 0.15, 60.0


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


def smooth_embedding(
    values: Float[np.ndarray, " id"], *, width: int, std: float, seed: int
) -> Float[np.ndarray, "id width"]:
    """Return vectors whose inner products depend on the difference of two values alone, largest at zero.

    The features sin(2 pi x / w) and cos(2 pi x / w) at width // 2 wavelengths w, in a geometric row from SHORTEST to
    LONGEST, are rotated by a random orthogonal matrix and scaled to a root mean square of `std` per entry. Source: the
    encoding of positions by Vaswani et al. 2017, with other wavelengths and without the rotation.
    Raises ValueError for an odd width, for a `std` that is not above 0, and for values that are not finite.
    """
    if width < 2 or width % 2:
        raise ValueError(f"width: got {width}, expected an even number from 2")
    if not 0 < std < np.inf:
        raise ValueError(f"std: got {std:g}, expected a number above 0")
    if not np.isfinite(values).all():
        raise ValueError(f"values: got {np.count_nonzero(~np.isfinite(values))} that are not finite, expected none")
    angles = np.asarray(values, np.float64)[:, None] * (2 * np.pi / np.geomspace(SHORTEST, LONGEST, width // 2))
    features = np.concatenate((np.sin(angles), np.cos(angles)), axis=1) * (std * np.sqrt(2))
    rotation, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(width, width)))
    rows: np.ndarray = features @ rotation
    return rows
