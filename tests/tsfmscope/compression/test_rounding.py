"""Rounding of a matrix: scales by brute force, a slow twin of GPTQ, and degenerate inputs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tsfmscope.compression import rounding
from tsfmscope.compression.rounding import best_scales, output_error, round_matrix, round_plainly
from tsfmscope.models.common.low_bits import BITS, GROUPS, Packed, find_grid

SEEDS = st.integers(0, 2**32 - 1)


def random_weight(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    return rng.normal(size=(rows, columns)).astype(np.float32)


def random_inputs(rng: np.random.Generator, count: int, columns: int) -> np.ndarray:
    """Return inputs whose columns are correlated and have different sizes."""
    common = rng.normal(size=(count, 1)) * rng.uniform(0, 3, size=columns)
    return (rng.normal(size=(count, columns)) + common) * np.exp(rng.normal(size=columns))


def moments_of(inputs: np.ndarray) -> np.ndarray:
    return inputs.T @ inputs / len(inputs)


def damp(moments: np.ndarray) -> np.ndarray:
    """Return the moments whose error `round_matrix` makes small."""
    return moments + rounding.DAMPING * np.diagonal(moments).mean() * np.eye(len(moments))


def nearest(values: np.ndarray, scale: float, bits: int) -> np.ndarray:
    """Return the nearest number of the grid for each value, among all of them."""
    candidates = np.arange(-(2 ** (bits - 1)), 2 ** (bits - 1)) * scale
    return candidates[np.abs(values[:, None] - candidates).argmin(axis=1)]


def assert_on_grid(rounded: np.ndarray, bits: int) -> Packed:
    found = find_grid(rounded)
    assert rounded.dtype == np.float32 and found is not None and found.bits <= bits
    return found


@settings(deadline=None)
@given(SEEDS, st.sampled_from(BITS), st.integers(1, 40))
def test_a_scale_is_the_best_of_all_factors(seed: int, bits: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    groups, importance = rng.normal(size=(3, columns)), rng.uniform(0.1, 2, columns)
    for row, scale in zip(groups, best_scales(groups, bits, importance), strict=True):
        largest = max(row, key=abs)
        scales = [float(torch.tensor(-largest * factor / 2 ** (bits - 1)).bfloat16()) for factor in rounding.FACTORS]
        errors = [importance @ (row - nearest(row, one, bits)) ** 2 for one in scales]
        assert scale in scales
        assert importance @ (row - nearest(row, scale, bits)) ** 2 == pytest.approx(min(errors), rel=1e-9)


def test_the_scale_of_zeros_is_one_and_the_largest_number_is_negative() -> None:
    """By hand: -2, 1 and 0 times the scale give 4, -2 and 0 exactly in two bits."""
    assert best_scales(np.zeros((2, 5)), 4, np.ones(5)).tolist() == [1.0, 1.0]
    assert best_scales(np.array([[4.0, -2.0, 0.0], [-4.0, 2.0, 0.0]]), 2, np.ones(3)).tolist() == [-2.0, 2.0]


@settings(deadline=None)
@given(SEEDS, st.sampled_from(BITS), st.sampled_from(GROUPS), st.integers(16, 100))
def test_plain_rounding_gives_the_nearest_number_to_each(seed: int, bits: int, group: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    weight, importance = rng.normal(size=(2, columns)), rng.uniform(0.1, 2, columns)
    rounded = round_plainly(weight, bits, group, importance)
    assert_on_grid(rounded.astype(np.float32), bits)
    for start in range(0, columns, group or columns):
        part = slice(start, start + (group or columns))
        for row, scale in enumerate(best_scales(weight[:, part], bits, importance[part])):
            assert np.array_equal(rounded[row, part], nearest(weight[row, part], scale, bits))


@settings(deadline=None, max_examples=50)
@given(SEEDS, st.sampled_from(BITS), st.sampled_from(GROUPS), st.integers(16, 70))
def test_the_outputs_change_less_than_with_the_nearest_numbers(seed: int, bits: int, group: int, columns: int) -> None:
    """Over 64 rows; of a single row, about one in 400 changes more."""
    rng = np.random.default_rng(seed)
    inputs = random_inputs(rng, int(rng.integers(1, 200)), columns)
    weight, moments = random_weight(rng, 64, columns), moments_of(inputs)
    damped = damp(moments)
    rounded = round_matrix(weight, bits, group, moments)
    plain = round_plainly(weight.astype(np.float64), bits, group, np.diagonal(damped))
    assert_on_grid(rounded, bits)
    assert output_error(rounded - weight, damped) <= 1.01 * output_error(plain - weight, damped)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_sweeps_lower_the_error_until_no_number_can_be_moved_alone(
    bits: int, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(bits)
    weight, moments = random_weight(rng, 16, 70), moments_of(random_inputs(rng, 100, 70))
    damped, errors, rounded, default = damp(moments), {}, weight, rounding.SWEEPS
    for sweeps in (0, 1, 2, default, default + 1, 60):
        monkeypatch.setattr(rounding, "SWEEPS", sweeps)
        rounded = round_matrix(weight, bits, group, moments)
        errors[sweeps] = output_error(rounded.astype(np.float64) - weight, damped)
    assert all(later <= sooner * (1 + 1e-9) for sooner, later in itertools.pairwise(errors.values()))
    # The default is near the end: another sweep lowers the error by less than three percent (two bits; else by one).
    assert errors[default + 1] > (0.97 if bits == 2 else 0.99) * errors[default] and errors[0] > errors[default]
    # One step of any number changes the error by 2 step (slope) + step^2 (moment).
    found = assert_on_grid(rounded, bits)
    slopes = (rounded - weight.astype(np.float64)) @ damped
    scales = np.repeat(found.scales, found.group or 70, axis=1)[:, :70].astype(np.float64)
    for step in (-1, 1):
        change = 2 * step * scales * slopes + scales**2 * np.diagonal(damped)
        # Scales that are found may have the other sign, with which the range is another.
        is_allowed = np.abs(found.numbers.astype(int) + step) < 2 ** (bits - 1)
        assert change[is_allowed].min() > -1e-9 * errors[60]


@pytest.mark.parametrize("group", [0, 32])
@pytest.mark.parametrize("bits", [2, 4, 6])
def test_columns_are_rounded_as_by_a_slow_twin(bits: int, group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Optimal brain surgeon (Hassibi and Stork 1993), with the inverse of the moments of all later columns anew."""
    monkeypatch.setattr(rounding, "SWEEPS", 0)
    rng = np.random.default_rng(0)
    weight, moments = random_weight(rng, 5, 70), moments_of(random_inputs(rng, 100, 70))
    damped, left, twin = damp(moments), weight.astype(np.float64), np.empty((5, 70))
    for column in range(70):
        if column % (group or 70) == 0:
            part = slice(column, column + (group or 70))
            scales = best_scales(left[:, part], bits, np.diagonal(damped)[part])
        twin[:, column] = [nearest(left[row, [column]], scales[row], bits)[0] for row in range(5)]
        inverse = np.linalg.inv(damped[column:, column:])
        left[:, column:] -= np.outer(left[:, column] - twin[:, column], inverse[0] / inverse[0, 0])
    assert np.array_equal(round_matrix(weight, bits, group, moments), twin.astype(np.float32))


