"""Ranks within a budget: one share for all matrices against brute force, the rules' errors, idle matrices."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsfmscope.compression.budget import BudgetError
from tsfmscope.compression.candidates import Candidate
from tsfmscope.compression.matrices import plain_factors
from tsfmscope.compression.methods.allocation import least_error, one_share, one_tolerance

SHAPES = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=5)
RULES = [least_error, one_tolerance, one_share]


def make_candidate(shape: tuple[int, int], share: float = 1.0, seed: int = 0) -> Candidate:
    """A matrix by itself, with the costs of `candidates.matrices_candidate`."""
    rows, columns = shape
    costs = np.array([min(rank * (rows + columns), rows * columns) for rank in range(1, min(shape) + 1)])
    costs[-1] = rows * columns
    factors = plain_factors(np.random.default_rng(seed).normal(size=shape))
    layer: Any = SimpleNamespace(name="layer")
    return Candidate(layer, ("q",), [factors], min(shape), costs, rows * columns, [share])


def count(candidates: list[Candidate], ranks: list[int]) -> int:
    return sum(int(one.costs[rank - 1]) for one, rank in zip(candidates, ranks, strict=True))


def published_rank(shape: tuple[int, int], share: float) -> int:
    """int(m n s / (m + n)), as in the code of SVD-LLM; the full rank where factors save nothing."""
    rows, columns = shape
    rank = max(1, int(rows * columns * share / (rows + columns)))
    return min(shape) if share == 1 or rank * (rows + columns) >= rows * columns else rank


@settings(max_examples=25)
@given(SHAPES, st.floats(0, 1))
def test_one_share_is_the_largest_share_whose_published_ranks_fit(shapes: list[tuple[int, int]], budget: float) -> None:
    candidates = [make_candidate(shape) for shape in shapes]
    least, most = count(candidates, [1] * len(shapes)), sum(one.before for one in candidates)
    allowed = int(least + budget * (most - least))
    ranks = one_share(candidates, allowed)
    tried = [[published_rank(shape, share) for shape in shapes] for share in np.linspace(0, 1, 201)]
    assert count(candidates, ranks) <= allowed
    assert count(candidates, ranks) >= max(n for one in tried if (n := count(candidates, one)) <= allowed)
    assert all(rank == 1 or one.widest(rank) == rank for one, rank in zip(candidates, ranks, strict=True))


@pytest.mark.parametrize("share", [0.15, 0.25, 0.5, 0.9])
def test_matrices_of_one_shape_get_the_rank_that_the_share_gives(share: float) -> None:
    candidates = [make_candidate((16, 12), seed=seed) for seed in range(4)]
    assert one_share(candidates, int(share * 4 * 16 * 12)) == [int(share * 16 * 12 / 28)] * 4


@pytest.mark.parametrize("rule", RULES)
def test_the_whole_budget_leaves_every_matrix_and_less_than_rank_one_is_an_error(rule: Any) -> None:
    candidates = [make_candidate((9, 7)), make_candidate((4, 8)), make_candidate((1, 5))]
    assert rule(candidates, 63 + 32 + 5) == [7, 4, 1]
    assert rule(candidates, 16 + 12 + 5) == [1, 1, 1]
    with pytest.raises(BudgetError, match="got 32, expected at least 33"):
        rule(candidates, 32)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("budget", [100, 160, 10_000])
def test_idle_matrices_get_rank_one_and_the_others_get_what_they_leave(rule: Any, budget: int) -> None:
    candidates = [make_candidate((10, 10), share) for share in (1.0, 0.0, 1.0)]
    ranks = rule(candidates, budget)
    assert ranks[1] == 1 and count(candidates, ranks) <= budget
    assert count(candidates, ranks) > budget - 40 or ranks == [10, 1, 10]
