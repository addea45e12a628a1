"""IsoScore and IsoScore*, computed from a covariance spectrum."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

# Source: Rudman & Eickhoff 2024, default of the released run_model.py.
SHRINKAGE = 0.2


def isoscore(eigenvalues: Float[np.ndarray, " width"]) -> float | None:
    """Return IsoScore in [0, 1]: 0 if one direction holds all variance, 1 if all directions hold the same.

    With Λ the eigenvalues and d their number:

        Λ̂ = √d Λ/‖Λ‖,  δ = ‖Λ̂ - 1‖ / √(2 (d - √d)),  score = ((d - δ² (d - √d))² - d) / (d (d - 1))

    This equals (r - 1)/(d - 1) with the participation ratio r = (Σ λ)²/Σ λ². The second form is computed,
    because the printed steps lose digits near 0. Source: Rudman et al. 2022, algorithm 1, and the IsoScore
    package. The input is the spectrum of the centred covariance; having fewer rows than d directions lowers
    the score.

    None for a single direction and for constant states. Raises ValueError for an eigenvalue that is negative
    or not finite.
    """
    values = _check_eigenvalues(eigenvalues)
    if len(values) < 2 or not values.any():
        return None
    # Scaled values, so that no square overflows or underflows.
    shares = values / values.max()
    ratio = shares.sum() ** 2 / np.square(shares).sum()
    return float(min(1.0, max(0.0, (ratio - 1) / (len(values) - 1))))


def isoscore_star(
    eigenvalues: Float[np.ndarray, " width"], *, shrinkage: float = SHRINKAGE, target: float = 1.0
) -> float | None:
    """Return IsoScore of the shrunk covariance (1 - z) Σ + z t I.

    A small number of rows lowers it less than IsoScore. shrinkage: z; 0 gives IsoScore. target: t. Source:
    Rudman & Eickhoff 2024, section 3, and isoscore_star of the released regularizers.py with C0 = I, which
    its authors recommend where no larger sample exists (t = 1). The identity has a scale, so with a fixed
    target the score depends on the scale of the states; a target equal to the mean eigenvalue removes that.

    A single direction gives None. Constant states give 1 where z t is above 0. Raises ValueError for a
    shrinkage outside [0, 1], and for eigenvalues as `isoscore` does.
    """
    if not 0 <= shrinkage <= 1:
        raise ValueError(f"shrinkage: got {shrinkage}, expected a share in [0, 1]")
    return isoscore((1 - shrinkage) * _check_eigenvalues(eigenvalues) + shrinkage * target)


def _check_eigenvalues(eigenvalues: np.ndarray) -> np.ndarray:
    values = np.asarray(eigenvalues, dtype=np.float64)
    if not np.isfinite(values).all() or (values < 0).any():
        raise ValueError("eigenvalues: expected finite values of at least 0; check the states")
    return values
