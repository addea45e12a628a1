"""One budget over many parts: never beyond it, and equal to trying every combination where costs are equal."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.compression.budget import Curve, allocate

values = st.lists(st.floats(0, 10).filter(lambda value: value == 0 or value > 1e-3), min_size=1, max_size=4)


@given(st.lists(values, min_size=1, max_size=4), st.integers(0, 12))
def test_equal_costs_are_shared_out_as_brute_force_does(singular: list[list[float]], spare: int) -> None:
    """Squared singular values as gains: the least error of all combinations of ranks within the budget."""
    curves = [falling(one, cost=3) for one in singular]
    budget = 3 * len(curves) + spare
    assert total(curves, allocate(curves, budget)) == pytest.approx(least(curves, budget), abs=1e-9)


@given(st.lists(st.tuples(values, st.integers(1, 5)), min_size=1, max_size=4), st.integers(0, 20))
def test_other_costs_stay_within_the_budget_and_one_step_from_the_best(
    parts: list[tuple[list[float], int]], spare: int
) -> None:
    curves = [falling(one, cost) for one, cost in parts]
    budget = sum(int(one.costs[0]) for one in curves) + spare
    ranks = allocate(curves, budget)
    assert sum(int(one.costs[rank - 1]) for one, rank in zip(curves, ranks, strict=True)) <= budget
    step = max((float(-np.diff(one.errors, append=0.0).min()) for one in curves), default=0.0)
    assert total(curves, ranks) <= least(curves, budget) + step + 1e-9


def test_a_last_step_that_costs_nothing_is_taken() -> None:
    """Two thin factors cost as much as the matrix before its full rank: then it stays whole."""
    curve = Curve(np.array([8, 16, 16, 16]), np.array([0.5, 0.2, 0.1, 0.0]))
    assert allocate([curve], 16) == [4]
    assert allocate([curve], 15) == [1]


def test_parts_without_error_stay_at_rank_one() -> None:
    idle = Curve(np.array([1, 2, 3]), np.zeros(3))
    assert allocate([idle, falling([3.0, 2.0, 1.0], 1)], 10) == [1, 3]


def test_a_budget_below_rank_one_says_what_is_needed() -> None:
    with pytest.raises(ValueError, match="got 3, expected at least 4"):
        allocate([falling([1.0, 1.0], 2)] * 2, 3)


def falling(singular: list[float], cost: int) -> Curve:
    squares = np.sort(np.square(singular))[::-1]
    tails = np.append(np.cumsum(squares[::-1])[::-1][1:], 0.0)
    return Curve(cost * np.arange(1, len(squares) + 1), tails)


def total(curves: list[Curve], ranks: list[int]) -> float:
    return float(sum(one.errors[rank - 1] for one, rank in zip(curves, ranks, strict=True)))


def least(curves: list[Curve], budget: int) -> float:
    combinations = product(*(range(1, len(one.costs) + 1) for one in curves))
    return min(
        total(curves, list(ranks))
        for ranks in combinations
        if sum(int(one.costs[rank - 1]) for one, rank in zip(curves, ranks, strict=True)) <= budget
    )
