from __future__ import annotations

import numpy as np
import pytest
from sklearn.gaussian_process import kernels as sk

from tasks.errors import DataError
from tasks.series import kernelsynth
from tasks.series.kernelsynth import (
    SYNTHETIC,
    covariance,
    draw,
    draw_batch,
    draw_index,
    draw_many,
    kernel_bank,
    kernelsynth_series,
    parse_kernel,
    sample_kernel,
    synthetic_set,
)

GRID = np.linspace(0, 1, 1024)[:, None]


def _same(ours: np.ndarray, theirs: np.ndarray) -> None:
    assert np.abs(ours - theirs).max() <= 1e-12 * np.abs(theirs).max()


@pytest.mark.parametrize("index", range(33))
def test_the_covariance_of_a_bank_member_is_scikit_learn_s(index: int) -> None:
    kernel = kernel_bank()[index]
    _same(covariance(kernel), kernel(GRID))


@pytest.mark.parametrize("seed", range(25))
def test_the_covariance_of_a_composition_is_scikit_learn_s(seed: int) -> None:
    kernel = sample_kernel(np.random.default_rng(seed), 6)
    _same(covariance(kernel), kernel(GRID))


@pytest.mark.parametrize(
    "kernel",
    [
        sk.ConstantKernel(2.0) * (sk.RBF(0.5) + sk.WhiteKernel(0.3)) * (sk.DotProduct(2.0) + sk.WhiteKernel(0.2)),
        sk.WhiteKernel(0.5) * sk.WhiteKernel(0.5),
        sk.RBF(0.1) * (sk.RBF(1.0) + (sk.DotProduct(0.0) * sk.DotProduct(10.0))),
    ],
)
def test_trees_not_folded_from_the_left_have_scikit_learn_s_covariance(kernel: sk.Kernel) -> None:
    _same(covariance(kernel, 60), kernel(np.linspace(0, 1, 60)[:, None]))


@pytest.mark.parametrize("index", range(33))
def test_what_is_sampled_differs_from_the_bank_s_covariance_by_at_most_a_millionth(index: int) -> None:
    _within_budget(kernel_bank(256)[index], 256)


@pytest.mark.parametrize("seed", range(100, 125))
def test_what_is_sampled_differs_from_a_composition_s_covariance_by_at_most_a_millionth(seed: int) -> None:
    _within_budget(sample_kernel(np.random.default_rng(seed), 5, 256), 256)


def _within_budget(kernel: sk.Kernel, length: int) -> None:
    expected = kernel(np.linspace(0, 1, length)[:, None])
    assert np.abs(_sampled_covariance(kernel, length) - expected).max() <= 1e-6 * np.abs(expected).max()


def _sampled_covariance(kernel: sk.Kernel, length: int) -> np.ndarray:
    """The exact covariance of what is drawn: the map from white noise to values, applied to unit vectors."""
    parts = kernelsynth._parts(kernel, length)
    total = parts.factor @ parts.factor.T + np.diag(parts.diagonal)
    if parts.dense is not None:
        rows = kernelsynth._correlate(parts.dense, np.eye(length))
        total = total + rows.T @ rows
    return total


@pytest.mark.parametrize(
    "text",
    [
        "RBF(length_scale=0.1)",
        "DotProduct(sigma_0=1.0) * ExpSineSquared(length_scale=1.0, periodicity=0.4) + WhiteKernel(noise_level=0.1)",
        "(RationalQuadratic(alpha=0.1, length_scale=1.0) + ConstantKernel(constant_value=1.0)) * DotProduct(sigma_0=9)",
        "(RBF(length_scale=10.0) + DotProduct(sigma_0=0.0)) * WhiteKernel(noise_level=1.0)",
    ],
)
def test_the_empirical_covariance_of_4096_draws_is_within_monte_carlo_bounds(text: str) -> None:
    kernel, length, count = parse_kernel(text), 40, 4096
    rows = draw_batch(kernel, range(count), length).astype(np.float64)
    expected = kernel(np.linspace(0, 1, length)[:, None])
    deviations = np.sqrt((expected**2 + np.outer(np.diag(expected), np.diag(expected))) / count)  # of a product's mean
    assert (np.abs(rows.T @ rows / count - expected) <= 5 * deviations + 1e-9).all()
    assert (np.abs(rows.mean(axis=0)) <= 5 * np.sqrt(np.diag(expected) / count) + 1e-9).all()


def test_dot_product_0_is_a_line_through_0_to_the_last_bit() -> None:
    values = draw(parse_kernel("DotProduct(sigma_0=0.0)"), 3)
    slope = np.random.default_rng(3).standard_normal()
    np.testing.assert_array_equal(values, (np.linspace(0, 1, 1024) * slope).astype(np.float32))
    assert values[0] == 0.0


