"""Ranks of ZS-SVD: singular values are removed so that the predicted changes of the loss sum to about zero."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from tsfmscope.compression.budget import refuse
from tsfmscope.compression.candidates import Candidate
from tsfmscope.compression.methods.interface import Statistics

# Smallest rank, as a share of the largest rank at which two factors have fewer numbers than the matrix (public code).
SMALLEST = 0.1


def zero_sum(candidates: Sequence[Candidate], budget: int, statistics: Statistics) -> list[int]:
    """Return the ranks that the zero-sum rule leaves within the budget.

    From every matrix, its last singular value can be removed next. While the sum of predicted changes of the loss is
    above zero, the removal with the smallest decrease comes next, and otherwise the one with the smallest increase;
    if there is none of that sign, the smallest change of the other. Ranks do not fall below a share SMALLEST.
    Source: ZS-SVD, arXiv 2602.02848, and its public code. Deviations: one stage, without corrective gradient steps and
    without factors in 8 bits. Idle candidates get rank 1, and a budget that is too small for the smallest ranks has no
    smallest ranks. As in that code, a removal counts as saved parameters only once two factors have fewer numbers than
    the matrix, and a matrix that is left at a higher rank keeps its full rank.
    BudgetError if rank 1 of every candidate exceeds the budget.
    """
    least = [_least_rank(candidate) for candidate in candidates]
    if budget < _count(candidates, least):
        least = [1] * len(candidates)
    if budget < (smallest := _count(candidates, least)):
        refuse(budget, smallest)
    ranks = [candidate.full if any(candidate.shares) else 1 for candidate in candidates]
    changes = [_changes(candidate, statistics) for candidate in candidates]
    # Removals by whether they increase the loss: size of the change, number of the removal, candidate.
    heaps: dict[bool, list[tuple[float, int, int]]] = {True: [], False: []}
    numbers = itertools.count()

    def push(index: int) -> None:
        if ranks[index] > least[index]:
            change = float(changes[index][ranks[index] - 1])
            heapq.heappush(heaps[change >= 0], (abs(change), next(numbers), index))

    for index in range(len(candidates)):
        push(index)
    size, total = _count(candidates, ranks), 0.0
    while size > budget:
        wants_increase = total <= 0
        *_, index = heapq.heappop(heaps[wants_increase] or heaps[not wants_increase])
        ranks[index] -= 1
        total += float(changes[index][ranks[index]])
        costs = candidates[index].costs
        size -= int(costs[ranks[index]] - costs[ranks[index] - 1])
        push(index)
    return [candidate.widest(rank) for candidate, rank in zip(candidates, ranks, strict=True)]


def _least_rank(candidate: Candidate) -> int:
    """Return the smallest rank of a candidate, 1 if it is idle."""
    if not any(candidate.shares):
        return 1
    return max(1, math.ceil(SMALLEST * ((candidate.before - 1) // int(candidate.costs[0]))))


def _count(candidates: Sequence[Candidate], ranks: Sequence[int]) -> int:
    """Return the number of parameters at these ranks."""
    return sum(int(candidate.costs[rank - 1]) for candidate, rank in zip(candidates, ranks, strict=True))


def _changes(candidate: Candidate, statistics: Statistics) -> Float[np.ndarray, " rank"]:
    """Return the predicted change of the loss by the removal of each singular value: −σ uᵀ G S⁻ᵀ v.

    σ, u and v are those of W S, with S Sᵀ = E x xᵀ, and G is the mean gradient by W. Since σ vᵀ = uᵀ W S, the change is
    −uᵀ G Wᵀ u, which needs no inverse of S. The factors of `weighted_factors` are U and Uᵀ W.
    """
    (name,), (factors,) = candidate.parts, candidate.factors
    gradient = statistics[candidate.layer.name][name].gradients.mean(axis=0, dtype=np.float64)
    changes: np.ndarray = -np.einsum("oi,oi->o", factors.left.T @ gradient, factors.right)
    return changes
