"""Schedule of the learning rate of every training."""

from __future__ import annotations

import math


def rate(step: int, steps: int, warm_up: float, schedule: str | None) -> float:
    """Return the factor of the learning rate at a step: a decay to 0 at `steps`, times a linear warm-up.

    The decay is half a cosine if `schedule` is "cosine", else a line. warm_up: number of steps of the warm-up; 0: none.
    """
    part = min(1.0, step / steps)
    decay = (1 + math.cos(math.pi * part)) / 2 if schedule == "cosine" else 1.0 - part
    return min((step + 1) / warm_up, 1.0) * decay if warm_up else decay
