"""The certificate: its limits are scipy's, its conditions are those of docs/science.md, and it is calibrated."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tsfmscope.tasks.statistics.noninferiority import assess, bootstrap_limit, needed_tasks, t_limit, to_ratio

MARGIN = math.log(1.02)
LOG_RATIOS = st.lists(st.floats(-700, 700), min_size=1, max_size=12)


def sample(n: int = 17, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.004, 0.01, size=n)


@pytest.mark.parametrize("n", [2, 10, 40])
def test_the_t_limit_is_that_of_scipys_test(n: int) -> None:
    values = sample(n)
    expected = stats.ttest_1samp(values, 0, alternative="less").confidence_interval(0.95).high
    assert t_limit(values) == pytest.approx(expected, rel=1e-12)


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
    found = assess(rare_loss, np.zeros(17))
    assert found.bootstrap_limit > found.t_limit and found.upper_limit == found.bootstrap_limit
    rare_gain = assess(-rare_loss, np.zeros(17))
    assert rare_gain.t_limit > rare_gain.bootstrap_limit and rare_gain.upper_limit == rare_gain.t_limit
    assert found.conditions[0].value == pytest.approx(math.exp(found.bootstrap_limit))


def test_the_needed_number_by_hand() -> None:
    """With s = 0.04 and margin 1.02: (2.487 * 0.04 / 0.0198026)^2 = 25.24."""
    assert needed_tasks(0.04, 1.02) == 26
    # (2.487 * 0.04 / 0.0487902)^2 = 4.16, below the smallest number.
    assert needed_tasks(0.04, 1.05) == needed_tasks(0.0, 1.02) == needed_tasks(math.nan, 1.02) == 10


def outcome(values: np.ndarray, changes: float = 0.0, **limits: float) -> tuple[str, list[bool]]:
    found = assess(values, np.full(len(values), changes), resamples=199, **limits)
    return found.outcome, [condition.is_met for condition in found.conditions]


def test_each_condition_decides_alone() -> None:
    values = sample()
    assert outcome(values) == ("certified", [True] * 4)
    assert outcome(values + 0.02) == ("not certified", [False, True, True, True])
    worse = np.append(np.full(60, -0.01), 0.1)
    assert outcome(worse) == ("not certified", [True, False, True, True])
    assert outcome(values, changes=-0.021) == ("not certified", [True, True, False, True])
    assert outcome(values[:9]) == ("too few tasks", [True, True, True, False])
    assert outcome(values[:9] + 0.05) == ("too few tasks", [False, True, True, False])
    # More tasks do not change that one is too bad.
    assert outcome(values[:9] + 1)[0] == "not certified"


def test_the_limits_themselves() -> None:
    """A ratio at `worst` is allowed; a mean at the margin, and coverages that differ by two points, are not."""
    assert outcome(np.full(12, MARGIN))[1] == [False, True, True, True]
    assert outcome(np.zeros(16), changes=0.02)[1] == [True, True, False, True]
    assert outcome(np.array([0.0] * 200 + [math.log(1.1)]))[1] == [True] * 4
    changes = np.array([0.3, -0.3] * 6)
    assert assess(np.zeros(12), changes).outcome == "certified"


def test_equal_ratios_have_no_spread() -> None:
    found = assess(np.zeros(10), np.zeros(10))
    assert (found.sd, found.t_limit, found.bootstrap_limit, found.outcome) == (0.0, 0.0, 0.0, "certified")
    assert found.bootstrap_method == "percentile"
    almost = np.full(10, 0.01)
    almost[0] = np.nextafter(0.01, 1)
    assert assess(almost, np.zeros(10)).upper_limit == pytest.approx(0.01)


def test_one_task_has_no_limit() -> None:
    found = assess([-5.0], [0.0])
    assert found.upper_limit == math.inf and math.isnan(found.sd) and found.outcome == "too few tasks"
    assert found.conditions[0].value == math.inf and not found.conditions[0].is_met


def test_huge_ratios_overflow_to_infinity() -> None:
    found = assess([-740.0, 1400.0] * 6, np.zeros(12))
    assert found.conditions[1].value == math.inf and found.outcome == "not certified"
    assert (to_ratio(800), to_ratio(-800), to_ratio(0)) == (math.inf, 0.0, 1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.0, math.nan], [0.0, 0.0]), "got NaN or infinity; leave out tasks without a WQL"),
        (([-math.inf], [0.0]), "got NaN or infinity"),
        (([0.0], [math.nan]), "got NaN or infinity"),
        (([], []), r"got shapes \(0,\) and \(0,\), expected one number per task"),
        (([0.0, 0.0], [0.0]), r"got shapes \(2,\) and \(1,\)"),
    ],
)
def test_numbers_that_are_missing_are_refused(arguments: tuple[list[float], list[float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        assess(*arguments)


@pytest.mark.parametrize("name", ["margin", "worst"])
@pytest.mark.parametrize("value", [1.0, 0.98, -1.0, math.nan, math.inf])
def test_a_limit_must_be_a_ratio_above_1(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name}: got {value:g}, expected a ratio above 1"):
        assess(sample(), sample(), **{name: value})


@settings(max_examples=60, deadline=None)
@given(values=LOG_RATIOS, margin=st.floats(1.0001, 3))
def test_a_mean_at_or_above_the_margin_is_never_certified(values: list[float], margin: float) -> None:
    found = assess(values, np.zeros(len(values)), margin=margin, resamples=49)
    assert found.upper_limit >= found.mean or math.isclose(found.upper_limit, found.mean, abs_tol=1e-9)
    if found.mean >= math.log(margin) + 1e-9:
        assert found.outcome != "certified"
    is_enough = found.n_tasks >= needed_tasks(found.sd, margin)
    assert (found.outcome == "too few tasks") == (not is_enough and max(values) <= math.log(1.1))
    if found.outcome == "certified":
        assert max(values) <= math.log(1.1) and found.n_tasks >= 10


@settings(max_examples=60, deadline=None)
@given(values=LOG_RATIOS, shift=st.floats(0, 10))
def test_a_common_loss_moves_the_t_limit_and_keeps_the_needed_number(values: list[float], shift: float) -> None:
    """The BCa limit moves too, but rounding breaks ties of its resamples with the mean."""
    first, second = np.array(values), np.array(values) + shift
    if len(values) > 1:
        assert t_limit(second) == pytest.approx(t_limit(first) + shift, rel=1e-9, abs=1e-9)
        assert second.std(ddof=1) == pytest.approx(first.std(ddof=1), rel=1e-9, abs=1e-9)
    assert t_limit(first[::-1]) == pytest.approx(t_limit(first), rel=1e-9, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("n", [10, 20])
def test_at_most_5_percent_of_nulls_are_certified(n: int) -> None:
    """Student's t with 4 degrees of freedom, mean at the margin, half the spread that n tasks have power for.

    The other conditions hardly ever decide, so that the share is that of the upper limit: 4.5 % at n = 10.
    """
    generator = np.random.default_rng(1)
    sd = 0.5 * MARGIN * math.sqrt(n) / (1.645 + 0.842)
    draws = MARGIN + sd * generator.standard_t(4, size=(1000, n)) / math.sqrt(2)
    outcomes = [assess(values, np.zeros(n), resamples=999, seed=seed).outcome for seed, values in enumerate(draws)]
    assert 0.02 < outcomes.count("certified") / 1000 <= 0.05
    assert outcomes.count("too few tasks") < 50
