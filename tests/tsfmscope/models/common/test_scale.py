"""Moments of observed steps, and missing steps filled with the last observed one."""

from __future__ import annotations

import numpy as np

from tsfmscope.models.common.scale import carry_forward, mean_and_deviation, observed_moments

NAN = np.nan


def test_moments_are_those_of_the_observed_steps() -> None:
    values = np.array([[9.0, 1.0, NAN, 3.0, 5.0], [0.1, 0.1, 0.1, NAN, NAN], [NAN] * 5])
    observed = ~np.isnan(values)
    observed[0, 0] = False
    loc, spread = observed_moments(values, observed)
    # The sum of three times 0.1, divided by 3, is not 0.1 in float64.
    assert loc.tolist() == [3.0, 0.1, 0.0]
    np.testing.assert_allclose(spread, [np.sqrt(8 / 3), 0.0, 0.0], rtol=1e-15)


def test_a_constant_context_has_its_absolute_value_as_scale() -> None:
    loc, scale = mean_and_deviation(np.array([[-2.0, -2.0], [0.0, NAN], [NAN, NAN], [1.0, 3.0]]))
    assert loc.tolist() == [-2.0, 0.0, 0.0, 2.0]
    assert scale.tolist() == [2.0, 1.0, 1.0, 1.0]


def test_a_missing_step_repeats_the_last_observed_one() -> None:
    steps = np.array([[NAN, 2.0, NAN, NAN, 5.0], [NAN] * 5], np.float32)
    filled = carry_forward(steps)
    assert filled.dtype == np.float32
    assert filled.tolist() == [[0.0, 2.0, 2.0, 2.0, 5.0], [0.0] * 5]
