"""Corrections for asking many questions of one table."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Adjusted(NamedTuple):
    """Adjusted p of each test, NaN where there was none, and how many tests there were."""

    bh: np.ndarray
    by: np.ndarray
    n: int


def adjust(p: Float[np.ndarray, " test"]) -> Adjusted:
    """Benjamini-Hochberg 1995 and, for tests that depend on each other in any way, Benjamini-Yekutieli 2001."""
    from scipy import stats

    there = np.isfinite(p)
    bh, by = np.full(len(p), np.nan), np.full(len(p), np.nan)
    if there.any():
        bh[there] = stats.false_discovery_control(p[there], method="bh")
        by[there] = stats.false_discovery_control(p[there], method="by")
    return Adjusted(bh, by, int(there.sum()))
