"""Corrections of p-values for many tests in one table."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def adjust(p: Float[np.ndarray, " test"]) -> tuple[Float[np.ndarray, " test"], Float[np.ndarray, " test"], int]:
    """Return the p-values of one table adjusted by two methods, and the number of tests that have a p-value.

    First Benjamini-Hochberg 1995, then Benjamini-Yekutieli 2001, which is valid for tests that depend on each other in
    any way. Tests whose p is NaN are left out; their adjusted values are NaN.
    """
    from scipy import stats

    is_defined = np.isfinite(p)
    bh, by = np.full(len(p), np.nan), np.full(len(p), np.nan)
    if is_defined.any():
        bh[is_defined] = stats.false_discovery_control(p[is_defined], method="bh")
        by[is_defined] = stats.false_discovery_control(p[is_defined], method="by")
    return bh, by, int(is_defined.sum())
