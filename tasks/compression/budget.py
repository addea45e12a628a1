"""One budget over many parts, each of which costs more and errs less the higher its rank."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int


class BudgetError(ValueError):
    """A budget that rank 1 of everything is beyond."""


class Curve(NamedTuple):
    """Of one part, by rank 1, 2, ...: its cost, never falling, and its error, never growing."""

    costs: Int[np.ndarray, " rank"]
    errors: Float[np.ndarray, " rank"]


def allocate(curves: Sequence[Curve], budget: int) -> list[int]:
    """Ranks, at least 1, of least summed error within the budget: greedy by gain over cost.

    From rank 1 on, the step that gains most for its cost is taken, of any length that the budget allows. Optimal where
    every rank costs the same and gains never grow (squared singular values); elsewhere less than the gain of one
    step from it. BudgetError where rank 1 of every part is beyond the budget.
    """
    left = budget - sum(int(curve.costs[0]) for curve in curves)
    if left < 0:
        raise BudgetError(f"budget: got {budget}, expected at least {budget - left}, which rank 1 of every part costs")
    ranks = [1] * len(curves)
    waiting = [step for place, curve in enumerate(curves) if (step := _best(place, curve, 1, left))]
    heapq.heapify(waiting)
    while waiting:
        _, place, rank = heapq.heappop(waiting)
        curve, now = curves[place], ranks[place]
        cost = int(curve.costs[rank - 1] - curve.costs[now - 1])
        if cost <= left:
            ranks[place], left = rank, left - cost
        if step := _best(place, curve, ranks[place], left):  # of what the budget still allows
            heapq.heappush(waiting, step)
    return ranks


def _best(place: int, curve: Curve, rank: int, left: int) -> tuple[float, int, int] | None:
    """The next step of a part as (-gain over cost, place, its rank), the shortest of equals; None where none gains."""
    costs = curve.costs[rank:] - curve.costs[rank - 1]
    gains = curve.errors[rank - 1] - curve.errors[rank:]
    worth = np.where((costs <= left) & (gains > 0), gains, 0.0) / np.maximum(costs, 1e-9)
    if not len(worth) or worth.max() <= 0:
        return None
    best = int(np.argmax(worth))
    return -float(worth[best]), place, rank + best + 1
