"""Corrections of p-values for many tests in one table."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Adjusted(NamedTuple):
    """Adjusted p-values of each test by both methods, and the number of tests.

    bh, by: NaN where a test has no p-value. n: number of tests that have one.
    """

    bh: np.ndarray
    by: np.ndarray
    n: int


def adjust(p: Float[np.ndarray, " test"]) -> Adjusted:
    """Adjust the p-values of one table for the number of its tests.

    bh: Benjamini-Hochberg 1995. by: Benjamini-Yekutieli 2001, valid for tests that depend on each other in
    any way. Tests whose p is NaN are left out.
    """
    from scipy import stats

    there = np.isfinite(p)
    bh, by = np.full(len(p), np.nan), np.full(len(p), np.nan)
    if there.any():
        bh[there] = stats.false_discovery_control(p[there], method="bh")
        by[there] = stats.false_discovery_control(p[there], method="by")
    return Adjusted(bh, by, int(there.sum()))
