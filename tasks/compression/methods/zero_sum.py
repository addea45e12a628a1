"""Ranks of ZS-SVD: singular values are removed so that the predicted changes of the loss sum to about zero."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from tsfmscope.tasks.compression.budget import refuse
from tsfmscope.tasks.compression.candidates import Candidate
from tsfmscope.tasks.compression.methods.interface import Statistics

# Smallest rank, as a share of the rank at which two factors have as many numbers as the matrix (public code).
SMALLEST = 0.1


def zero_sum(candidates: Sequence[Candidate], budget: int, statistics: Statistics) -> list[int]:
    """Return the ranks that the zero-sum rule leaves within the budget.

    From every matrix, its last singular value can be removed next. While the sum of predicted changes of the loss is
    above zero, the removal with the smallest decrease comes next, and otherwise the one with the smallest increase;
    if there is none of that sign, the smallest change of the other.
    Source: ZS-SVD, arXiv 2602.02848, and its public code. Deviations: one stage, without the corrective gradient step.
    If a rank leaves a matrix with as many numbers as before, it is not counted as smaller, as there.
    BudgetError if SMALLEST, or rank 1 where that is less, of every candidate exceeds the budget.
    """
    changes = [_changes(candidate, statistics) for candidate in candidates]
    per_rank = [int(candidate.costs[0]) for candidate in candidates]
    least = [max(1, int(np.ceil(SMALLEST * one.before / cost))) for one, cost in zip(candidates, per_rank, strict=True)]
    least = [1 if not any(candidate.shares) else rank for candidate, rank in zip(candidates, least, strict=True)]
    ranks = [candidate.full for candidate in candidates]
    for index, candidate in enumerate(candidates):
        if not any(candidate.shares):
            ranks[index] = 1
    if budget < sum(int(one.costs[rank - 1]) for one, rank in zip(candidates, least, strict=True)):
        # The public code keeps a tenth of every matrix; smaller budgets need rank 1.
        least = [1] * len(candidates)
    if budget < sum(per_rank):
        refuse(budget, sum(per_rank))
    size, total = sum(int(one.costs[rank - 1]) for one, rank in zip(candidates, ranks, strict=True)), 0.0
    heaps: dict[bool, list[tuple[float, int]]] = {True: [], False: []}

    def push(index: int) -> None:
        if ranks[index] > least[index]:
            change = float(changes[index][ranks[index] - 1])
            heapq.heappush(heaps[change > 0], (abs(change), index))

    for index in range(len(candidates)):
        push(index)
    while size > budget:
        wants_increase = total <= 0
        _, index = heapq.heappop(heaps[wants_increase] or heaps[not wants_increase])
        ranks[index] -= 1
        total += float(changes[index][ranks[index]])
        costs = candidates[index].costs
        size -= int(costs[ranks[index]] - costs[ranks[index] - 1])
        push(index)
    return [candidate.widest(rank) for candidate, rank in zip(candidates, ranks, strict=True)]


def _changes(candidate: Candidate, statistics: Statistics) -> Float[np.ndarray, " rank"]:
    """Return the predicted change of the loss if one singular value of W S is removed: −σ uᵀ G S⁻ᵀ v.

    With σ vᵀ = uᵀ W S this is −uᵀ G Wᵀ u, which needs no inverse of S. G is the mean gradient by W. The factors of
    `weighted_factors` are U and Uᵀ W.
    """
    (name,), (factors,) = candidate.parts, candidate.factors
    gradient = statistics[candidate.layer.name][name].gradients.mean(axis=0)
    changes: np.ndarray = -np.einsum("oi,oi->o", factors.left.T @ gradient, factors.right)
    return changes
