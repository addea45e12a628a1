"""Sizes of a rank correlation of n independent units that are significant, or detected with 80 % power."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np

from tsfmscope.statistics.means import POWER

# 8! = 40,320 orders.
MAX_ENUMERATED = 8
# Variance of atanh(rho) times n - 3. Source: Fieller, Hartley & Pearson 1957, Biometrika 44.
FIELLER = 1.06


@functools.lru_cache(maxsize=256)
def critical_rho(n: int, alpha: float = 0.05) -> float:
    """Return the smallest |rho| of n units without ties with two-sided p <= alpha.

    Exact up to n = 8, by Fieller's z for larger n. n = 5: 1.00, n = 12: 0.59, n = 22: 0.43. NaN where no
    order of n units is that rare (n < 5 at 0.05).
    """
    if n > MAX_ENUMERATED:
        return math.tanh(_normal(1 - alpha / 2) * math.sqrt(FIELLER / (n - 3)))
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
    critical = critical_rho(n, alpha)
    if not critical < 1:
        return math.nan
    return math.tanh((_normal(1 - alpha / 2) + _normal(POWER)) * math.sqrt(FIELLER / (n - 3)))


def _normal(probability: float) -> float:
    from scipy import stats

    return float(stats.norm.ppf(probability))