@pytest.mark.parametrize("columns", [16, 17, 20, 33, 65])
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("kind", ["none", "zeros", "one input", "few inputs", "zero column", "equal columns", "large"])
def test_degenerate_moments_give_finite_numbers_of_the_grid(kind: str, group: int, columns: int) -> None:
    rng = np.random.default_rng(0)
    inputs = random_inputs(rng, {"one input": 1, "few inputs": 5}.get(kind, 50), columns)
    inputs[:, 3] *= kind != "zero column"
    inputs[:, 1:] = inputs[:, [0]] if kind == "equal columns" else inputs[:, 1:]
    moments = moments_of(inputs * {"zeros": 0.0, "large": 1e15}.get(kind, 1.0))
    weight = random_weight(rng, 64, columns)
    weight[5] = 0
    rounded = round_matrix(weight, 4, group, None if kind == "none" else moments)
    assert_on_grid(rounded, 4)
    assert not rounded[5].any() and np.count_nonzero(rounded.any(axis=1)) == 63
    plain = round_plainly(weight, 4, group, np.ones(columns))
    if kind in ("none", "zeros"):
        assert np.array_equal(rounded, plain)
    else:
        assert output_error(rounded - weight, damp(moments)) < output_error(plain - weight, damp(moments))
    if kind == "zero column" and not group:
        # The scale of a row is known from its other numbers.
        scales = best_scales(weight.astype(np.float64), 4, np.diagonal(damp(moments)))
        expected = [nearest(row[[3]], scale, 4)[0] for row, scale in zip(weight, scales, strict=True)]
        assert np.array_equal(rounded[:, 3], np.array(expected, np.float32))


@pytest.mark.parametrize("exponent", [-110, -90, -24, 15, 100])
@pytest.mark.parametrize("bits", [2, 8])
def test_powers_of_two_times_a_weight_give_as_many_times_the_numbers(bits: int, exponent: int) -> None:
    rng = np.random.default_rng(0)
    weight, moments = random_weight(rng, 4, 40), moments_of(random_inputs(rng, 90, 40))
    rounded = round_matrix(np.ldexp(weight, exponent).astype(np.float32), bits, 32, moments)
    assert np.array_equal(rounded, np.ldexp(round_matrix(weight, bits, 32, 4 * moments), exponent))
    assert_on_grid(rounded, bits)


@settings(deadline=None)
@given(SEEDS, st.integers(1, 20), st.integers(1, 9))
def test_an_output_error_is_the_mean_over_the_inputs(seed: int, count: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    change, inputs = rng.normal(size=(3, columns)), random_inputs(rng, count, columns)
    expected = np.mean([sum((change @ row) ** 2) for row in inputs])
    assert output_error(change, moments_of(inputs)) == pytest.approx(expected, rel=1e-9)
    assert output_error(change, None) == pytest.approx(output_error(change, np.eye(columns)))
