"""Ranks of candidates within one budget: least error, one tolerance, one share for all matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tsfmscope.tasks.compression.budget import allocate, allocate_by_tolerance, refuse
from tsfmscope.tasks.compression.candidates import Candidate


def least_error(candidates: Sequence[Candidate], budget: int, statistics: Any = None) -> list[int]:
    """Return ranks with the least sum of squared relative errors, weighed by the candidates' shares (`allocate`)."""
    return allocate([candidate.curve() for candidate in candidates], budget)


def one_tolerance(candidates: Sequence[Candidate], budget: int, statistics: Any = None) -> list[int]:
    """Return the numerical ranks of single matrices at the smallest tolerance within the budget."""
    return allocate_by_tolerance([candidate.spectrum() for candidate in candidates], budget)


def one_share(candidates: Sequence[Candidate], budget: int, statistics: Any = None) -> list[int]:
    """Return ranks that leave the same share of the parameters of every matrix, as SVD-LLM and ASVD do by default.

    The rank is int(s * full cost / cost of a rank), at least 1, with the largest s within the budget. A rank at which
    factors have as many numbers as the matrix is the full rank. Idle candidates get rank 1. BudgetError if rank 1 of
    every candidate exceeds the budget.
    """
    per_rank = np.array([candidate.costs[0] for candidate in candidates])
    full = np.array([candidate.before for candidate in candidates])
    is_idle = np.array([not any(candidate.shares) for candidate in candidates])
    if budget < per_rank.sum():
        refuse(budget, int(per_rank.sum()))

    def ranks(share: float) -> list[int]:
        wanted = np.where(is_idle, 1, np.maximum(1, np.floor(share * full / per_rank + 1e-9))).astype(int)
        return [candidate.widest(rank) for candidate, rank in zip(candidates, wanted.tolist(), strict=True)]

    def count(share: float) -> int:
        chosen = zip(candidates, ranks(share), strict=True)
        return sum(int(candidate.costs[rank - 1]) for candidate, rank in chosen)

    # Ranks change only at these shares.
    steps = zip(candidates, full, per_rank, strict=True)
    shares = np.unique(np.concatenate([[0.0], *(np.arange(one.full + 1) * cost / whole for one, whole, cost in steps)]))
    return ranks(max(float(share) for share in shares if share <= 1 and count(share) <= budget))
