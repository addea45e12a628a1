"""Rank correlations of units, of which some may be missing and some may count more than once."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

# Two units always have a rank correlation of 1 or -1.
FEWEST_UNITS = 3
# A variance below this share of the squared values is rounding.
SPREAD = 1e-12


def complete(x: Float[np.ndarray, "*units"], y: Float[np.ndarray, "*units"]) -> Bool[np.ndarray, "*units"]:
    """Return where both values are finite; other units are left out of a correlation."""
    return np.asarray(np.isfinite(x) & np.isfinite(y))


def weighted_spearman(
    x: Float[np.ndarray, " unit"], y: Float[np.ndarray, " unit"], weights: Float[np.ndarray, "draw unit"]
) -> Float[np.ndarray, " draw"]:
    """Return Spearman's rho where unit i counts weights[b, i] times in draw b: Pearson's r of average ranks.

        rho = sum_i w_i (r_i - m)(s_i - m) / sqrt(sum_i w_i (r_i - m)² sum_i w_i (s_i - m)²)

    A rank is the weight below the value plus half of the weight at the same value (Kendall 1945, ties). The
    result equals scipy.stats.spearmanr of the units repeated by their weights. Units without both values have
    no weight. NaN for a draw of fewer than three different units, or of constant values.
    """
    is_complete = complete(x, y)
    x, y, w = x[is_complete], y[is_complete], weights[:, is_complete]
    total = w.sum(axis=1, keepdims=True)
    # The mean rank is half of the total weight.
    a, b = (w @ _below(values).T - total / 2 for values in (x, y))
    cross, xx, yy = ((w * first * second).sum(axis=1) for first, second in ((a, b), (a, a), (b, b)))
    floor = SPREAD * total[:, 0] ** 3
    is_defined = ((w > 0).sum(axis=1) >= FEWEST_UNITS) & (xx > floor) & (yy > floor)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(is_defined, np.clip(cross / np.sqrt(xx * yy), -1, 1), np.nan)


def spearman(x: Float[np.ndarray, " unit"], y: Float[np.ndarray, " unit"]) -> float:
    """Return Spearman's rho of the units with both values.

    NaN for fewer than three such units, or where one side is constant.
    """
    return float(weighted_spearman(x, y, np.ones((1, len(x))))[0])


def kendall(x: Float[np.ndarray, " unit"], y: Float[np.ndarray, " unit"]) -> float:
    """Return Kendall's tau-b (Kendall 1945) of the units with both values; NaN where `spearman` is NaN."""
    from scipy import stats

    is_complete = complete(x, y)
    x, y = x[is_complete], y[is_complete]
    if len(x) < FEWEST_UNITS or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(stats.kendalltau(x, y, variant="b").statistic)


def average_ranks(values: Float[np.ndarray, " unit"]) -> Float[np.ndarray, " unit"]:
    """Return ranks from 1, where ties share their mean rank; the values must contain no NaN."""
    from scipy import stats

    return np.asarray(stats.rankdata(values))


def undefined_reason(x: Float[np.ndarray, " unit"], y: Float[np.ndarray, " unit"]) -> str | None:
    """Return the reason, as text, for which units have no rank correlation; None if they have one."""
    is_complete = complete(x, y)
    n = int(is_complete.sum())
    if n < FEWEST_UNITS:
        return f"{n} units with isotropy and NMSE, needs {FEWEST_UNITS}"
    constant = [name for name, values in (("isotropy", x), ("log NMSE", y)) if np.ptp(values[is_complete]) == 0]
    return f"{' and '.join(constant)} constant" if constant else None


def _below(values: Float[np.ndarray, " unit"]) -> Float[np.ndarray, "unit unit"]:
    """Return a matrix whose row i has 1 for each smaller value and 1/2 for each equal one."""
    return np.asarray((values[None, :] < values[:, None]) + 0.5 * (values[None, :] == values[:, None]))
