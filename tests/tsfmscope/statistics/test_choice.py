"""Choice among forecasters: the posterior mean against a sampled one, limits, and hard cases."""

from __future__ import annotations

import numpy as np
import pytest

from tsfmscope.statistics.choice import combine, pooled_log_errors

SKILL = np.array([-0.5, -0.3, -0.1, 0.0])


def losses(seed: int, series: int = 12, windows: int = 3) -> np.ndarray:
    """Return losses of four candidates with series of very different size."""
    rng = np.random.default_rng(seed)
    size = np.exp(2 * rng.standard_normal((series, 1)))
    return size * np.exp(0.5 * rng.standard_normal((4, series, windows)) + SKILL[:, None, None])


def test_the_covariance_is_near_that_of_drawn_series_and_windows() -> None:
    table = losses(0, series=400, windows=1)
    rng = np.random.default_rng(1)
    draws = rng.integers(400, size=(4000, 400))
    drawn = np.log(table[:, draws, 0].sum(axis=2))
    np.testing.assert_allclose(pooled_log_errors(table)[1], np.cov(drawn), rtol=0.25, atol=2e-4)


def test_the_estimate_is_that_of_a_joint_normal_distribution_given_the_errors() -> None:
    errors, covariance = pooled_log_errors(losses(5))
    spread, drift, n = 0.2, 0.3, 3
    # Candidate's error = difficulty + skill + deviation. The difficulty is as good as unknown.
    error = 1e6 * np.ones((4, 4)) + spread**2 * np.eye(4)
    observed = error + covariance + drift**2 / n * np.eye(4)
    expected = SKILL + error @ np.linalg.solve(observed, errors - SKILL)
    estimate = combine(errors, covariance, SKILL, n_windows=n, spread=spread, drift=drift)
    np.testing.assert_allclose(estimate.mean, expected, atol=1e-4)


def test_an_unknown_skill_is_the_mean_of_the_others_and_moves_more() -> None:
    errors, unknown = np.array([0.0, 0.0, 0.0, 0.5]), np.array([-0.2, -0.2, -0.2, np.nan])
    estimate = combine(errors, np.zeros((4, 4)), unknown, n_windows=1)
    known = combine(errors, np.zeros((4, 4)), np.full(4, -0.2), n_windows=1)
    assert estimate.mean[3] > known.mean[3] and estimate.sd[3] > known.sd[3]


def test_equal_errors_leave_the_order_of_the_skill() -> None:
    estimate = combine(np.ones(4), np.zeros((4, 4)), SKILL, n_windows=1)
    assert np.argsort(estimate.mean).tolist() == [0, 1, 2, 3]


def test_many_windows_leave_the_errors() -> None:
    errors = np.array([0.4, 0.1, 0.2, 0.3])
    estimate = combine(errors, np.zeros((4, 4)), SKILL, n_windows=10**9)
    np.testing.assert_allclose(estimate.mean, errors, atol=1e-6)
    assert (estimate.sd < 1e-4).all()


def test_the_order_of_the_candidates_and_the_unit_have_no_effect() -> None:
    table, order = losses(2), np.array([2, 0, 3, 1])
    errors, covariance = pooled_log_errors(table)
    plain = combine(errors, covariance, SKILL, n_windows=3)
    errors, covariance = pooled_log_errors(1e6 * table[order])
    other = combine(errors, covariance, SKILL[order] + 7, n_windows=3)
    np.testing.assert_allclose(other.mean - np.log(1e6), plain.mean[order])
    np.testing.assert_allclose(other.sd, plain.sd[order])


@pytest.mark.parametrize("skill", [0.3, np.nan])
def test_a_single_candidate_keeps_its_error(skill: float) -> None:
    estimate = combine(np.array([0.7]), np.zeros((1, 1)), np.array([skill]), n_windows=1)
    np.testing.assert_allclose(estimate.mean, [0.7])


def test_a_candidate_without_error_wins_and_one_without_forecasts_has_no_estimate() -> None:
    table = losses(3)
    table[1], table[2] = 0.0, np.nan
    errors, covariance = pooled_log_errors(table)
    estimate = combine(errors, covariance, SKILL, n_windows=3)
    assert estimate.mean[1] == -np.inf
    assert np.isnan(estimate.mean[2]) and np.isnan(estimate.sd[2])
    assert np.isfinite(estimate.mean[[0, 3]]).all()


def test_a_candidate_with_fewer_series_is_compared_on_its_own() -> None:
    table = losses(4)
    table[3] = table[:3].mean(axis=0)
    table[3, 4:] = np.nan
    errors, _ = pooled_log_errors(table)
    assert errors[3] == pytest.approx(np.log(table[:3].mean(axis=0).sum()))
