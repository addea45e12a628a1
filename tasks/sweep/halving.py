"""The law by which a search stops trials."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Halving:
    """Asynchronous successive halving (ASHA, Li et al. 2020) of the rows that trials report.

    At `grace`, grace x reduction, ... up to `most` of `time`, a trial goes on if its `metric` is among the least 1 /
    reduction of those that came so far.
    """

    most: int
    grace: int
    reduction: float = 3.0
    time: str = "step"
    metric: str = "loss"
