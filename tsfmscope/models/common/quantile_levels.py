"""Quantiles at levels between those that a model predicts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float


def level_weights(model_levels: Sequence[float], levels: Sequence[float]) -> Float[np.ndarray, "model_level level"]:
    """Return weights by which quantiles at a model's ascending levels give those at other levels.

    Quantiles between two levels of the model lie on a line; outside of them they are the outermost quantile.
    """
    return np.array([np.interp(levels, model_levels, unit) for unit in np.eye(len(model_levels))])
