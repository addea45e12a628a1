"""Drawn series have the factors that are stated."""

from __future__ import annotations

import numpy as np

from tsfmscope.series.synthetic.factors import KERNELS, draw_factors

COUNT, LENGTH = 400, 512


def test_a_series_is_the_sum_of_its_components() -> None:
    drawn = draw_factors(COUNT, LENGTH, seed=1)
    steps = np.arange(LENGTH)
    for row in range(0, COUNT, 37):
        if drawn.classes["kernel"][row] is not None or drawn.classes["changepoint"][row] == "yes":
            continue
        spread = drawn.values[row].std()
        turns = (steps - LENGTH + 1) / 2 ** drawn.factors["period"][row, 0]
        cos, sin = drawn.factors["phase"][row]
        wave = np.sin(2 * np.pi * turns) * cos + np.cos(2 * np.pi * turns) * sin
        line = drawn.factors["trend"][row, 0] * spread * (steps / (LENGTH - 1) - 0.5)
        season = 2 ** drawn.factors["season"][row, 0] * spread * np.sqrt(2) * wave
        noise = drawn.values[row] - season - line
        assert np.isclose(noise.std() / spread, 2 ** drawn.factors["noise"][row, 0], rtol=0.15)
        # What is left is white.
        assert abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) < 0.2


def test_a_level_shift_has_the_stated_height_in_deviations_of_the_series() -> None:
    drawn = draw_factors(COUNT, LENGTH, seed=2)
    shifts = drawn.factors["shift"][:, 0]
    is_known = ~np.isnan(shifts)
    assert ((drawn.classes["changepoint"] == "yes") == is_known).all()
    rises = [
        np.median(values[-60:]) - np.median(values[:60])
        for values in drawn.values[is_known] / drawn.values[is_known].std(axis=1, keepdims=True)
    ]
    rises = np.array(rises) - drawn.factors["trend"][is_known, 0] * (1 - 60 / LENGTH)
    assert np.corrcoef(rises, shifts[is_known])[0, 1] > 0.8


def test_each_fourth_series_is_drawn_from_a_kernel_and_has_no_other_factor() -> None:
    drawn = draw_factors(COUNT, LENGTH, seed=0)
    is_kernel = np.arange(COUNT) % KERNELS == KERNELS - 1
    assert ([kernel is not None for kernel in drawn.classes["kernel"]] == is_kernel).all()
    for values in drawn.factors.values():
        assert np.isnan(values[is_kernel]).all()
    _, sizes = np.unique(drawn.classes["kernel"][is_kernel].astype(str), return_counts=True)
    assert len(sizes) == 5 and np.ptp(sizes) <= 1
    assert np.isfinite(drawn.values).all()


def test_the_same_seed_repeats_the_series_and_another_does_not() -> None:
    first, again, other = (draw_factors(12, 100, seed=seed).values for seed in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    assert not np.isclose(first, other).all(axis=1).any()
