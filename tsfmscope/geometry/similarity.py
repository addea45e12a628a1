"""Similarity of layers: debiased linear CKA with jackknife intervals, and Procrustes distance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Integer

from tsfmscope.geometry.parallel import one_thread_if_small

Rows = Float[np.ndarray, "row width"]
Pairs = Float[np.ndarray, "layer layer"]
# Confidence of the intervals.
CONFIDENCE = 0.95
# Centred states below this share of the largest entry are the float64 rounding of equal rows.
SAME = 1e-12
# HSIC_1 is not defined for fewer rows.
FEWEST_ROWS = 4


class Similarity(NamedTuple):
    """Similarities of all pairs of layers; NaN: not defined.

    cka: debiased linear CKA. cka_low, cka_high: ends of its interval. procrustes: distance in [0, 2].
    """

    cka: Pairs
    cka_low: Pairs
    cka_high: Pairs
    procrustes: Pairs


def compare_layers(layers: Sequence[Rows], groups: Integer[np.ndarray, " row"]) -> Similarity:
    """Compare every layer with every other one, in O(n d²) per pair and without a matrix of n × n.

    Debiased linear CKA is HSIC_1(X, Y) / √(HSIC_1(X, X) HSIC_1(Y, Y)). With centred rows, k_i = ‖x_i‖², l_i = ‖y_i‖²:

        HSIC_1 = (‖XᵀY‖² - n/(n - 2) Σ k_i l_i + Σ k_i Σ l_i / ((n - 1)(n - 2))) / (n (n - 3))

    This equals Song et al. 2012, eq. 5, for linear kernels, because HSIC_1 does not change if a constant is added to
    all rows. Nguyen et al. 2021 and Murphy et al. 2024 use it for CKA: the plain estimate is near 1 for unrelated
    states whose width is large against n. The debiased one may be slightly negative, or above 1. It treats rows as
    independent; of rows that are not, such as those of one series, only the interval takes account.

    The interval is a delete-one-group jackknife (Efron & Stein 1981) of CKA, with Student's t of groups - 1 degrees of
    freedom. A bootstrap is not used: it draws a row several times, and HSIC_1, which leaves out the products of each
    row with itself, would count those of its copies.

    Procrustes is the squared distance of the centred states of Frobenius norm 1 after the best rotation,
    2 - 2 ‖XᵀY‖ with the nuclear norm (Ding et al. 2021; Williams et al. 2021). Zeros fill up the narrower layer. It is
    not debiased: few rows against the width make unrelated states look near.

    Args:
        layers: states of the same rows, one array per layer; widths may differ.
        groups: group of each row, such as its series, from 0 without gaps.

    Returns:
        Matrices with one row and one column per layer. Constant states, and fewer than four rows, have no CKA; constant
        states have no distance; a single group, and a group without which CKA is not defined, give no interval.

    Raises:
        ValueError: a state is not finite, or the numbers of rows differ.
    """
    from scipy.special import stdtrit

    n_groups, count = int(groups.max(initial=-1)) + 1, len(layers)
    # [1 + G, n]: 1 for the rows of each sample: all of them, then all but those of one group.
    kept = np.concatenate([np.ones((1, len(groups))), groups != np.arange(n_groups)[:, None]])
    sizes = kept.sum(axis=1)
    centred = [_centre(layer, len(groups)) for layer in layers]
    with one_thread_if_small(centred[0]), np.errstate(divide="ignore", invalid="ignore"):
        # Means of the samples [1 + G, d], and squared norms of their centred rows [1 + G, n].
        means = [kept @ rows / sizes[:, None] for rows in centred]
        norms = [
            kept * (np.square(rows).sum(axis=1) - 2 * mean @ rows.T + np.square(mean).sum(axis=1)[:, None])
            for rows, mean in zip(centred, means, strict=True)
        ]
        traces = np.array([norm.sum(axis=1) for norm in norms])
        members = [np.flatnonzero(groups == group) for group in range(n_groups)]
        hsic, procrustes = np.empty((1 + n_groups, count, count)), np.empty((count, count))
        for i, j in zip(*np.triu_indices(count), strict=True):
            x, y = centred[i], centred[j]
            cross = x.T @ y
            squares = [np.vdot(cross, cross)]
            for group, rows in enumerate(members, start=1):
                rest = cross - x[rows].T @ y[rows] - sizes[group] * np.outer(means[i][group], means[j][group])
                squares.append(np.vdot(rest, rest))
            diagonal = sizes / (sizes - 2) * (norms[i] * norms[j]).sum(axis=1)
            total = traces[i] * traces[j] / ((sizes - 1) * (sizes - 2))
            hsic[:, i, j] = hsic[:, j, i] = (squares - diagonal + total) / (sizes * (sizes - 3))
            nuclear = np.linalg.svd(cross, compute_uv=False).sum()
            procrustes[i, j] = procrustes[j, i] = 2 - 2 * nuclear / np.sqrt(traces[i, 0] * traces[j, 0])
        hsic[sizes < FEWEST_ROWS] = np.nan
        own = np.diagonal(hsic, axis1=1, axis2=2)
        # Where too few rows differ, HSIC_1 of a layer with itself is negative, or the rounding error of zero.
        deviations = np.sqrt(np.where(own > SAME * np.square(traces[:, 0] / sizes[0]), own, np.nan))
        cka, *without = hsic / (deviations[:, :, None] * deviations[:, None, :])
        # NaN for a single group, without which no row is left.
        spread = stdtrit(n_groups - 1, (1 + CONFIDENCE) / 2) * np.sqrt((n_groups - 1) * np.var(without, axis=0))
    return Similarity(cka, cka - spread, cka + spread, np.clip(procrustes, 0, 2))


def _centre(states: Rows, n_rows: int) -> Rows:
    """Return centred rows in float64, divided by the largest entry; zeros for equal rows."""
    rows = np.asarray(states, dtype=np.float64)
    if not n_rows or len(rows) != n_rows or not np.isfinite(rows).all():
        raise ValueError(f"layers: expected finite states, one row per group index, {n_rows}; got {len(rows)} rows")
    # Scaled first, so that no square overflows or underflows.
    rows = rows / (np.abs(rows).max(initial=0.0) or 1.0)
    rows = rows - rows.mean(axis=0)
    largest = np.abs(rows).max(initial=0.0)
    return rows / largest if largest > SAME else np.zeros_like(rows)
