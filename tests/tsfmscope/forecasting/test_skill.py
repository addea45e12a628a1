"""Skill: the ratio by hand, the interval's coverage, and a real row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tsfmscope.forecasting.baselines import context_median, seasonal_naive
from tsfmscope.forecasting.scores import quantile_losses
from tsfmscope.forecasting.skill import skill, skill_row
from tsfmscope.models.types import Forecast
from tsfmscope.series.types import Windows
from tsfmscope.training.held_out import unseen_windows

LEVELS = (0.1, 0.5, 0.9)


def test_the_ratio_is_the_geometric_mean_of_pooled_losses() -> None:
    datasets = np.array(["a", "a", "b", "b"])
    found = skill(np.array([1.0, 3.0, 2.0, 0.0]), np.array([4.0, 4.0, 1.0, 0.0]), datasets, seed=0, bootstrap=200)
    assert found.ratio == pytest.approx(np.sqrt((4 / 8) * (2 / 1)))
    assert (found.n_windows, found.n_datasets, found.left_out) == (4, 2, ())


def test_the_ratio_is_that_of_weighted_quantile_losses() -> None:
    rng = np.random.default_rng(1)
    model, reference, size = rng.gamma(2, size=(3, 40))
    datasets = rng.integers(4, size=40)
    wql = [
        (model[datasets == d].sum() / size[datasets == d].sum())
        / (reference[datasets == d].sum() / size[datasets == d].sum())
        for d in range(4)
    ]
    assert skill(model, reference, datasets, seed=0, bootstrap=100).ratio == pytest.approx(np.prod(wql) ** 0.25)


def test_a_reference_against_itself_is_one_without_width() -> None:
    losses = np.random.default_rng(0).gamma(2, size=50)
    found = skill(losses, losses, np.arange(50) % 3, seed=5)
    assert (found.ratio, found.low, found.high) == pytest.approx((1.0, 1.0, 1.0))


def test_the_interval_is_seeded_and_free_of_scale() -> None:
    rng = np.random.default_rng(2)
    model, reference, datasets = rng.gamma(2, size=60), rng.gamma(3, size=60), np.arange(60) % 2
    one = skill(model, reference, datasets, seed=7)
    assert one == skill(model * 2**20, reference * 2**20, datasets, seed=7)
    assert one != skill(model, reference, datasets, seed=8)
    assert one.low < one.ratio < one.high


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    hits = 0
    for trial in range(200):
        model, reference = rng.gamma(4, size=80), 2 * rng.gamma(4, size=80)
        found = skill(model, reference, np.arange(80) % 2, seed=trial, bootstrap=400)
        hits += found.low <= 0.5 <= found.high
    assert 0.89 <= hits / 200 <= 0.99


def test_a_data_set_whose_reference_has_no_loss_is_left_out_by_name() -> None:
    found = skill(np.array([1.0, 2.0]), np.array([0.0, 4.0]), np.array(["flat", "b"]), seed=0, bootstrap=100)
    assert (found.left_out, found.ratio, found.n_windows) == (("flat",), pytest.approx(0.5), 1)
    with pytest.raises(ValueError, match="reference: got no data set with a loss above 0"):
        skill(np.ones(1), np.zeros(1), np.array(["flat"]), seed=0)


class _Oracle:
    """Forecasts the future itself, moved by the window's seed so that seeds can be seen."""

    def __init__(self) -> None:
        self.seeds: list[int] = []

    def forecast(self, windows: Windows, *, levels: tuple[float, ...], samples: int, seeds: list[int]) -> Forecast:
        self.seeds += seeds
        wrong = np.array([[(s % 7) / 50] for s in seeds], dtype=np.float32)
        values = np.repeat((windows.future + wrong)[:, None], len(levels), axis=1)
        return Forecast(values, tuple(levels))


def _batches(size: int) -> list[Windows]:
    rng = np.random.default_rng(4)
    series = rng.standard_normal((24, 40)).astype(np.float32).cumsum(axis=1)
    names = [str(i) for i in range(24)]
    origin = np.full(24, 32, dtype=np.int64)
    cut = [slice(i, i + size) for i in range(0, 24, size)]
    return [Windows(series[c, :32], series[c, 32:], names[c], origin[c], "walk", "D", 4) for c in cut]


def test_a_skill_row_does_not_depend_on_the_batch() -> None:
    one, other = _Oracle(), _Oracle()
    asked = {"levels": LEVELS, "samples": 20, "seed": 11, "bootstrap": 300}
    row = skill_row(one, _batches(24), **asked)
    assert row == skill_row(other, _batches(5), **asked)
    assert one.seeds == other.seeds
    assert len(set(one.seeds)) == 24
    whole = _batches(24)[0]
    again = _Oracle().forecast(whole, levels=LEVELS, samples=20, seeds=one.seeds)
    ours = quantile_losses(whole.future, again.values, LEVELS)
    for name, baseline in (("wql_vs_median", context_median), ("wql_vs_seasonal", seasonal_naive)):
        reference = quantile_losses(whole.future, baseline(whole, 3), LEVELS)
        assert row[name] == pytest.approx(ours.sum() / reference.sum(), rel=1e-9)
    assert row["low"] < row["wql_vs_median"] < row["high"] < 1
    assert row["seasonal_low"] < row["wql_vs_seasonal"] < row["seasonal_high"]
    assert (row["n_windows"], row["n_datasets"], row["bootstrap"], row["seed"]) == (24, 1, 300, 11)
    assert row["n_seasonal"] == 1


def test_seasonal_naive_repeats_the_season_of_the_data_set_and_the_last_value_where_it_has_none() -> None:
    windows = {one.dataset: one for one in unseen_windows(100, context=500, seed=0)}
    seasons = {name: one.season for name, one in windows.items() if one.season > 1}
    assert seasons == {"seasonality-1": 26, "seasonality-2": 96, "co2": 52, "elnino": 12, "macrodata": 4}
    for name in ("seasonality-1", "seasonality-2"):
        losses = [
            quantile_losses(one.future, seasonal_naive(one, 3), LEVELS).sum()
            for one in (windows[name], replace(windows[name], season=1))
        ]
        assert losses[0] < 0.3 * losses[1]  # the period, not the last value
    row = skill_row(_Oracle(), [*windows.values()], levels=LEVELS, samples=1, seed=0, bootstrap=100)
    assert (row["n_datasets"], row["n_seasonal"]) == (len(windows), 5)
