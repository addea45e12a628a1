from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsfmscope.series.synthetic import priors
from tsfmscope.series.synthetic.priors import (
    LINKS,
    STEPS_PER_DAY,
    disturb,
    draw_periodic,
    draw_priors,
    draw_weekdays,
    observe,
)

DRAWS = [draw_priors, draw_periodic, draw_weekdays]


@pytest.mark.parametrize("draw", DRAWS)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 40), length=st.integers(48, 700))
@settings(deadline=None, max_examples=30)
def test_series_are_finite_float32_and_repeatable(draw, seed: int, count: int, length: int) -> None:
    values, again = (draw(np.random.default_rng(seed), count, length) for _ in range(2))
    np.testing.assert_array_equal(values, again)
    assert values.shape == (count, length)
    assert values.dtype == np.float32
    assert not np.isinf(values).any()


def test_most_series_differ_and_vary() -> None:
    values = draw_priors(np.random.default_rng(1), 500, 300)
    spread = np.nanstd(values, axis=1) / np.nanmax(np.abs(values), axis=1).clip(1e-30)
    # Counts of a low rate may be zero throughout.
    assert (spread > 1e-5).mean() > 0.97
    assert len(np.unique(values[:, 100])) > 350


def test_plain_periodic_series_have_no_gaps_and_others_few() -> None:
    rng = np.random.default_rng(0)
    for draw in DRAWS:
        gaps = np.isnan(draw(rng, 2000, 200))
        assert gaps.any(axis=1).mean() == pytest.approx(0.0 if draw is draw_periodic else 0.08, abs=0.02)
        assert not gaps.all(axis=1).any()


def test_days_repeat_less_well_than_weeks_where_weekends_differ() -> None:
    values = draw_weekdays(np.random.default_rng(5), 400, 24 * 21)

    def likeness(lag: int) -> np.ndarray:
        """Correlation of every series with itself, `lag` steps later, without missing steps."""
        before, after = (np.nan_to_num(part - np.nanmean(part)) for part in (values[:, :-lag], values[:, lag:]))
        pairs = zip(before, after, strict=True)
        return np.array([np.corrcoef(a, b)[0, 1] if a.std() and b.std() else np.nan for a, b in pairs])

    hourly = np.nanmean(likeness(24)), np.nanmean(likeness(24 * 7)), np.nanmean(likeness(24 * 3))
    # Most series have 24 steps per day; a week is more like the next than three days are like the next three.
    assert hourly[1] > hourly[2] + 0.05
    assert hourly[0] > hourly[2]
    assert sum(STEPS_PER_DAY.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    "part",
    [
        lambda rng: priors.seasonal_pattern(rng, 400, rng.uniform(2, 200, 300)),
        lambda rng: priors.trend(rng, 300, 400),
        lambda rng: priors.random_walk(rng, 300, 400),
        lambda rng: priors.noise(rng, 300, 400),
    ],
)
def test_components_are_standardised(part) -> None:
    values = part(np.random.default_rng(2))
    np.testing.assert_allclose(values.mean(axis=1), 0, atol=1e-4)
    np.testing.assert_allclose(values.std(axis=1), 1, atol=1e-3)


@pytest.mark.parametrize("period", [2, 7, 24, 168])
def test_a_seasonal_pattern_repeats_after_its_period(period: int) -> None:
    values = priors.seasonal_pattern(np.random.default_rng(3), 600, np.full(400, float(period)))
    change = np.abs(values[:, period:] - values[:, :-period]).max(axis=1)
    # The phase of every tenth drifts.
    assert (change < 0.01).mean() == pytest.approx(0.9, abs=0.05)


def test_periods_are_of_the_calendar_or_log_uniform() -> None:
    period, longer = priors.draw_periods(np.random.default_rng(4), 20_000)
    assert (longer[period == 24] % 24 == 0).all()
    assert (longer > period).all()
    assert period.min() >= priors.SHORTEST
    assert period.max() <= priors.LONGEST
    total = sum(cycle.weight for cycle in priors.CALENDAR)
    daily = sum(cycle.weight for cycle in priors.CALENDAR if cycle.period == 24)
    expected = (1 - priors.ANY_PERIOD) * daily / total
    # Rounded random periods are 24 too: 0.4 x 0.7 x log(24.5 / 23.5) / log(200).
    expected += priors.ANY_PERIOD * priors.WHOLE * np.log(24.5 / 23.5) / np.log(200)
    assert (period == 24).mean() == pytest.approx(expected, abs=0.01)


def test_autoregressive_filters_are_stationary_and_have_a_period_in_their_bounds() -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        _, minus_phi = priors._autoregression(rng, 1)
        assert -0.99 <= minus_phi <= 0.6
        _, first, second = priors._autoregression(rng, 2)
        # Stationary: the roots of z^2 + first z + second lie inside the unit circle, as a complex pair.
        roots = np.roots([1.0, first, second])
        assert (np.abs(roots) < 1).all()
        assert np.abs(roots[0]) == pytest.approx(np.sqrt(second))
        period = 2 * np.pi / np.abs(np.angle(roots[0]))
        assert 2.99 <= period <= 150.1


def test_links_have_their_ranges_and_their_shares() -> None:
    rng = np.random.default_rng(6)
    latent = priors.standardise(rng.standard_normal((400, 300))).astype(np.float32)
    names = [link.__name__ for _, link in LINKS]
    by_name = {link.__name__: link(rng, latent.astype(np.float64)) for _, link in LINKS}
    assert sum(share for share, _ in LINKS) == pytest.approx(1)
    assert (by_name["_exponential"] > 0).all()
    assert (by_name["_rectified"] >= 0).all()
    assert ((by_name["_logistic"] > 0) & (by_name["_logistic"] < 1)).all()
    np.testing.assert_array_equal(by_name["_counts"], np.round(by_name["_counts"]))
    assert (np.diff(by_name["_cumulative"], axis=1) > 0).all()
    # Only counts are whole numbers, and a constant row of zeros can only be a count or cut off.
    whole = (observe(rng, np.repeat(latent, 10, axis=0)) % 1 == 0).all(axis=1).mean()
    assert whole == pytest.approx(LINKS[names.index("_counts")][0], abs=0.03)


def test_a_disturbance_leaves_its_input_as_it_is() -> None:
    values = np.random.default_rng(7).standard_normal((300, 100)).astype(np.float32)
    kept = values.copy()
    changed = disturb(np.random.default_rng(8), values)
    np.testing.assert_array_equal(values, kept)
    # Most rows are only brought to another unit, which is between 0.01 and 10,000.
    ratio = changed / values
    only_scaled = np.nanstd(ratio, axis=1) < 1e-3 * np.nanmean(ratio, axis=1)
    assert 0.5 < only_scaled.mean() < 0.9
    assert np.nanmin(ratio[only_scaled]) > 0.0099
    assert np.nanmax(ratio[only_scaled]) < 10_010
