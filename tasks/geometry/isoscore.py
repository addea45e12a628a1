"""IsoScore and IsoScore* of a covariance spectrum."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

SHRINKAGE = 0.2  # Rudman & Eickhoff 2024, default of the released run_model.py


def isoscore(eigenvalues: Float[np.ndarray, " width"]) -> float | None:
    """IsoScore in [0, 1]: 0 where one direction holds all variance, 1 where every direction holds the same.

    With Λ the eigenvalues and d their number: Λ̂ = √d Λ/‖Λ‖, δ = ‖Λ̂ - 1‖ / √(2 (d - √d)), and the score is
    ((d - δ² (d - √d))² - d) / (d (d - 1)). That is (r - 1)/(d - 1) with the participation ratio r = (Σ λ)²/Σ λ², which
    is what is computed: the printed steps lose digits near 0. Source: Rudman et al. 2022, algorithm 1, and the IsoScore
    package. It takes the spectrum of the centred covariance; fewer rows than d directions lower it.
    One direction, or constant states, have none. Raises ValueError for a negative eigenvalue or one that is not finite.
    """
    values = _checked(eigenvalues)
    if len(values) < 2 or not values.any():
        return None
    shares = values / values.max()  # so that no square over- or underflows
    ratio = shares.sum() ** 2 / np.square(shares).sum()
    return float(min(1.0, max(0.0, (ratio - 1) / (len(values) - 1))))


def isoscore_star(
    eigenvalues: Float[np.ndarray, " width"], *, shrinkage: float = SHRINKAGE, target: float = 1.0
) -> float | None:
    """IsoScore of the covariance (1 - z) Σ + z t I, which few rows do not lower as much; z = 0 gives IsoScore.

    Source: Rudman & Eickhoff 2024, section 3, and isoscore_star of the released regularizers.py with C0 = I, which its
    authors advise where there is no larger sample (target t = 1). The identity has a scale, so the score then depends
    on that of the states; a target of the mean eigenvalue frees it. With a C0 of one's own: `isoscore_star_of`.
    """
    if not 0 <= shrinkage <= 1:
        raise ValueError(f"shrinkage: got {shrinkage}, expected a share in [0, 1]")
    return isoscore((1 - shrinkage) * _checked(eigenvalues) + shrinkage * target)


def isoscore_star_of(
    covariance: Float[np.ndarray, "width width"], shrunk_to: Float[np.ndarray, "width width"], shrinkage: float
) -> float | None:
    """IsoScore of (1 - z) Σ + z C0, both covariances: IsoScore* as trained with, C0 that of a larger sample."""
    mixed = (1 - shrinkage) * np.asarray(covariance, np.float64) + shrinkage * np.asarray(shrunk_to, np.float64)
    return isoscore(np.maximum(np.linalg.eigvalsh(mixed), 0.0))


def _checked(eigenvalues: np.ndarray) -> np.ndarray:
    values = np.asarray(eigenvalues, dtype=np.float64)
    if not np.isfinite(values).all() or (values < 0).any():
        raise ValueError("eigenvalues: expected finite values of at least 0; check the states")
    return values
