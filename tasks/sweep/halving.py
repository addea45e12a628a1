"""Rule by which a search stops trials; apart from asha.py, which imports Ray, so that planning does not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Halving:
    """Asynchronous successive halving (ASHA, Li et al. 2020) of the rows that trials report.

    The rungs are at `grace`, grace x reduction, ... up to `most`, in units of `time`. At a rung, a trial
    continues if its `metric` is among the smallest 1 / reduction of the values reported there so far.
    """

    most: int
    grace: int
    reduction: float = 3.0
    time: str = "step"
    metric: str = "loss"
