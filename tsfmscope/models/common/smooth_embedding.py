"""Embedding in which near values have near vectors: sines and cosines of the value, at wavelengths of many sizes."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

# Shortest and longest wavelength, in units of a scaled value. Values go from -15 to 15; with 1,024 ids, the bins of
# Chronos are 0.03 apart.
SHORTEST, LONGEST = 0.15, 60.0


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
