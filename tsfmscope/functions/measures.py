"""Measures of an array of hidden states, without any model."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Integer

from tsfmscope.arrays import real_array
from tsfmscope.functions.arguments import Share, Tolerance, checked
from tsfmscope.geometry import spectrum as axes
from tsfmscope.geometry.measures import LIST_COLUMNS, check_states, measure_states
from tsfmscope.ranks import spectrum


def isotropy(
    x: Float[np.ndarray, "token width"], types: Integer[np.ndarray, " token"] | None = None, *, seed: int = 0
) -> dict[str, Any]:
    """Measure the isotropy of hidden states.

    Source: Shelim et al. 2025, eqs. 1, 5 and 6, and section 4.1; docs/science.md defines each value.

    Args:
        x: hidden states, one row per token; an array or a torch tensor of any real type.
        types: id of each token; only pairs of different types count. None: every token is its own type.
        seed: seed of cluster starts and permutations.

    Returns:
        `zeta`: mean cosine between tokens. `zeta_adjusted`: mean cosine within clusters, after centring.
        `zeta_adjusted_corrected`: zeta_adjusted minus its mean over permuted coordinates. It responds to
        skewness and to unequal norms; `isoscore` shows how evenly directions are used.
        `zeta_adjusted_excess`: zeta_adjusted minus its mean over random directions with the same norms.
        `log_isotropy`, `k` (number of clusters), and the other columns of the table `geometry`. A value that the
        states do not define (constant states, fewer than 3 tokens) is None, and `reason` states why.

    Raises:
        ValueError: x is not [token, width], contains NaN or infinity, or its largest entry is neither 0 nor
            between 1e-100 and 1e100.
        TypeError: the values are not real numbers.
    """
    row = measure_states(real_array(x), types, seed=seed)
    return {name: value for name, value in row.items() if name not in LIST_COLUMNS}


@checked
def effective_dimension(x: Float[np.ndarray, "token width"], share: Share = 0.8) -> int:
    """Return the smallest number of principal directions that hold a share of the variance of the rows.

    Source: Shelim et al. 2025, section 4.1, where the share is called ε. Rounding adds about 1e-16 of the variance to
    every direction, and a share of 1 counts these directions too: states of rank 3 then have a dimension above 3.
    `numerical_rank` has a tolerance for this purpose.

    Args:
        x: hidden states, one row per token; an array or a torch tensor of any real type.
        share: share of the variance, in (0, 1].

    Raises:
        ValueError: x is not [token, width] with at least two rows that differ, contains NaN or infinity, its
            largest entry is neither 0 nor between 1e-100 and 1e100, or the share is outside (0, 1].
        TypeError: the values are not real numbers.
    """
    states = real_array(x)
    check_states(states, None)
    return axes.effective_dimension(axes.covariance_spectrum(states).eigenvalues, share)


@checked
def numerical_rank(x: Float[np.ndarray, "row column"], epsilon: Tolerance = 0.01) -> int:
    """Count the singular values above epsilon times the largest one.

    Source: Yu et al. 2026, eq. 1. A matrix of zeros has rank 0, any other constant matrix rank 1.

    Args:
        x: a matrix; an array or a torch tensor of any real type.
        epsilon: relative tolerance, in [0, 1].

    Raises:
        ValueError: x is not a matrix, contains NaN or infinity, or epsilon is outside [0, 1].
        TypeError: the values are not real numbers.
    """
    return spectrum.numerical_rank(singular_values(x), epsilon)


def singular_values(x: Float[np.ndarray, "row column"]) -> Float[np.ndarray, " value"]:
    """Return the singular values of a matrix in float64, the largest first.

    Args:
        x: a matrix; an array or a torch tensor of any real type.

    Raises:
        ValueError: x is not a matrix, or contains NaN or infinity.
        TypeError: the values are not real numbers.
    """
    return spectrum.singular_values(real_array(x))
