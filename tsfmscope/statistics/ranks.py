"""Rank correlations of units, of which some may be missing or count more than once, and their detectable sizes."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
from jaxtyping import Bool, Float

from tsfmscope.statistics.means import POWER

# Two units always have a rank correlation of 1 or -1.
FEWEST_UNITS = 3
# A variance below this share of the squared values is rounding.
SPREAD = 1e-12
# 8! = 40,320 orders.
MAX_ENUMERATED = 8
# Variance of atanh(rho) times n - 3. Source: Fieller, Hartley & Pearson 1957, Biometrika 44.
FIELLER = 1.06


def complete(x: Float[np.ndarray, "*units"], y: Float[np.ndarray, "*units"]) -> Bool[np.ndarray, "*units"]:
    """Return where both values are finite; other units are left out of a correlation."""
    return np.asarray(np.isfinite(x) & np.isfinite(y))


def mean_of_defined(values: np.ndarray, weights: np.ndarray | int = 1, *, axis: int) -> np.ndarray:
    """Return the weighted mean of the finite values along an axis; NaN where there is none."""
    is_defined = np.isfinite(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(
            (weights * np.where(is_defined, values, 0)).sum(axis=axis) / (weights * is_defined).sum(axis=axis)
        )


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
    a, b = (
        w @ ((values[None, :] < values[:, None]) + 0.5 * (values[None, :] == values[:, None])).T - total / 2
        for values in (x, y)
    )
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


@functools.lru_cache(maxsize=256)
def critical_rho(n: int, alpha: float = 0.05) -> float:
    """Return the smallest |rho| of n units without ties with two-sided p <= alpha.

    Exact up to n = 8, by Fieller's z for larger n. n = 5: 1.00, n = 12: 0.59, n = 22: 0.43. NaN where no
    order of n units is that rare (n < 5 at 0.05).
    """
    from scipy import stats

    if n > MAX_ENUMERATED:
        return math.tanh(stats.norm.ppf(1 - alpha / 2) * math.sqrt(FIELLER / (n - 3)))
    if n < 2:
        return math.nan
    ranks = np.arange(n) - (n - 1) / 2
    permuted_ranks = np.array(list(itertools.permutations(ranks)))
    rho = np.round(np.abs(permuted_ranks @ ranks) / (ranks @ ranks), 12)
    values, counts = np.unique(rho, return_counts=True)
    at_least = counts[::-1].cumsum()[::-1] / len(rho)
    significant = values[at_least <= alpha]
    return float(significant[0]) if len(significant) else math.nan


def detectable_rho(n: int, alpha: float = 0.05) -> float:
    """Return the |rho| of the population that n units detect in 80 % of samples, by Fieller's z.

    n = 12: 0.74, n = 22: 0.58. NaN where the critical size is 1 or does not exist (n <= 5 at 0.05): no
    correlation gives such power.
    """
    from scipy import stats

    critical = critical_rho(n, alpha)
    if not critical < 1:
        return math.nan
    return math.tanh((stats.norm.ppf(1 - alpha / 2) + stats.norm.ppf(POWER)) * math.sqrt(FIELLER / (n - 3)))
