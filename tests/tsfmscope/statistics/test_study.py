"""Intervals, the mixed model and sign tests of a study against brute force and scipy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.tsfmscope.statistics.simulated import study
from tsfmscope.statistics import bootstrap
from tsfmscope.statistics.options import SeededOptions
from tsfmscope.statistics.study import fit_mixed_model, signs

HOW = {"resamples": 400, "alpha": 0.05}


def test_an_interval_by_row_is_scipy_s_bca_of_paired_units() -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 22)) + np.linspace(0, 2, 22)
    block = x[None, :, None], y[None, :, None]
    got = bootstrap.by_row(*block, unit_name="data sets", generator=np.random.default_rng(5), **HOW)
    theirs = stats.bootstrap(
        (x, y),
        lambda a, b: stats.spearmanr(a, b).statistic,
        paired=True,
        vectorized=False,
        n_resamples=400,
        method="BCa",
        rng=np.random.default_rng(5),
    ).confidence_interval
    assert got.method == "BCa by data sets, 400 resamples"
    assert (got.low, got.high) == pytest.approx(tuple(theirs), abs=1e-9)


def test_where_bca_is_undefined_the_percentile_interval_says_so() -> None:
    x, y = np.arange(6.0)[None, :, None], np.zeros((1, 6, 1))
    y[0, 5] = 1  # without the last row there is no correlation
    got = bootstrap.by_row(x, y, unit_name="data sets", generator=np.random.default_rng(0), **HOW)
    assert "BCa undefined" in got.method
    assert got.low < got.high


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_five_rows_have_no_interval(rows: int) -> None:
    x = np.random.default_rng(0).normal(size=(1, rows, 2))
    got = bootstrap.by_row(x, x, unit_name="models", generator=np.random.default_rng(0), **HOW)
    assert math.isnan(got.low) and got.reason == f"no interval: {rows} models, needs 6"


def test_an_interval_of_the_same_value_everywhere_is_none() -> None:
    x = np.arange(8.0)[None, :, None]
    got = bootstrap.by_row(x, x, unit_name="data sets", generator=np.random.default_rng(0), **HOW)
    assert got.reason == "no interval: every resample gives the same value"


@pytest.mark.parametrize(("datasets", "families"), [(11, 12), (7, 4)])
def test_the_two_way_bootstrap_is_a_loop_over_draws(datasets: int, families: int) -> None:
    x, y = np.random.default_rng(1).normal(size=(2, datasets, 1, families + 1, 2))
    labels = np.array([*range(families), 0])  # the first family has two models
    got = bootstrap.two_way(x, y, labels, generator=np.random.default_rng(9), resamples=300, alpha=0.1)
    draw = np.random.default_rng(9)
    drawn = draw.integers(families, size=(300, families)), draw.integers(datasets, size=(300, datasets))
    means = []
    for f, d in zip(*drawn, strict=True):
        m = np.concatenate([np.flatnonzero(labels == one) for one in f])
        blocks = [[values[n, 0, m].ravel() for values in (x, y)] for n in d]
        found = [stats.spearmanr(*block).statistic for block in blocks if len(set(block[0])) > 2]
        means += [np.mean(found)] if found else []
    if min(datasets, families) >= 10:
        assert (got.low, got.high) == pytest.approx(tuple(np.quantile(means, [0.05, 0.95])))
        return
    blocks = [[values[n, 0].ravel() for values in (x, y)] for n in range(datasets)]
    estimate = np.mean([stats.spearmanr(*block).statistic for block in blocks])
    reach = stats.t.isf(0.05, families - 1) * np.std(means, ddof=1) * math.sqrt(families / (families - 1))
    assert (got.low, got.high) == pytest.approx((estimate - reach, estimate + reach))
    assert got.method == "resampled: 7 data sets and 4 families, 300 resamples, Student's t"


@pytest.mark.parametrize("shape", [(22, 1, 2, 2), (1, 1, 5, 2), (0, 1, 0, 0)])
def test_the_two_way_bootstrap_needs_three_models_on_two_data_sets(shape: tuple[int, ...]) -> None:
    got = bootstrap.two_way(np.ones(shape), np.ones(shape), generator=np.random.default_rng(0), **HOW)
    assert math.isnan(got.low) and "needs 3 on 2" in str(got.reason)


def test_the_mixed_model_finds_the_slope_inside_data_sets() -> None:
    x, y = study(np.random.default_rng(3), shared=3.0, conditions=2)
    slope = 0.7
    got = fit_mixed_model(x, slope * x / x.std() + y - 0 * x)
    none = fit_mixed_model(x, y)
    assert got.reason is none.reason is None
    assert got.estimate - none.estimate == pytest.approx(slope, abs=0.02)
    assert got.low < got.estimate < got.high
    assert none.low < 0 < none.high


def test_without_conditions_and_random_effects_the_slope_is_that_of_least_squares_inside_data_sets() -> None:
    x, y = study(np.random.default_rng(4), difficulty=3.0)
    a, b = (v[..., 0] - v[..., 0].mean(0) - v[..., 0].mean(1, keepdims=True) + v.mean() for v in (x, y))
    assert fit_mixed_model(x, y).estimate == pytest.approx((a * b).sum() / (a * a).sum() * x.std(), rel=1e-4)


def six_units(x: np.ndarray) -> np.ndarray:
    """One model on five data sets, another on the first of them."""
    there = (np.arange(5)[:, None] == 0) | (np.arange(2) == 1)
    return np.where(there[..., None], x[:5, :2, :1], np.nan)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda x: x[:4], "4 data sets with units, needs 5"),
        (lambda x: x * 0, "isotropy constant"),
        (lambda x: x * np.nan, "0 data sets with units, needs 5"),
        (lambda x: np.broadcast_to(x[:1, :, :1], x.shape).copy(), "inside data sets isotropy says no more than"),
        (lambda x: x[:9, :1, :1], "inside data sets isotropy says no more than"),
        (six_units, "6 units for 4 fixed effects"),
    ],
)
def test_a_mixed_model_that_cannot_be_is_a_reason(change, reason: str) -> None:
    x, y = study(np.random.default_rng(5), conditions=2)
    x = change(x)
    got = fit_mixed_model(x, y[: x.shape[0], : x.shape[1], : x.shape[2]])
    assert math.isnan(got.p) and str(got.reason).startswith(reason)


@pytest.mark.parametrize("scale", [1e-12, 1e12, 1e150])
def test_a_mixed_model_of_any_scale_is_numbers_or_a_reason(scale: float) -> None:
    x, y = study(np.random.default_rng(6))
    got = fit_mixed_model(x * scale, y)
    assert got.reason is not None or got.estimate == pytest.approx(fit_mixed_model(x, y).estimate, rel=1e-3)


def test_the_detectable_share_is_found_in_80_percent_of_samples() -> None:
    generator, clusters, size = np.random.default_rng(3), 24, 12
    names = [str(cluster) for cluster in range(clusters) for _ in range(size)]
    row = {"study": "s", "answer": "sign_test", "measure": "m", "block": "b", "statistic": "agreement"}

    def sample(share: float) -> dict[str, Any]:
        chances = generator.beta(8 * share, 8 * (1 - share), size=clusters)  # units of a cluster are alike
        values = 2.0 * (generator.random((clusters, size)) < chances[:, None]) - 1
        families = [str(n) for _ in range(clusters) for n in range(size)]
        return signs(values.reshape(-1), names, families[: len(names)], SeededOptions(), row, "clusters")

    detectable = float(np.mean([sample(0.5)["detectable"] for _ in range(40)]))
    assert 0.55 < detectable < 0.75
    found = [(test := sample(detectable))["p"] <= 0.05 and test["estimate"] > 0.5 for _ in range(300)]
    assert 0.72 < np.mean(found) < 0.88
    few = signs(np.ones(5), list("abcde"), list("abcde"), SeededOptions(), row, "clusters")
    assert few["p_smallest"] > 0.05 and math.isnan(few["detectable"])