def test_a_constant_kernel_gives_a_constant_and_dot_product_1_a_line() -> None:
    constant = draw(parse_kernel("ConstantKernel(constant_value=4.0)"), 1)
    assert np.unique(constant).tolist() == [np.float32(2 * np.random.default_rng(1).standard_normal())]
    line = draw(parse_kernel("DotProduct(sigma_0=1.0)"), 1).astype(np.float64)
    assert np.abs(np.diff(line, 2)).max() < 1e-6


def test_a_series_drawn_alone_equals_its_row() -> None:
    drawn = draw_many(6, seed=11, length=512)
    for index, (expression, seed, values) in enumerate(drawn):
        again = draw(parse_kernel(expression), seed, 512)
        assert np.abs(again - values).max() <= 1e-6 * np.abs(values).max()
        np.testing.assert_array_equal(draw_index(index, 11, 512).values, values)
    assert len({one.seed for one in drawn}) == 6
    assert [one.seed for one in draw_many(3, seed=11, length=64)] == [one.seed for one in drawn[:3]]


@pytest.mark.parametrize("name", list(SYNTHETIC))
def test_a_series_of_a_named_set_drawn_alone_equals_its_row(name: str) -> None:
    found = synthetic_set(name, SYNTHETIC[name].kernel(300), count=5, seed=4, length=300, domain="d")
    assert [one.series for one in found] == [f"{name}-{i:06d}" for i in range(5)]
    for one in found:
        assert one.values.dtype == np.float32
        assert one.values.shape == (300,)
        assert one.kernel == SYNTHETIC[name].expression(300)
        alone = draw(parse_kernel(one.kernel), one.seed, 300)
        assert np.abs(alone - one.values).max() <= 1e-6 * np.abs(one.values).max()


def test_the_ten_sets_are_those_of_the_paper() -> None:
    assert {name: one.expression() for name, one in SYNTHETIC.items()} == {
        "linear-1": "DotProduct(sigma_0=0.0)",
        "linear-2": "DotProduct(sigma_0=1.0)",
        "seasonality-1": "ExpSineSquared(length_scale=1.0, periodicity=0.025390625)",
        "seasonality-2": "ExpSineSquared(length_scale=1.0, periodicity=0.09375)",
        "trend-1": "RationalQuadratic(alpha=1.0, length_scale=1.0)",
        "trend-2": "RationalQuadratic(alpha=10.0, length_scale=1.0)",
        "non-linear-1": "RBF(length_scale=0.1)",
        "non-linear-2": "RBF(length_scale=1.0)",
        "stochastic-1": "WhiteKernel(noise_level=0.1)",
        "stochastic-2": "WhiteKernel(noise_level=1.0)",
    }


def test_sets_of_other_names_have_other_noise_under_one_seed() -> None:
    kernel = SYNTHETIC["stochastic-2"].kernel()
    one, other = (synthetic_set(name, kernel, count=1, seed=0)[0].values for name in ("a", "b"))
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.2


def test_draws_are_finite_and_repeatable() -> None:
    first, again = (kernelsynth_series(12, seed=5, length=200) for _ in range(2))
    for one, other in zip(first, again, strict=True):
        assert np.isfinite(one.values).all()
        np.testing.assert_array_equal(one.values, other.values)


def test_a_draw_that_does_not_fit_float32_raises_with_its_expression() -> None:
    kernel = parse_kernel("ConstantKernel(constant_value=1e200)")
    with pytest.raises(DataError, match=r"ConstantKernel\(constant_value=1e\+200\): the draw does not fit float32"):
        draw(kernel, 0, 16)


def test_the_largest_composition_that_is_allowed_does_not_overflow() -> None:
    kernel = parse_kernel(" * ".join(["DotProduct(sigma_0=10.0)"] * 4 + ["ConstantKernel(constant_value=101.0)"] * 28))
    assert np.isfinite(draw(kernel, 0, 8)).all()


def test_a_matrix_that_cholesky_refuses_is_drawn_by_its_eigenvectors() -> None:
    indefinite = np.diag([1.0, 1.0, -1e-5])
    rows = kernelsynth._correlate(indefinite.copy(), np.eye(3))
    np.testing.assert_allclose(rows.T @ rows, np.diag([1.0, 1.0, 0.0]), atol=1e-12)


@pytest.mark.parametrize("count", [0])
def test_no_series_are_no_rows(count: int) -> None:
    assert draw_many(count, 0) == []
    assert synthetic_set("linear-1", SYNTHETIC["linear-1"].kernel(), count=count, seed=0) == []


def test_a_grid_of_one_step_is_refused() -> None:
    with pytest.raises(ValueError, match="length: expected at least 2, got 1"):
        draw(kernel_bank()[0], 0, 1)
