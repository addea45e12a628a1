"""Cosine inside clusters, after each cluster's mean is taken away."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer

from tasks.geometry.cosine import inter_token_cosine

SAME = 1e-12  # a residual under this share of the cluster's largest norm is rounding of equal rows (float64)


@dataclass(frozen=True)
class Adjusted:
    """zeta′ as the plain mean over clusters, weighted by size, its mechanical floor, and with the floor removed.

    used: clusters averaged; small: clusters left out for having under min_cluster rows. None of it when none is used.
    """

    mean: float | None
    weighted: float | None
    floor: float | None
    corrected: float | None
    used: int
    small: int


def adjusted_cosine(
    states: Float[np.ndarray, "token width"],
    labels: Integer[np.ndarray, " token"],
    types: Integer[np.ndarray, " token"] | None = None,
    *,
    min_cluster: int = 30,
) -> Adjusted:
    """ζ′ = mean over clusters of ζ(ψ - mean of the cluster), token types counted inside the cluster.

    Source: isotropy paper, eq. 6. n_c centred rows have ζ near -1/(n_c - 1) however isotropic they are, so clusters
    under min_cluster rows are left out, and `corrected` = mean of ζ_c + 1/(n_c - 1) stands beside. A cluster of equal
    rows, or of one type, has no ζ and is left out as well (neither used nor small). NaN gives NaN: check before.
    """
    if len(labels) != len(states):
        raise ValueError(f"labels: got {len(labels)}, expected one a row, {len(states)}")
    order = np.argsort(labels, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(np.asarray(labels)[order])) + 1)
    zetas, sizes, small = [], [], 0
    for rows in groups:
        if len(rows) < min_cluster:
            small += 1
            continue
        zeta = inter_token_cosine(_residuals(states[rows]), None if types is None else types[rows]).zeta
        if zeta is not None:
            zetas.append(zeta)
            sizes.append(len(rows))
    if not zetas:
        return Adjusted(None, None, None, None, 0, small)
    floor = float(np.mean([-1 / (n - 1) for n in sizes]))
    mean = float(np.mean(zetas))
    return Adjusted(mean, float(np.average(zetas, weights=sizes)), floor, mean - floor, len(zetas), small)


def _residuals(rows: np.ndarray) -> np.ndarray:
    """Rows less their mean in float64; those that differ from it by rounding alone become exactly zero."""
    rows = np.asarray(rows, dtype=np.float64)
    residuals: np.ndarray = rows - rows.mean(axis=0)
    rounding = np.abs(residuals).max(axis=1) <= SAME * np.abs(rows).max()
    residuals[rounding] = 0.0
    return residuals
