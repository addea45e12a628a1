"""Intervals and tests of means, differences and slopes against scipy's own, and their coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.power import TTestPower

from tsfmscope.statistics.means import detectable_mean, difference, mean, trend

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
