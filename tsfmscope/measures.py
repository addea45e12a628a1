"""Measures of an array of hidden states, without any model."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Integer

from tsfmscope.tasks.geometry import dimension
from tsfmscope.tasks.geometry.measure import check_states, measure_states
from tsfmscope.tasks.ranks import spectrum

# Columns of `measure_states` that hold one value per direction or per candidate number of clusters.
LISTS = ("eigenvalues", "silhouettes")


def isotropy(
    x: Float[np.ndarray, "token width"], types: Integer[np.ndarray, " token"] | None = None, *, seed: int = 0
) -> dict[str, Any]:
    """Measure the isotropy of hidden states.

    Source: Shelim et al. 2025, eqs. 1, 5 and 6, and section 4.1; docs/measures/isotropy.md defines each value.

    Args:
        x: hidden states, one row per token.
        types: id of each token; only pairs of different types count. None: every token is its own type.
        seed: seed of cluster starts and permutations.

    Returns:
        `zeta`: mean cosine between tokens. `zeta_adjusted`: mean cosine within clusters, after centring.
        `zeta_adjusted_corrected`: that less its mean for isotropic states. `log_isotropy`, `isoscore`,
        `k` (number of clusters), and further values. A value that the states do not define is None, and
        `reason` says why.

    Raises:
        ValueError: x is not [token, width], or holds NaN or infinity.
    """
    row = measure_states(np.asarray(x), types, seed=seed)
    return {name: value for name, value in row.items() if name not in LISTS}


def effective_dimension(x: Float[np.ndarray, "token width"], share: float = 0.8) -> int:
    """Return the smallest number of principal directions that hold a share of the variance of the rows.

    Source: Shelim et al. 2025, section 4.1, d(ε) with ε = share.

    Raises:
        ValueError: x is not [token, width] with at least two rows that differ, holds NaN or infinity, or the
            share is outside (0, 1].
    """
    states = np.asarray(x)
    check_states(states, None)
    return dimension.effective_dimension(dimension.covariance_spectrum(states).eigenvalues, share)


def numerical_rank(x: Float[np.ndarray, "row column"], epsilon: float = 0.01) -> int:
    """Count the singular values above epsilon times the largest one.

    Source: Yu et al. 2026, definition of the ε-rank. A matrix of zeros has rank 0.

    Raises:
        ValueError: x is not a matrix, holds NaN or infinity, or epsilon is outside [0, 1].
    """
    return spectrum.numerical_rank(singular_values(x), epsilon)


def singular_values(x: Float[np.ndarray, "row column"]) -> Float[np.ndarray, " value"]:
    """Return the singular values of a matrix in float64, the largest first.

    Raises:
        ValueError: x is not a matrix, or holds NaN or infinity.
    """
    return spectrum.singular_values(np.asarray(x))
