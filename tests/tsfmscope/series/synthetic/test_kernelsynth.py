from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest
from sklearn.gaussian_process import kernels as sk

from tsfmscope.errors import DataError
from tsfmscope.series.catalog import CATALOG
from tsfmscope.series.synthetic.kernels import (
    VALUES,
    Streams,
    bank,
    compositions,
    kernel_season,
    parse_kernel,
    series_seeds,
)
from tsfmscope.series.synthetic.kernelsynth import covariance, draw, draw_at, draw_batch, draw_many, synthetic_set


def _within_budget(kernel: sk.Kernel, length: int) -> None:
    expected = kernel(np.linspace(0, 1, length)[:, None])
    worst = np.abs(covariance(kernel, length) - expected).max() / np.abs(expected).max()
    assert worst <= 1e-6, f"{kernel}: {worst:.2g}"


@pytest.mark.parametrize("index", range(33))
def test_what_is_sampled_differs_from_the_bank_s_covariance_by_at_most_a_millionth(index: int) -> None:
    _within_budget(bank()[index].kernel(), 1024)


@pytest.mark.parametrize("first", range(0, 500, 50))
def test_what_is_sampled_differs_from_a_composition_s_covariance_by_at_most_a_millionth(first: int) -> None:
    for one in compositions(series_seeds(100, range(first, first + 50)), 5, 192):
        _within_budget(one.kernel(), 192)


@pytest.mark.parametrize(
    "kernel",
    [
        sk.ConstantKernel(2.0) * (sk.RBF(0.5) + sk.WhiteKernel(0.3)) * (sk.DotProduct(2.0) + sk.WhiteKernel(0.2)),
        sk.WhiteKernel(0.5) * sk.WhiteKernel(0.5),
        sk.RBF(0.1) * (sk.RBF(1.0) + (sk.DotProduct(0.0) * sk.DotProduct(10.0))),
        sk.ExpSineSquared(0.3, 0.21) * (sk.RBF(0.01) + sk.RationalQuadratic(0.2, 3.0) * sk.ExpSineSquared(2.0, 0.7)),
    ],
)
def test_trees_not_folded_from_the_left_have_scikit_learn_s_covariance(kernel: sk.Kernel) -> None:
    _within_budget(kernel, 60)


DRAWN = [one.kernel() for one in (*bank()[::3], *compositions(series_seeds(7, range(40)))[-7:])]


@pytest.mark.parametrize("kernel", DRAWN, ids=str)
def test_4096_draws_have_the_covariance_within_monte_carlo_bounds_and_gaussian_marginals(kernel: sk.Kernel) -> None:
    length, count = 48, 4096
    rows = draw_batch(kernel, series_seeds(8, range(count)), length).astype(np.float64)
    expected = kernel(np.linspace(0, 1, length)[:, None])
    variance = np.diag(expected)
    # 40 x 1,176 entries: 7 deviations of a mean of products, where 5.5 would be Bonferroni's for a chance of 1 in 1,000
    deviations = np.sqrt((expected**2 + np.outer(variance, variance)) / count)
    assert (np.abs(rows.T @ rows / count - expected) <= 7 * deviations + 1e-6 * variance.max()).all()
    assert (np.abs(rows.mean(axis=0)) <= 6 * np.sqrt(variance / count)).all()
    steps = [step for step in (1, 16, 31, 47) if variance[step] > 0]
    worst = min(kstest(rows[:, step] / np.sqrt(variance[step]), "norm").pvalue for step in steps)
    assert worst > 0.001 / (40 * 4)


def test_a_million_compositions_could_all_be_drawn() -> None:
    # Variances at the right end are the largest; the product of the largest leaves bounds them all.
    largest = max(float(leaf.kernel()(np.ones((1, 1)))[0, 0]) for leaf in bank())
    assert np.sqrt(5 * largest**5) * 10 < np.finfo(np.float32).max
    assert all(np.isfinite(one.values).all() for one in draw_many(300, seed=9, length=128))


def test_dot_product_0_is_a_line_through_0_to_the_last_bit() -> None:
    values = draw(parse_kernel("DotProduct(sigma_0=0.0)"), 3)
    slope = Streams().of(3, VALUES).standard_normal()
    np.testing.assert_array_equal(values, (np.linspace(0, 1, 1024) * slope).astype(np.float32))
    assert values[0] == 0.0


