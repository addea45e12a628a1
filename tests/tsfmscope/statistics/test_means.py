"""Intervals and tests of means, differences and slopes against scipy's own, and their coverage."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.power import TTestPower

from tsfmscope.statistics.means import crossed_mean, detectable_mean, difference, mean, trend

# millionths: the squares of numbers such as 1e-186 vanish, and scipy then answers p = 0 where `mean` sees no spread
VALUES = st.lists(st.integers(-(10**12), 10**12), min_size=3, max_size=12, unique=True).map(lambda n: np.array(n) / 1e6)


@given(VALUES)
def test_a_mean_is_that_of_scipy_s_one_sample_t(values: np.ndarray) -> None:
    found, theirs = mean(values), stats.ttest_1samp(values, 0)
    interval = theirs.confidence_interval(0.95)
    assert found.estimate == pytest.approx(values.mean(), rel=1e-9, abs=1e-9)
    assert found.p == pytest.approx(theirs.pvalue, rel=1e-6, abs=1e-12)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-6, abs=1e-6)


@given(VALUES, VALUES)
def test_a_difference_is_scipy_s_welch_test(first: np.ndarray, second: np.ndarray) -> None:
    found, theirs = difference(first, second), stats.ttest_ind(first, second, equal_var=False)
    interval = theirs.confidence_interval(0.95)
    assert found.p == pytest.approx(theirs.pvalue, rel=1e-6, abs=1e-12)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-6, abs=1e-6)


@given(VALUES)
def test_a_trend_s_p_is_that_of_the_correlation(values: np.ndarray) -> None:
    x = np.arange(len(values), dtype=float)
    found = trend(x, values)
    assert found.estimate == pytest.approx(np.polyfit(x, values, 1)[0], rel=1e-6, abs=1e-6)
    if found.reason is None:
        assert found.p == pytest.approx(stats.pearsonr(x, values).pvalue, rel=1e-4, abs=1e-9)
        assert found.low <= found.estimate <= found.high


def test_the_interval_of_a_slope_holds_the_truth_as_often_as_it_says() -> None:
    rng, x = np.random.default_rng(0), np.arange(5.0)
    held = [t.low <= 0.3 <= t.high for t in (trend(x, 0.3 * x + rng.standard_normal(5)) for _ in range(1000))]
    assert abs(np.mean(held) - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 1000)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (mean(np.array([])), "0 units; a spread needs 2"),
        (mean(np.array([1.0, np.nan])), "1 units; a spread needs 2"),
        (mean(np.array([2.0, 2.0])), "all units are equal"),
        (difference(np.array([1.0]), np.array([1.0, 2.0])), "1 and 2 units"),
        (difference(np.array([1.0, 1.0]), np.array([2.0, 2.0])), "all units of a sample are equal"),
        (trend(np.array([1.0, 1.0]), np.array([1.0, 2.0])), "1 different x"),
        (trend(np.array([1.0, 2.0]), np.array([1.0, 2.0])), "2 units; a spread about a line needs 3"),
        (trend(np.arange(4.0), 2 * np.arange(4.0)), "all units are equal, or lie on a line"),
    ],
)
def test_what_has_no_spread_says_why(found, reason: str) -> None:
    assert reason in found.reason
    assert math.isnan(found.p) and math.isnan(found.low)


def test_the_detectable_mean_is_that_of_statsmodels_and_grows_with_the_error() -> None:
    theirs = TTestPower().solve_power(nobs=12, alpha=0.05, power=0.8)
    assert detectable_mean(1 / math.sqrt(12), 11, 0.05) == pytest.approx(theirs, rel=1e-3)
    assert detectable_mean(2.0, 11, 0.05) == pytest.approx(2 * detectable_mean(1.0, 11, 0.05))
    assert math.isnan(detectable_mean(0.0, 11, 0.05)) and math.isnan(mean(np.array([2.0, 2.0])).detectable)


def test_two_points_still_have_a_slope() -> None:
    assert trend(np.array([1.0, 2.0]), np.array([1.0, 3.0])).estimate == pytest.approx(2.0)


@pytest.mark.parametrize(("n", "alpha"), [(3, 0.05), (8, 0.05), (40, 0.01)])
def test_the_detectable_mean_is_found_in_80_percent_of_samples(n: int, alpha: float) -> None:
    samples = np.random.default_rng(n).standard_normal((4000, n))
    effect = detectable_mean(1 / math.sqrt(n), n - 1, alpha)
    found = stats.ttest_1samp(samples + effect, 0, axis=1).pvalue <= alpha
    assert abs(found.mean() - 0.8) < 4 * math.sqrt(0.8 * 0.2 / 4000)


def crossed(rows: int, columns: int, copies: int, seed: int, spreads: tuple[float, float, float]) -> tuple:
    """Values with effects of rows, columns and cells, and the names of their rows and columns."""
    draws = np.random.default_rng(seed)
    effects = [s * draws.normal(size=size) for s, size in zip(spreads, (rows, columns, rows * columns), strict=True)]
    at = [(r, c) for r in range(rows) for c in range(columns) for _ in range(copies)]
    values = [effects[0][r] + effects[1][c] + effects[2][r * columns + c] + draws.normal() for r, c in at]
    return np.array(values), [f"r{r}" for r, _ in at], [f"c{c}" for _, c in at]


@pytest.mark.parametrize("shape", [(6, 4, 3), (3, 9, 1), (2, 2, 2)])
def test_a_crossed_mean_has_the_clustered_variance_of_cameron_gelbach_and_miller(shape: tuple[int, int, int]) -> None:
    values, rows, columns = crossed(*shape, 1, (1.0, 1.0, 0.5))
    values[0] = np.nan
    found = crossed_mean(values, rows, columns)
    kept = [(v, r, c) for v, r, c in zip(values, rows, columns, strict=True) if np.isfinite(v)]
    centre = sum(v for v, _, _ in kept) / len(kept)

    def variance(label: Any) -> float:
        """Sum over pairs of units with the same label, times G / (G - 1)."""
        total = sum((a[0] - centre) * (b[0] - centre) for a in kept for b in kept if label(a) == label(b))
        groups = len({label(unit) for unit in kept})
        return total / len(kept) ** 2 * groups / (groups - 1)

    by = [variance(label) for label in (lambda u: u[1], lambda u: u[2], lambda u: u[1:])]
    error = math.sqrt(max(by[0], by[1], by[0] + by[1] - by[2]))
    degrees = min(shape[:2]) - 1
    assert found.estimate == pytest.approx(centre)
    assert found.p == pytest.approx(2 * stats.t.sf(abs(centre) / error, degrees))
    reach = stats.t.isf(0.025, degrees) * error
    assert (found.low, found.high) == pytest.approx((centre - reach, centre + reach))


def test_with_one_unit_per_row_and_one_column_it_is_the_t_test() -> None:
    values = np.random.default_rng(3).normal(size=9)
    one = crossed_mean(values, [str(n) for n in range(9)], ["only"] * 9)
    assert one[:5] == pytest.approx(mean(values)[:5])


@pytest.mark.parametrize(
    ("values", "rows"),
    [(np.zeros(0), []), (np.ones(1), ["a"]), (np.ones(4), list("aabb")), (np.full(4, np.nan), list("aabb"))],
)
def test_without_a_spread_over_rows_there_is_no_interval(values: np.ndarray, rows: list[str]) -> None:
    found = crossed_mean(values, rows, [str(n) for n in range(len(rows))])
    assert math.isnan(found.p) and math.isnan(found.low) and found.reason


@pytest.mark.parametrize(
    ("shape", "spreads"),
    [((6, 8, 4), (1.0, 1.0, 0.0)), ((17, 12, 6), (1.0, 1.0, 1.0)), ((5, 5, 1), (0.0, 1.0, 0.0))],
)
def test_the_interval_of_a_crossed_mean_covers_zero(shape: tuple[int, int, int], spreads: Any) -> None:
    n = 150
    found = sum(crossed_mean(*crossed(*shape, seed, spreads)).p <= 0.05 for seed in range(n))
    assert found <= stats.binom.ppf(0.999, n, 0.06)
