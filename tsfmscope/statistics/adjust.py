"""Corrections of p-values for many tests in one table."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class AdjustedPValues(NamedTuple):
    """Adjusted p-values of each test by both methods, and the number of tests.

    bh, by: NaN where a test has no p-value. n: number of tests that have one.
    """

    bh: np.ndarray
    by: np.ndarray
    n: int


def adjust(p: Float[np.ndarray, " test"]) -> AdjustedPValues:
    """Adjust the p-values of one table for the number of its tests.

    bh: Benjamini-Hochberg 1995. by: Benjamini-Yekutieli 2001, valid for tests that depend on each other in
    any way. Tests whose p is NaN are left out.
    """
    from scipy import stats

    is_defined = np.isfinite(p)
    bh, by = np.full(len(p), np.nan), np.full(len(p), np.nan)
    if is_defined.any():
        bh[is_defined] = stats.false_discovery_control(p[is_defined], method="bh")
        by[is_defined] = stats.false_discovery_control(p[is_defined], method="by")
    return AdjustedPValues(bh, by, int(is_defined.sum()))
