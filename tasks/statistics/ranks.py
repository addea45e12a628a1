"""Rank correlations of units, some missing, some counted more than once."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

FEWEST_UNITS = 3  # two units always have a rank correlation of 1 or -1
SPREAD = 1e-12  # a variance below this share of the squared values is rounding


def complete(x: Float[np.ndarray, "*units"], y: Float[np.ndarray, "*units"]) -> Bool[np.ndarray, "*units"]:
    """Where both are numbers: a unit with NaN or an infinity on either side has no place in a correlation."""
    there: np.ndarray = np.isfinite(x) & np.isfinite(y)
    return there


def weighted_spearman(
    x: Float[np.ndarray, " unit"], y: Float[np.ndarray, " unit"], weights: Float[np.ndarray, "draw unit"]
) -> Float[np.ndarray, " draw"]:
    """Spearman's rho where unit i stands weights[b, i] times in draw b: Pearson's r of average ranks.

    rho = sum_i w_i (r_i - m)(s_i - m) / sqrt(...); a rank is the weight below plus half of the weight at the same value
    (Kendall 1945, ties), which is scipy.stats.spearmanr of the units written out.
    Units without both values weigh nothing. NaN in a draw of fewer than three different units or of constant values.
    """
    there = complete(x, y)
    x, y, w = x[there], y[there], weights[:, there]
    total = w.sum(axis=1, keepdims=True)
    a, b = (w @ _below(values).T - total / 2 for values in (x, y))  # the mean rank is half of the weight
    cross, xx, yy = ((w * one * other).sum(axis=1) for one, other in ((a, b), (a, a), (b, b)))
    floor = SPREAD * total[:, 0] ** 3
    defined = ((w > 0).sum(axis=1) >= FEWEST_UNITS) & (xx > floor) & (yy > floor)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(defined, np.clip(cross / np.sqrt(xx * yy), -1, 1), np.nan)


def spearman(x: Float[np.ndarray, " unit"], y: Float[np.ndarray, " unit"]) -> float:
    """Spearman's rho of the units with both values; NaN under three of them or where one side is constant."""
    return float(weighted_spearman(x, y, np.ones((1, len(x))))[0])


def kendall(x: Float[np.ndarray, " unit"], y: Float[np.ndarray, " unit"]) -> float:
    """Kendall's tau-b (Kendall 1945) of the units with both values; NaN where `spearman` is."""
    from scipy import stats

    there = complete(x, y)
    x, y = x[there], y[there]
    if len(x) < FEWEST_UNITS or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(stats.kendalltau(x, y, variant="b").statistic)


def average_ranks(values: Float[np.ndarray, " unit"]) -> Float[np.ndarray, " unit"]:
    """Ranks from 1, ties sharing their mean; no NaN may be among the values."""
    from scipy import stats

    ranks: np.ndarray = stats.rankdata(values)
    return ranks


def why_undefined(x: Float[np.ndarray, " unit"], y: Float[np.ndarray, " unit"]) -> str | None:
    """In words, why units have no rank correlation; None where they have one."""
    there = complete(x, y)
    n = int(there.sum())
    if n < FEWEST_UNITS:
        return f"{n} units with isotropy and NMSE, needs {FEWEST_UNITS}"
    constant = [name for name, values in (("isotropy", x), ("log NMSE", y)) if np.ptp(values[there]) == 0]
    return f"{' and '.join(constant)} constant" if constant else None


def _below(values: Float[np.ndarray, " unit"]) -> Float[np.ndarray, "unit unit"]:
    """Row i: 1 where another value is smaller than value i, 1/2 where it is the same."""
    below: np.ndarray = (values[None, :] < values[:, None]) + 0.5 * (values[None, :] == values[:, None])
    return below