def test_a_constant_kernel_gives_a_constant_and_dot_product_1_a_line() -> None:
    constant = draw(parse_kernel("ConstantKernel(constant_value=4.0)"), 1)
    assert np.unique(constant).tolist() == [np.float32(2 * Streams().of(1, VALUES).standard_normal())]
    line = draw(parse_kernel("DotProduct(sigma_0=1.0)"), 1).astype(np.float64)
    assert np.abs(np.diff(line, 2)).max() < 1e-6


def test_a_series_drawn_alone_equals_its_row() -> None:
    drawn = draw_many(6, seed=11, length=512)
    for index, (expression, seed, values) in enumerate(drawn):
        again = draw(parse_kernel(expression), seed, 512)
        assert np.abs(again - values).max() <= 1e-6 * np.abs(values).max()
        (alone,) = draw_at([index], 11, 512)
        assert (alone.expression, alone.seed) == (expression, seed)
    assert len({one.seed for one in drawn}) == 6
    assert [one.seed for one in draw_many(3, seed=11, length=64)] == [one.seed for one in drawn[:3]]


KERNELS = {name: entry.kernel for name, entry in CATALOG.items() if entry.kernel is not None}


@pytest.mark.parametrize("name", KERNELS)
def test_a_series_of_a_named_set_drawn_alone_equals_its_row(name: str) -> None:
    found = synthetic_set(name, parse_kernel(KERNELS[name]), count=5, seed=4, length=300, domain="d")
    assert [one.series for one in found] == [f"{name}-{i:06d}" for i in range(5)]
    for one in found:
        assert one.values.dtype == np.float32
        assert one.values.shape == (300,)
        assert one.kernel == KERNELS[name]
        alone = draw(parse_kernel(one.kernel), one.seed, 300)
        assert np.abs(alone - one.values).max() <= 1e-6 * np.abs(one.values).max()


def test_the_season_of_a_set_is_the_period_of_its_kernel_and_no_other_set_has_any() -> None:
    for name, kernel in KERNELS.items():
        (drawn,) = synthetic_set(name, parse_kernel(kernel), count=1, seed=2)
        assert drawn.season == {"seasonality-1": 26, "seasonality-2": 96}.get(name, 1)
        if drawn.season > 1:  # the values do repeat after it, and after no other number of steps as well
            apart = [np.abs(drawn.values[lag:] - drawn.values[:-lag]).mean() for lag in range(2, 110)]
            assert 2 + int(np.argmin(apart)) == drawn.season


PERIODIC, NOISE = "ExpSineSquared(length_scale=1.0, periodicity=0.1)", "WhiteKernel(noise_level=1.0)"


@pytest.mark.parametrize(
    ("expression", "season"),
    [
        (PERIODIC, 102),
        (f"{PERIODIC} * RBF(length_scale=1.0) + {NOISE}", 102),
        (f"(RBF(length_scale=1.0) + {NOISE}) * {PERIODIC}", 102),
        (f"{PERIODIC} + ExpSineSquared(length_scale=1.0, periodicity=0.2)", 1),
        ("ExpSineSquared(length_scale=1.0, periodicity=0.0001)", 1),
        (NOISE, 1),
    ],
)
def test_a_kernel_has_a_season_where_its_periodic_leaves_share_one(expression: str, season: int) -> None:
    assert kernel_season(parse_kernel(expression), 1024) == season


def test_sets_of_other_names_have_other_noise_under_one_seed() -> None:
    kernel = parse_kernel(KERNELS["stochastic-2"])
    one, other = (synthetic_set(name, kernel, count=1, seed=0)[0].values for name in ("a", "b"))
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.2


def test_a_draw_that_does_not_fit_float32_raises_with_its_expression() -> None:
    kernel = parse_kernel("ConstantKernel(constant_value=1e200)")
    with pytest.raises(DataError, match=r"ConstantKernel\(constant_value=1e\+200\): the draw does not fit float32"):
        draw(kernel, 0, 16)


def test_the_largest_composition_that_is_allowed_does_not_overflow() -> None:
    kernel = parse_kernel(" * ".join(["DotProduct(sigma_0=10.0)"] * 4 + ["ConstantKernel(constant_value=101.0)"] * 28))
    assert np.isfinite(draw(kernel, 0, 8)).all()


def test_no_series_are_no_rows() -> None:
    assert draw_many(0, 0) == []
    assert synthetic_set("linear-1", parse_kernel(KERNELS["linear-1"]), count=0, seed=0) == []


def test_a_grid_of_one_step_is_refused() -> None:
    with pytest.raises(ValueError, match="length: expected at least 2, got 1"):
        draw(bank()[0].kernel(), 0, 1)
