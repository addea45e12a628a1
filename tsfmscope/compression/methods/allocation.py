"""Ranks of candidates within one budget: least error, one tolerance, one share for all matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tsfmscope.compression.budget import allocate, allocate_by_tolerance, refuse
from tsfmscope.compression.candidates import Candidate


def least_error(candidates: Sequence[Candidate], budget: int, statistics: Any = None) -> list[int]:
    """Return ranks with the least sum of squared relative errors, weighed by the candidates' shares (`allocate`)."""
    return allocate([candidate.curve() for candidate in candidates], budget)


def one_tolerance(candidates: Sequence[Candidate], budget: int, statistics: Any = None) -> list[int]:
    """Return the numerical ranks of single matrices at the smallest tolerance within the budget."""
    return allocate_by_tolerance([candidate.spectrum() for candidate in candidates], budget)


def one_share(candidates: Sequence[Candidate], budget: int, statistics: Any = None) -> list[int]:
    """Return ranks that leave the same share of the parameters of every matrix, as the code of SVD-LLM does.

    The rank is int(s * parameters of the matrix / parameters per rank), at least 1, with the largest share s within the
    budget. It is the full rank if s is 1, or if two factors of this rank have as many numbers as the matrix. Idle
    candidates get rank 1. BudgetError if rank 1 of every candidate exceeds the budget.
    """
    per_rank = np.array([candidate.costs[0] for candidate in candidates])
    full = np.array([candidate.before for candidate in candidates])
    widths = np.array([candidate.full for candidate in candidates])
    is_idle = np.array([not any(candidate.shares) for candidate in candidates])
    if budget < per_rank.sum():
        refuse(budget, int(per_rank.sum()))

    def ranks(share: float) -> list[int]:
        # 1e-9 because share * full / per_rank may be just below the integer from which the share was computed.
        shared = np.floor(share * full / per_rank + 1e-9) if share < 1 else widths
        wanted = np.where(is_idle, 1, np.maximum(1, shared)).astype(int)
        return [candidate.widest(rank) for candidate, rank in zip(candidates, wanted.tolist(), strict=True)]

    def count(share: float) -> int:
        chosen = zip(candidates, ranks(share), strict=True)
        return sum(int(candidate.costs[rank - 1]) for candidate, rank in chosen)

    # Ranks change only at these shares.
    steps = [np.arange(one.full) * cost / whole for one, whole, cost in zip(candidates, full, per_rank, strict=True)]
    shares = np.unique(np.concatenate([*steps, [1.0]]))
    return ranks(max(float(share) for share in shares if share <= 1 and count(share) <= budget))
