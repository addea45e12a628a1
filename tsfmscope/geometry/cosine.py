"""Inter-token cosine similarity in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer


@dataclass(frozen=True)
class Cosine:
    """Inter-token cosines: zeta weighs token types, zeta_token weighs occurrences.

    Both are None with fewer than two types. Zero rows are left out. n_types: types that have rows that are
    not zero. n_zero: number of rows left out.
    """

    zeta: float | None
    zeta_token: float | None
    n_types: int
    n_zero: int


def inter_token_cosine(
    states: Float[np.ndarray, "token width"], types: Integer[np.ndarray, " token"] | None = None
) -> Cosine:
    """Return the expected cosine between two different token types, in O(N d).

    With u_i the unit rows, ū_k the mean and s_k the sum of the u_i of type k, n_k their number and K types:

        zeta = (‖Σ ū_k‖² - Σ ‖ū_k‖²) / (K² - K)
        zeta_token = (‖Σ u_i‖² - Σ ‖s_k‖²) / (N² - Σ n_k²)

    Source: Shelim et al. 2025, eq. 1. zeta is the exact expectation of eq. 1 over one random instance per
    type. Without types, every row is its own type, and the two are equal.

    Constant input: both are 1 where there are at least two types. A single token, one type, or zero rows
    only: both are None. NaN and infinity are not detected: a row with NaN is left out like a zero row, and a
    row with infinity makes both -1. Check the states first. Raises ValueError where types and states differ
    in length.
    """
    if types is not None and len(types) != len(states):
        raise ValueError(f"types: got {len(types)}, expected one per row, {len(states)}")
    units, is_nonzero = unit_rows(states)
    n_zero = len(states) - len(units)
    if types is None:
        sums, counts = units, np.ones(len(units))
    else:
        kinds = np.asarray(types)[is_nonzero]
        order = np.argsort(kinds, kind="stable")
        _, starts, rows_by_type = np.unique(kinds[order], return_index=True, return_counts=True)
        counts = rows_by_type.astype(np.float64)
        sums = np.add.reduceat(units[order], starts, axis=0) if len(starts) else units
    n_types = len(sums)
    if n_types < 2:
        return Cosine(None, None, n_types, n_zero)
    means = sums / counts[:, None]
    zeta = _off_diagonal(means) / (n_types**2 - n_types)
    n = counts.sum()
    zeta_token = _off_diagonal(sums) / (n**2 - counts @ counts)
    return Cosine(_clip(zeta), _clip(zeta_token), n_types, n_zero)


def unit_rows(states: Float[np.ndarray, "token width"]) -> tuple[Float[np.ndarray, "kept width"], np.ndarray]:
    """Return rows divided by their Euclidean norm in float64, without zero rows, and the mask [N] of kept rows.

    Each row is first divided by its largest entry, so that no square overflows or underflows.
    """
    rows = np.asarray(states, dtype=np.float64)
    largest = np.abs(rows).max(axis=1, initial=0.0)
    is_nonzero = largest > 0
    scaled = rows[is_nonzero] / largest[is_nonzero, None]
    return scaled / np.sqrt(np.einsum("nd,nd->n", scaled, scaled))[:, None], is_nonzero


def _off_diagonal(vectors: np.ndarray) -> float:
    """Return the sum of v_i · v_j over i ≠ j."""
    total = vectors.sum(axis=0)
    return float(total @ total - np.einsum("kd,kd->", vectors, vectors))


def _clip(cosine: float) -> float:
    # Rounding can exceed ±1.
    return min(1.0, max(-1.0, float(cosine)))
