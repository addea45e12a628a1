"""Coverage of a prediction interval."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def count_covered(
    target: Float[np.ndarray, " step"], low: Float[np.ndarray, " step"], high: Float[np.ndarray, " step"]
) -> tuple[int, int]:
    """Return the number of targets inside an interval, and the number of observed targets.

    coverage = #{t: low_t <= y_t <= high_t} / #{t: y_t is observed}

    Source: the usual definition; 0.8 is ideal for quantiles 0.1 to 0.9. Missing targets (NaN) count in neither
    number, a target on an end of the interval is inside, and without targets both numbers are 0.
    """
    is_observed = np.isfinite(target)
    is_covered = is_observed & (target >= low) & (target <= high)
    return int(is_covered.sum()), int(is_observed.sum())
