"""Period of training windows: known periods are found, and contexts without a clear one have period 1."""

from __future__ import annotations

import numpy as np
import pytest

from tsfmscope.models.visionts_image import _autocorrelations, estimate_periods


def estimate(context: np.ndarray) -> list[int]:
    periods: list[int] = estimate_periods(context, np.full(len(context), context.shape[1])).tolist()
    return periods


def sines(period: float, steps: int, *, count: int = 20, noise: float = 0.3) -> np.ndarray:
    rng = np.random.default_rng(0)
    phases = np.arange(steps) / period + rng.random((count, 1))
    values: np.ndarray = np.sqrt(2) * np.sin(2 * np.pi * phases) + noise * rng.normal(size=(count, steps))
    return values


@pytest.mark.parametrize(
    ("period", "steps"),
    [(24, 64), (24, 512), (12, 64), (12, 512), (7, 64), (7, 512), (4, 64), (30, 128), (48, 128), (168, 512)],
)
def test_the_usual_period_of_a_sine_with_noise_is_found(period: int, steps: int) -> None:
    assert estimate(sines(period, steps)) == [period] * 20


@pytest.mark.parametrize("period", [20, 37])
def test_a_period_that_is_not_usual_is_found(period: int) -> None:
    assert np.abs(np.array(estimate(sines(period, 512))) - period).max() <= 1
    # In columns of a multiple, which may be a usual period, the rows continue as well.
    assert {found % 10 for found in estimate(sines(10, 512))} == {0}


def test_a_season_on_a_trend_or_on_a_slower_season_is_found() -> None:
    season, time = sines(24, 256, noise=0.1), np.arange(256)
    assert estimate(season + time) == [24] * 20
    assert estimate(season + sines(200, 256, noise=0)) == [24] * 20


def test_a_period_must_fit_twice_into_the_steps_that_are_kept() -> None:
    context = sines(24, 128, count=3, noise=0)
    assert estimate_periods(context, np.array([128, 48, 47])).tolist() == [24, 24, 1]


def test_only_the_steps_that_are_kept_count() -> None:
    context = np.concatenate((sines(7, 128, noise=0), sines(12, 128, noise=0)), axis=1)
    assert estimate_periods(context, np.full(20, 128)).tolist() == [12] * 20


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 64])
@pytest.mark.parametrize("value", [0.0, 0.1, -3e38, np.nan])
def test_contexts_without_spread_have_period_1(value: float, steps: int) -> None:
    assert estimate(np.full((2, steps), value)) == [1, 1]


def test_smooth_series_and_noise_have_period_1() -> None:
    time = np.arange(256.0)
    assert estimate(np.stack((time, 0.1 * time.astype(np.float32), time**2, np.exp(time / 50)))) == [1] * 4
    noise = np.random.default_rng(0).normal(size=(200, 128))
    assert np.mean(np.array(estimate(noise)) == 1) > 0.85


def test_huge_values_have_the_period_of_small_ones() -> None:
    context = sines(12, 64, count=2, noise=0)
    assert estimate(context * 1e38) == estimate(context * 1e307) == estimate(context * 1e-30) == [12, 12]


def test_gaps_hide_no_period() -> None:
    context = sines(24, 256)
    context[np.random.default_rng(1).random(context.shape) < 0.2] = np.nan
    context[:, 100:130] = np.nan
    assert estimate(context) == [24] * 20


def test_autocorrelations_are_those_of_the_slow_definition() -> None:
    rng = np.random.default_rng(0)
    values, is_counted = rng.normal(size=(3, 20)) + np.arange(20), rng.random((3, 20)) < 0.7
    got = _autocorrelations(values, is_counted)
    for row, (own, counted) in enumerate(zip(values, is_counted, strict=True)):
        time = np.flatnonzero(counted)
        line = np.polyval(np.polyfit(time, own[time], 1), time)
        y = np.zeros(20)
        y[time] = own[time] - line
        np.testing.assert_allclose(got[row], [y[: 20 - lag] @ y[lag:] / (y @ y) for lag in range(20)], atol=1e-12)
