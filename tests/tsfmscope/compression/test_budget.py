"""One budget over many parts: never beyond it, and equal to trying every combination where costs are equal."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsfmscope.compression.budget import BudgetError, Curve, Spectrum, allocate, allocate_by_tolerance

values = st.lists(st.floats(0, 10).filter(lambda value: value == 0 or value > 1e-3), min_size=1, max_size=4)


@given(st.lists(values, min_size=1, max_size=4), st.integers(0, 12))
def test_equal_costs_are_shared_out_as_brute_force_does(singular: list[list[float]], spare: int) -> None:
    """Squared singular values as gains: the least error of all combinations of ranks within the budget."""
    curves = [decreasing_curve(one, cost=3) for one in singular]
    budget = 3 * len(curves) + spare
    assert total(curves, allocate(curves, budget)) == pytest.approx(least(curves, budget), abs=1e-9)


@given(st.lists(st.tuples(values, st.integers(1, 5)), min_size=1, max_size=4), st.integers(0, 20))
def test_other_costs_stay_within_the_budget_and_one_step_from_the_best(
    parts: list[tuple[list[float], int]], spare: int
) -> None:
    curves = [decreasing_curve(one, cost) for one, cost in parts]
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
    assert allocate([idle, decreasing_curve([3.0, 2.0, 1.0], 1)], 10) == [1, 3]


def test_a_budget_below_rank_one_says_what_is_needed() -> None:
    with pytest.raises(ValueError, match="got 3, expected at least 4"):
        allocate([decreasing_curve([1.0, 1.0], 2)] * 2, 3)


parts_of_spectra = st.lists(
    st.tuples(st.lists(st.floats(0.01, 10), min_size=1, max_size=5), st.integers(1, 5), st.booleans()),
    min_size=1,
    max_size=4,
)


@given(parts_of_spectra, st.integers(0, 60))
def test_one_tolerance_is_the_smallest_of_all_that_the_budget_allows(
    parts: list[tuple[list[float], int, bool]], spare: int
) -> None:
    """Against a count of values above every tolerance that makes a difference, tried one by one."""
    spectra = [spectrum(*one) for one in parts]
    budget = price(spectra, [1] * len(spectra)) + spare
    ranks = allocate_by_tolerance(spectra, budget)
    assert price(spectra, ranks) <= budget
    for tolerance in sorted({0.0, *(value / max(one.values) for one in spectra for value in one.values)}):
        wanted = []
        for one in spectra:
            count = max(1, sum(value / max(one.values) > tolerance for value in one.values))
            wanted.append(len(one.costs) if one.costs[count - 1] == one.costs[-1] else count)
        if price(spectra, wanted) <= budget:
            break
    assert ranks == wanted


@given(parts_of_spectra, st.integers(0, 60), st.integers(0, 20))
def test_more_budget_lowers_no_rank_of_one_tolerance(
    parts: list[tuple[list[float], int, bool]], spare: int, more: int
) -> None:
    spectra = [spectrum(*one) for one in parts]
    budget = price(spectra, [1] * len(spectra)) + spare
    fewer, ranks = allocate_by_tolerance(spectra, budget), allocate_by_tolerance(spectra, budget + more)
    assert all(one <= other for one, other in zip(fewer, ranks, strict=True))


def test_one_tolerance_by_hand() -> None:
    """Tolerance 0.3 is spent on the part that falls slowly, nothing on the idle one or on one of zeros."""
    costs = np.array([2, 4, 6])
    idle, zero = Spectrum(costs, np.zeros(0)), Spectrum(costs, np.zeros(3))
    slow, fast = Spectrum(costs, np.array([10.0, 4.0, 3.0])), Spectrum(costs, np.array([0.5, 0.1, 0.01]))
    assert allocate_by_tolerance([idle, slow, fast, zero], 10) == [1, 2, 1, 1]
    assert allocate_by_tolerance([idle, slow, fast, zero], 12) == [1, 3, 1, 1]
    assert allocate_by_tolerance([idle, slow, fast, zero], 99) == [1, 3, 3, 1]
    with pytest.raises(BudgetError, match="got 7, expected at least 8, the cost of rank 1 of every part"):
        allocate_by_tolerance([idle, slow, fast, zero], 7)


def spectrum(values: list[float], cost: int, is_idle: bool) -> Spectrum:
    """A matrix whose last two ranks cost the same, as those of two thin factors and of the dense matrix do."""
    costs = cost * np.arange(1, len(values) + 1)
    costs[-1] = costs[max(0, len(values) - 2)]
    return Spectrum(costs, np.zeros(0) if is_idle else np.sort(values)[::-1])


def price(spectra: list[Spectrum], ranks: list[int]) -> int:
    return sum(int(one.costs[rank - 1]) for one, rank in zip(spectra, ranks, strict=True))


def decreasing_curve(singular: list[float], cost: int) -> Curve:
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
