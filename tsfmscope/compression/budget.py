"""Allocation of one budget over many parts, whose costs grow and whose errors shrink with their ranks."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

import numpy as np
from jaxtyping import Float, Int


class BudgetError(ValueError):
    """Error for a budget that is too small even for rank 1 of every part."""


class Curve(NamedTuple):
    """Cost (never decreasing) and error (never increasing) of one part by rank 1, 2, ..."""

    costs: Int[np.ndarray, " rank"]
    errors: Float[np.ndarray, " rank"]


def allocate(curves: Sequence[Curve], budget: int) -> list[int]:
    """Return one rank per part, at least 1, for the least summed error within the budget, by a greedy search.

    Starting at rank 1, the search repeatedly takes the step with the largest gain over cost; a step may span
    several ranks if the budget allows it. The result is optimal where every rank costs the same and gains
    never grow, as with squared singular values. Elsewhere its error exceeds the optimum by less than the gain
    of one step. BudgetError if rank 1 of every part exceeds the budget.
    """
    remaining = budget - sum(int(curve.costs[0]) for curve in curves)
    if remaining < 0:
        refuse(budget, budget - remaining)
    ranks = [1] * len(curves)
    heap = [step for index, curve in enumerate(curves) if (step := _best(index, curve, 1, remaining))]
    heapq.heapify(heap)
    while heap:
        _, index, rank = heapq.heappop(heap)
        curve, now = curves[index], ranks[index]
        cost = int(curve.costs[rank - 1] - curve.costs[now - 1])
        if cost <= remaining:
            ranks[index], remaining = rank, remaining - cost
        # The best step within the rest of the budget.
        if step := _best(index, curve, ranks[index], remaining):
            heapq.heappush(heap, step)
    return ranks


class Spectrum(NamedTuple):
    """Costs of one part by rank 1, 2, ... (never decreasing), and its singular values (empty if idle)."""

    costs: Int[np.ndarray, " rank"]
    values: Float[np.ndarray, " value"]


def allocate_by_tolerance(spectra: Sequence[Spectrum], budget: int) -> list[int]:
    """Return the numerical rank of every part, at least 1, at the smallest tolerance within the budget.

    Source: Yu et al. 2026, Table 2, where every matrix is truncated to its numerical rank at one tolerance ε.
    Deviations: the paper gives ε, while here it is found by bisection. A part without values stays at rank 1.
    A part whose rank costs as much as its full rank gets the full rank.
    BudgetError if rank 1 of every part exceeds the budget.
    """
    relative = [
        spectrum.values / spectrum.values.max() if spectrum.values.any() else spectrum.values[:0]
        for spectrum in spectra
    ]
    tolerances = np.unique(np.concatenate([[0.0, 1.0], *relative]))

    def ranks_at(tolerance: float) -> list[int]:
        counts = [max(1, int(np.count_nonzero(values > tolerance))) for values in relative]
        return [widest(spectrum.costs, count) for spectrum, count in zip(spectra, counts, strict=True)]

    def is_within(tolerance: float) -> bool:
        ranks = zip(spectra, ranks_at(tolerance), strict=True)
        return sum(int(spectrum.costs[rank - 1]) for spectrum, rank in ranks) <= budget

    if not is_within(1.0):
        refuse(budget, sum(int(spectrum.costs[0]) for spectrum in spectra))
    first = bisect_left(tolerances, True, key=is_within)
    return ranks_at(float(tolerances[first]))


def widest(costs: np.ndarray, rank: int) -> int:
    """Return the full rank if it costs as much as this rank, else this rank."""
    return len(costs) if costs[rank - 1] == costs[-1] else rank


def refuse(budget: int, least: int) -> NoReturn:
    """Raise BudgetError for a budget below the cost of rank 1 of every part."""
    raise BudgetError(f"budget: got {budget}, expected at least {least}, the cost of rank 1 of every part")


def _best(index: int, curve: Curve, rank: int, remaining: int) -> tuple[float, int, int] | None:
    """Return the next step of a part as (-gain over cost, index, new rank), or None if no step gains.

    The shortest of several equal steps is taken.
    """
    costs = curve.costs[rank:] - curve.costs[rank - 1]
    gains = curve.errors[rank - 1] - curve.errors[rank:]
    worth = np.where((costs <= remaining) & (gains > 0), gains, 0.0) / np.maximum(costs, 1e-9)
    if not len(worth) or worth.max() <= 0:
        return None
    best = int(np.argmax(worth))
    return -float(worth[best]), index, rank + best + 1
