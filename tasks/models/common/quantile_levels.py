"""Quantiles at levels between those that a model predicts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float


def level_weights(known: Sequence[float], levels: Sequence[float]) -> Float[np.ndarray, "known level"]:
    """Return weights by which quantiles at `known` ascending levels give those at other levels.

    Quantiles between two known levels lie on a line; outside of them they are the outermost quantile.
    """
    return np.array([np.interp(levels, known, unit) for unit in np.eye(len(known))])
