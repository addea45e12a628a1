"""The certificate: its limits are scipy's, its conditions are those of docs/science.md, and it is calibrated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tsfmscope.statistics.noninferiority import (
    Certificate,
    CoverageChange,
    assess,
    assign_groups,
    bootstrap_limit,
    largest_share,
    log_ratio,
    needed_units,
    pool,
    split_table,
    t_limit,
    to_ratio,
)

MARGIN = math.log(1.02)
LOG_RATIOS = st.lists(st.floats(-700, 700), min_size=1, max_size=12)


def judge(values: Sequence[float] | np.ndarray, changes: float = 0.0, **options: Any) -> Certificate:
    """Return the certificate of units with one task each, all with the same change of coverage over 100 values."""
    return assess(values, values, [CoverageChange(changes, 100)] * len(values), **options)


def sample(n: int = 17, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.004, 0.01, size=n)


@pytest.mark.parametrize("n", [2, 10, 40])
def test_the_t_limit_is_that_of_scipys_test(n: int) -> None:
    values = sample(n)
    expected = stats.ttest_1samp(values, 0, alternative="less").confidence_interval(0.95).high
    assert t_limit(values) == pytest.approx(expected, rel=1e-12)


def bca_limit(values: np.ndarray, resamples: int, seed: int) -> float:
    """Return the one-sided 95 % limit of the mean, written from equations 2.3, 6.5 and 6.6 of Efron 1987."""
    draws = np.random.default_rng(seed).choice(values, size=(resamples, len(values)))
    means = draws.mean(axis=1)
    below = np.mean(means < values.mean()) + np.mean(means == values.mean()) / 2
    z0, z = stats.norm.ppf(below), stats.norm.ppf(0.95)
    deviations = values.mean() - np.array([np.delete(values, index).mean() for index in range(len(values))])
    acceleration = np.sum(deviations**3) / (6 * np.sum(deviations**2) ** 1.5)
    level = stats.norm.cdf(z0 + (z0 + z) / (1 - acceleration * (z0 + z)))
    return float(np.quantile(means, level))


@pytest.mark.parametrize("skew", [1, 60, -60])
def test_the_bootstrap_limit_is_that_of_efrons_equations(skew: int) -> None:
    """Two sets of 40,000 resamples: the limits differ by chance alone, under a hundredth of the spread of the mean."""
    values = np.exp(skew * (sample(12) - 0.004)) * np.sign(skew) + 0.01
    spread = values.std(ddof=1) / math.sqrt(len(values))
    limit, method = bootstrap_limit(values, resamples=40_000, seed=1)
    assert method == "BCa" and limit == pytest.approx(bca_limit(values, 40_000, 2), abs=0.04 * spread)
    percentile = np.quantile(np.random.default_rng(3).choice(values, (40_000, 12)).mean(axis=1), 0.95)
    if skew > 1:
        assert limit > percentile + 0.1 * spread


def test_the_bootstrap_limit_is_scipys_bca() -> None:
    values = np.exp(sample()) ** 9
    interval = stats.bootstrap(
        (values,), np.mean, n_resamples=499, confidence_level=0.95, alternative="less", rng=np.random.default_rng(3)
    ).confidence_interval
    assert interval.low == -math.inf
    limit, method = bootstrap_limit(values, resamples=499, seed=3)
    assert (limit, method) == (pytest.approx(interval.high, rel=1e-12), "BCa")


def test_the_larger_limit_counts() -> None:
    rare_loss = np.array([0.0] * 15 + [0.05, 0.09])
    found = judge(rare_loss)
    assert found.bootstrap_limit > found.t_limit and found.upper_limit == found.bootstrap_limit
    rare_gain = judge(-rare_loss)
    assert rare_gain.t_limit > rare_gain.bootstrap_limit and rare_gain.upper_limit == rare_gain.t_limit
    assert found.conditions[0].value == pytest.approx(math.exp(found.bootstrap_limit))


def test_the_needed_number_by_hand() -> None:
    """With s = 0.04 and margin 1.02: (2.487 * 0.04 / 0.0198026)^2 = 25.24."""
    assert needed_units(0.04, 1.02) == 26
    # (2.487 * 0.04 / 0.0487902)^2 = 4.16, below the smallest number.
    assert needed_units(0.04, 1.05) == needed_units(0.0, 1.02) == needed_units(math.nan, 1.02) == 10


def outcome(values: np.ndarray, changes: float = 0.0, **limits: float) -> tuple[str, list[bool]]:
    found = judge(values, changes, resamples=199, **limits)
    return found.outcome, [condition.is_met for condition in found.conditions]


def test_each_condition_decides_alone() -> None:
    values = sample()
    assert outcome(values) == ("certified", [True] * 5)
    assert outcome(values + 0.02) == ("not certified", [False, True, True, True, True])
    worse = np.append(np.full(60, -0.01), 0.1)
    assert outcome(worse) == ("not certified", [True, False, True, True, True])
    assert outcome(values, changes=-0.021) == ("not certified", [True, True, True, False, True])
    assert outcome(values[:9]) == ("too few tasks", [True, True, True, True, False])
    assert outcome(values[:9] + 0.05) == ("too few tasks", [False, True, True, True, False])
    # More units do not change that one is too bad.
    assert outcome(values[:9] + 1)[0] == "not certified"


def test_the_limits_themselves() -> None:
    """A ratio at `worst` is allowed; a mean at the margin, and coverages that differ by two points, are not."""
    assert outcome(np.full(12, MARGIN))[1] == [False, True, True, True, True]
    assert outcome(np.zeros(16), changes=0.02)[1] == [True, True, True, False, True]
    assert outcome(np.array([0.0] * 200 + [math.log(1.1)]))[1] == [True] * 5


def test_changes_of_coverage_do_not_cancel() -> None:
    """Plus and minus 30 points have a mean of 0 and a mean size of 30."""
    changes = [CoverageChange(0.3, 100), CoverageChange(-0.3, 100)] * 6
    found = assess(np.zeros(12), np.zeros(12), changes)
    assert found.outcome == "not certified" and found.conditions[3].value == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("change", "n_values", "n_units", "expected"),
    [
        (-0.051, 200, 17, "not certified"),
        (-0.051, 199, 17, "certified"),
        (-0.05, 200, 17, "certified"),
        (0.3, 200, 17, "certified"),
        (-0.051, 200, 5, "not certified"),
    ],
)
def test_a_fall_of_coverage_in_one_large_task_fails(change: float, n_values: int, n_units: int, expected: str) -> None:
    """At most 5 points in a task of 200 values or more; a rise is limited by the mean alone, and by 17 tasks."""
    changes = [CoverageChange(change, n_values)] + [CoverageChange(0.0, 1000)] * 16
    assert assess(np.zeros(n_units), np.zeros(17), changes).outcome == expected


def test_power_is_asked_for_only_where_the_mean_fails() -> None:
    """One large gain: s = 0.085 asks for 114 units, but the upper limit is below the margin."""
    gain = np.array([-0.35] + [0.0] * 16)
    found = judge(gain)
    assert found.needed == 114 and found.outcome == "certified"
    loss = np.array([0.06, -0.06] * 6) + 0.005
    found = judge(loss)
    assert found.needed == math.ceil((2.487 * found.sd / MARGIN) ** 2) > 12 and found.outcome == "too few tasks"
    assert judge(np.tile(loss, 20)).outcome == "certified"
    assert judge(np.tile(loss + 0.02, 20)).outcome == "not certified"
    # More units would not change that the coverage is wrong.
    assert judge(loss, changes=0.03).outcome == "not certified"


def test_a_loss_where_the_base_has_none_fails() -> None:
    found = judge([math.inf] + [0.0] * 20)
    assert found.outcome == "not certified" and [item.is_met for item in found.conditions[:2]] == [False, False]
    assert found.upper_limit == math.inf and math.isnan(found.sd)
    assert [log_ratio(pair) for pair in ((0.0, 1.0), (0.0, 0.0), (2.0, 2.0))] == [math.inf, 0.0, 0.0]
    assert log_ratio((1.0, 0.0)) == -math.inf and log_ratio((2.0, 1.0)) == pytest.approx(math.log(0.5))


@pytest.mark.parametrize(("n", "share"), [(10, 0.259), (16, 0.171), (17, 0.162), (30, 0.095), (60, 0.049)])
def test_the_share_that_n_sources_cannot_exclude(n: int, share: float) -> None:
    assert largest_share(0, n) == pytest.approx(1 - 0.05 ** (1 / n)) == pytest.approx(share, abs=5e-4)
    # With such a share, 2 of n or fewer are seen with a probability of 5 %.
    assert stats.binom.cdf(2, n, largest_share(2, n)) == pytest.approx(0.05)
    assert largest_share(n, n) == 1.0


def test_equal_ratios_have_no_spread() -> None:
    found = judge(np.zeros(10))
    assert (found.sd, found.t_limit, found.bootstrap_limit, found.outcome) == (0.0, 0.0, 0.0, "certified")
    assert found.bootstrap_method == "percentile"
    almost = np.full(10, 0.01)
    almost[0] = np.nextafter(0.01, 1)
    assert judge(almost).upper_limit == pytest.approx(0.01)


def test_one_unit_has_no_limit() -> None:
    found = judge([-5.0])
    assert found.upper_limit == math.inf and math.isnan(found.sd) and found.outcome == "too few tasks"
    assert found.conditions[0].value == math.inf and not found.conditions[0].is_met


def test_huge_ratios_overflow_to_infinity() -> None:
    found = judge([-740.0, 1400.0] * 6)
    assert found.conditions[1].value == math.inf and found.outcome == "not certified"
    assert (to_ratio(800), to_ratio(-800), to_ratio(0)) == (math.inf, 0.0, 1.0)


@pytest.mark.parametrize("values", [[0.0, math.nan], [-math.inf], [], [[0.0]]])
def test_numbers_that_are_missing_are_refused(values: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"log_ratios: got (NaN or minus infinity|shape \()"):
        assess(values, [0.0], [CoverageChange(0.0, 1)])
    with pytest.raises(ValueError, match="parts: got"):
        assess([0.0], values, [CoverageChange(0.0, 1)])
    with pytest.raises(ValueError, match="coverages: got"):
        assess([0.0], [0.0], [])


def test_a_table_is_split_by_a_seeded_hash() -> None:
    """Series up to 200 are the units, in five groups below 50 units, else ten; more series are put into 50 units."""
    for n, n_units, n_groups in ((3, 3, 3), (12, 12, 5), (49, 49, 5), (50, 50, 10), (200, 200, 10), (201, 50, 10)):
        names = [f"shop {number}" for number in range(n)]
        unit_of, group_of = split_table(names, 0)
        assert len(set(unit_of.values())) == n_units and len(set(group_of.values())) == n_groups
        assert set(group_of) == set(unit_of.values())
        sizes = [list(group_of.values()).count(group) for group in set(group_of.values())]
        assert max(sizes) - min(sizes) <= 1
        assert split_table(names[::-1], 0) == (unit_of, group_of)
    assert assign_groups(names, 10, 0) != assign_groups(names, 10, 1)


def test_losses_are_pooled_and_not_averaged() -> None:
    losses = {"a": (1.0, 2.0), "b": (3.0, 3.0), "c": (0.5, 0.5)}
    assert pool(losses, {"a": "x", "b": "x", "c": "y"}) == {"x": (4.0, 5.0), "y": (0.5, 0.5)}


@pytest.mark.parametrize("name", ["margin", "worst"])
@pytest.mark.parametrize("value", [1.0, 0.98, -1.0, math.nan, math.inf])
def test_a_limit_must_be_a_ratio_above_1(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name}: got {value:g}, expected a ratio above 1"):
        judge(sample(), **{name: value})


@settings(max_examples=60, deadline=None)
@given(values=LOG_RATIOS, margin=st.floats(1.0001, 3))
def test_a_mean_at_or_above_the_margin_is_never_certified(values: list[float], margin: float) -> None:
    found = judge(values, margin=margin, resamples=49)
    assert found.upper_limit >= found.mean or math.isclose(found.upper_limit, found.mean, abs_tol=1e-9)
    if found.mean >= math.log(margin) + 1e-9:
        assert found.outcome != "certified"
    if max(values) > math.log(1.1):
        assert found.outcome == "not certified"
    elif found.n_units < 10:
        assert found.outcome == "too few tasks"
    else:
        is_below = found.conditions[0].is_met
        assert (found.outcome == "certified") == is_below
        assert (found.outcome == "too few tasks") == (not is_below and found.n_units < needed_units(found.sd, margin))


@settings(max_examples=60, deadline=None)
@given(values=LOG_RATIOS, shift=st.floats(0, 10))
def test_a_common_loss_moves_the_t_limit_and_order_does_not(values: list[float], shift: float) -> None:
    limit = t_limit(np.array(values))
    if len(values) > 1:
        assert t_limit(np.array(values) + shift) == pytest.approx(limit + shift, rel=1e-9, abs=1e-9)
    assert t_limit(np.array(values[::-1])) == pytest.approx(limit, rel=1e-9, abs=1e-9)
