"""Skill: the ratio by hand, the interval's coverage, and a real row."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tasks.checkpoints import measure_skill
from tasks.job import Job, Task
from tsfmscope.forecasting.baselines import context_median, seasonal_naive
from tsfmscope.forecasting.scores import quantile_losses
from tsfmscope.forecasting.skill import (
    COLUMNS,
    HORIZON,
    OTHER_PHASES,
    PERIOD,
    PERIODS,
    PHASES,
    dataset_errors,
    dataset_ratios,
    geometric_mean,
    group_skill,
    interval,
    mean_skill,
    read_rows,
    sine_errors,
    sine_windows,
    skill,
    skill_row,
    spread_rows,
)
from tsfmscope.models import registry
from tsfmscope.models.types import Forecast
from tsfmscope.series.types import Windows
from tsfmscope.training.held_out import unseen_windows

LEVELS = (0.1, 0.5, 0.9)

LEVELS = (0.1, 0.5, 0.9)
NAN = np.nan

ASKED = {"bootstrap": 500, "seed": 4}

ROOT = Path(__file__).parents[3]
SINES = {"context": 500, "samples": 4, "seed": 0}
BOLTS = {
    "chronos-bolt-nano": ROOT / "tests" / "checkpoints",
    "chronos-bolt-350k": Path(os.environ.get("TSFMSCOPE_WEIGHTS", "")),
}


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


def windows_of(context: np.ndarray, future: np.ndarray, season: int = 1) -> Windows:
    """Windows of series named s0, s1 and so on."""
    names = [f"s{row}" for row in range(len(context))]
    context, future = context.astype(np.float32), future.astype(np.float32)
    return Windows(context, future, names, np.full(len(names), context.shape[1]), "made-up", "D", season)


def test_both_errors_are_those_of_the_definitions_step_by_step() -> None:
    rng = np.random.default_rng(0)
    windows = windows_of(rng.normal(3, 1, (5, 12)), rng.normal(3, 1, (5, 4)), season=3)
    windows.future[1, 2] = windows.future[4, 0] = NAN
    quantiles = np.sort(rng.normal(3, 1, (5, len(LEVELS), 4)), axis=1)
    found = dataset_errors(windows, quantiles, LEVELS)

    loss, naive_loss, absolute, naive_absolute, size, steps = 0.0, 0.0, 0.0, 0.0, 0.0, 0
    for window in range(5):
        for step in range(4):
            y = float(windows.future[window, step])
            if np.isnan(y):
                continue
            naive = float(windows.context[window, 12 - 3 + step % 3])
            for index, level in enumerate(LEVELS):
                for forecast, is_naive in ((quantiles[window, index, step], False), (naive, True)):
                    error = y - forecast
                    pinball = 2 * max(level * error, (level - 1) * error)
                    loss, naive_loss = (loss, naive_loss + pinball) if is_naive else (loss + pinball, naive_loss)
            absolute += abs(y - quantiles[window, 1, step])
            naive_absolute += abs(y - naive)
            size += abs(y)
            steps += 1
    assert found["wql"] == pytest.approx(loss / (3 * size))
    assert found["wql_seasonal"] == pytest.approx(naive_loss / (3 * size))
    assert (found["mae"], found["mae_seasonal"]) == pytest.approx((absolute / steps, naive_absolute / steps))
    assert found["wql_ratio"] == pytest.approx(loss / naive_loss)
    assert found["mae_ratio"] == pytest.approx(absolute / naive_absolute)
    assert found["reason"] is None


def test_ratios_do_not_depend_on_the_unit_of_the_series() -> None:
    rng = np.random.default_rng(1)
    context, future, quantiles = rng.normal(size=(3, 9)), rng.normal(size=(3, 2)), rng.normal(size=(3, 3, 2))
    one = dataset_errors(windows_of(context, future), quantiles, LEVELS)
    other = dataset_errors(windows_of(1024 * context, 1024 * future), 1024 * quantiles, LEVELS)
    for name in ("wql", "wql_seasonal", "wql_ratio", "mae_ratio"):
        assert other[name] == pytest.approx(one[name])
    assert other["mae"] == pytest.approx(1024 * one["mae"])


@pytest.mark.parametrize(("context", "future", "nulls", "reason"), [
    # The last value is repeated exactly.
    ([[1, 2, 2]], [[2, 2]], {"wql_ratio", "mae_ratio"}, "wql_ratio, mae_ratio: seasonal naive has no error"),
    ([[1, 2, 3]], [[0, 0]], {"wql", "wql_seasonal"}, "wql: the targets are zero"),
    ([[1, 0, 0]], [[0, 0]], {"wql", "wql_seasonal", "wql_ratio", "mae_ratio"},
        "wql: the targets are zero; wql_ratio, mae_ratio: seasonal naive has no error"),
    (np.zeros((0, 3)), np.zeros((0, 2)), {"wql", "wql_seasonal", "wql_ratio", "mae", "mae_seasonal", "mae_ratio"},
        "no window with an observed target"),
], ids=["no seasonal error", "targets of 0", "both", "no window"])  # fmt: skip
def test_an_undefined_number_is_null_with_a_reason(
    context: Sequence, future: Sequence, nulls: set[str], reason: str
) -> None:
    windows = windows_of(np.array(context, dtype=float), np.array(future, dtype=float))
    found = dataset_errors(windows, np.ones((len(windows), 3, 2)), LEVELS)
    assert {name for name, value in found.items() if value is None} == nulls
    assert found["reason"] == reason


def test_a_forecast_that_is_not_finite_is_refused() -> None:
    windows = windows_of(np.ones((1, 3)), np.ones((1, 2)))
    with pytest.raises(ValueError, match="quantiles: got NaN or infinity"):
        dataset_errors(windows, np.full((1, 3, 2), NAN), LEVELS)


@pytest.mark.parametrize(("count", "names"), [(3, ["s0", "s2", "s4"]), (7, [f"s{row}" for row in range(7)]), (9, None)])
def test_of_many_series_evenly_spaced_ones_are_scored(count: int, names: list[str] | None) -> None:
    windows = windows_of(np.ones((7, 3)), np.ones((7, 2)))
    assert spread_rows(windows, count).series == (names or windows.series)


def dataset_row(dataset: str, wql: float | None, mae: float | None = 1.0, **facts: Any) -> dict[str, Any]:
    """A row of `dataset_skill`."""
    plain = {"model": "m", "dataset": dataset, "is_real": True, "trained_on": False}
    return plain | {"wql_ratio": wql, "mae_ratio": mae} | facts


def test_the_mean_is_the_root_of_the_product_of_real_and_of_synthetic_sets_apart() -> None:
    rows = [dataset_row(*one) for one in (("a", 0.5, 2.0), ("b", 2.0, 4.0), ("c", 8.0, 1.0))]
    rows.append(dataset_row("k", 0.1, 0.2, is_real=False))
    real, synthetic = mean_skill(rows, **ASKED)
    assert (real["kind"], real["n_datasets"], real["wql"], real["mae"]) == ("real", 3, *map(pytest.approx, (2.0, 2.0)))
    assert (synthetic["kind"], synthetic["n_datasets"]) == ("synthetic", 1)
    assert (synthetic["wql"], synthetic["mae"]) == pytest.approx((0.1, 0.2))
    assert all(real[f"{name}_{end}"] is None for name in ("wql", "mae") for end in ("low", "high"))


@pytest.mark.parametrize(("facts", "is_counted"), [
    ({"trained_on": True}, False),
    ({"trained_on": None}, True),
    ({"wql_ratio": None, "mae_ratio": None}, False),
    ({}, True),
])  # fmt: skip
def test_what_was_trained_on_and_what_has_no_ratio_is_left_out(facts: dict[str, Any], is_counted: bool) -> None:
    (found,) = mean_skill([dataset_row("a", 0.5), dataset_row("b", 8.0) | facts], **ASKED)
    assert found["n_datasets"] == 1 + is_counted
    assert found["wql"] == pytest.approx(2.0 if is_counted else 0.5)


def test_a_model_without_a_data_set_has_no_dataset_row() -> None:
    assert mean_skill([dataset_row("a", 0.5, trained_on=True)], **ASKED) == []
    assert mean_skill([], **ASKED) == []


def test_the_order_of_the_rows_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    rows = [dataset_row(f"d{n}", *rng.gamma(3, size=2), model=model) for n in range(8) for model in ("m", "n")]
    found = mean_skill(rows, **ASKED)
    assert [one["model"] for one in found] == ["m", "n"]
    assert mean_skill(rows[::-1], **ASKED) == found


def test_the_interval_is_scipys_percentile_interval_of_the_mean_logarithm() -> None:
    ratios = np.random.default_rng(1).gamma(3, size=(30, 2))
    means, ends = geometric_mean(ratios, bootstrap=20_000, seed=0)
    assert ends is not None
    for column in range(2):
        assert means[column] == pytest.approx(stats.gmean(ratios[:, column]))
        other = stats.bootstrap(
            (ratios[:, column],), stats.gmean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(9)
        ).confidence_interval
        assert ends[:, column] == pytest.approx([other.low, other.high], rel=0.02)


@pytest.mark.parametrize(("count", "has_interval"), [(5, False), (6, True)])
def test_few_data_sets_give_no_interval_and_an_exact_forecast_a_mean_of_zero(count: int, has_interval: bool) -> None:
    ratios = np.full((count, 2), 0.5)
    ratios[0, 1] = 0.0
    means, ends = geometric_mean(ratios, bootstrap=200, seed=0)
    assert means.tolist() == pytest.approx([0.5, 0.0])
    assert (ends is not None) is has_interval
    if ends is not None:
        assert ends[:, 0] == pytest.approx([0.5, 0.5]) and ends[0, 1] == 0.0


def file_row(dataset: str, loss: float, naive: float = 4.0, **changes: Any) -> dict[str, Any]:
    facts = {
        "model": "m", "weights": "w", "group": "report", "dataset": dataset, "freq": "D", "season": 7, "horizon": 30,
    }  # fmt: skip
    return facts | {"n_windows": 2, "loss": loss, "error": 1.0, "naive_error": naive} | changes


def test_the_windows_of_all_frequencies_of_a_set_are_pooled_before_the_ratio() -> None:
    rows = [file_row("a", 2.0), file_row("a", 4.0, 20.0, freq="h", season=24, horizon=48), file_row("flat", 1.0, 0.0)]
    (found,) = dataset_ratios(rows)
    assert (found["wql"], found["mae"]) == (6 / 24, 2 / 24)
    assert (found["n_windows"], found["season"], found["horizon"]) == (4, "7, 24", "30, 48")


def test_means_are_geometric_and_groups_apart(tmp_path: Path) -> None:
    ratios = [0.5, 2.0, 1.0, 4.0, 0.25, 1.0, 3.0]
    rows = [file_row(f"s{n}", 4 * ratio) for n, ratio in enumerate(ratios)] + [file_row("g", 8.0, group="guided")]
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    assert read_rows(tmp_path / "rows.csv") == rows
    report, guided = group_skill(rows)
    assert report["wql"] == pytest.approx(np.exp(np.log(ratios).mean()))
    assert report["wql_low"] < report["wql"] < report["wql_high"]
    assert (report["n_datasets"], report["worst"], report["worst_wql"]) == (7, "s3", 4.0)
    assert (guided["n_datasets"], guided["wql"], interval(guided, "wql")) == (1, 2.0, "2.000")
    assert interval(report, "wql") == f"{report['wql']:.3f} [{report['wql_low']:.3f}, {report['wql_high']:.3f}]"


class _FixedForecaster:
    """A forecaster of a known answer, the same at every level."""

    def __init__(self, answer: Callable[[Windows], np.ndarray]) -> None:
        self.answer = answer

    def forecast(self, windows: Windows, *, levels: list[float], samples: int, seeds: list[int]) -> Forecast:
        return Forecast(np.repeat(self.answer(windows)[:, None], len(levels), axis=1), tuple(levels))


def test_windows_are_sines_of_one_period_and_of_all_phases() -> None:
    windows, periods = sine_windows(500)
    values = np.concatenate([windows.context, windows.future], axis=1).astype(float)[:PHASES]
    assert (periods[:PHASES] == PERIOD).all()
    assert values.shape == (PHASES, 500 + HORIZON) and windows.season == PERIOD
    np.testing.assert_allclose(values[:, PERIOD:], values[:, :-PERIOD], atol=1e-6)
    np.testing.assert_allclose(values[:, : PERIOD // 2], -values[:, PERIOD // 2 : PERIOD], atol=1e-6)
    power = np.abs(np.fft.rfft(values[:, : 20 * PERIOD])) ** 2
    assert (power.argmax(axis=1) == 20).all() and (power[:, 20] / power.sum(axis=1) > 1 - 1e-9).all()
    assert len({round(float(one[0] + 10 * one[1]), 4) for one in values}) == PHASES


@pytest.mark.parametrize(("context", "most"), [(512, 168), (336, 168), (335, 144), (64, 30), (16, PERIOD)])
def test_every_window_has_its_period_and_the_context_holds_the_others_twice(context: int, most: int) -> None:
    windows, periods = sine_windows(context)
    assert periods.max() == most and set(periods) <= set(PERIODS)
    assert len(periods) == len(windows) == PHASES + len(OTHER_PHASES) * (len(set(periods)) - 1)
    for window, period in enumerate(periods):
        values = np.concatenate([windows.context[window], windows.future[window]])
        np.testing.assert_allclose(values[period:], values[:-period], atol=1e-5)
        assert not any(np.allclose(values[lag:], values[:-lag], atol=1e-2) for lag in range(1, period))


def test_the_largest_error_is_that_of_the_period_that_a_forecaster_misses() -> None:
    def all_but_seven(windows: Windows) -> np.ndarray:
        missed = [name.startswith("period-7-") for name in windows.series]
        return np.where(np.array(missed)[:, None], 0.25 * windows.future, 0.9 * windows.future)

    found = sine_errors(_FixedForecaster(all_but_seven), **SINES)
    assert found == {
        "sine_error": pytest.approx(0.1, abs=1e-5),
        "sine_error_max": pytest.approx(0.75, abs=1e-5),
        "sine_period_max": 7,
    }


@pytest.mark.parametrize(("answer", "error"), [
    (lambda windows: windows.future, 0.0),
    (lambda windows: 0 * windows.future, 1.0),
    (lambda windows: -windows.future, 2.0),
    (lambda windows: 0.75 * windows.future, 0.25),
    (lambda windows: windows.context[:, -PERIOD:][:, np.arange(HORIZON) % PERIOD], 0.0),  # seasonal naive
])  # fmt: skip
def test_the_error_is_relative_to_forecasting_zero(answer: Callable[[Windows], np.ndarray], error: float) -> None:
    assert sine_errors(_FixedForecaster(answer), **SINES)["sine_error"] == pytest.approx(error, abs=1e-5)


@pytest.mark.parametrize(("name", "low", "high"), [("chronos-bolt-nano", 0.9, 1.1), ("chronos-bolt-350k", 0.0, 0.15)])
def test_a_trained_model_continues_a_sine_and_the_smallest_does_not(name: str, low: float, high: float) -> None:
    folder = BOLTS[name] / name
    if not folder.is_dir():
        pytest.skip(f"{name}: TSFMSCOPE_WEIGHTS names no folder that holds it")
    model = registry.load("chronos-bolt", folder, options={})
    assert low < sine_errors(model, **SINES)["sine_error"] < high


def test_a_model_that_was_not_pretrained_here_has_its_sine_alone() -> None:
    skill = {"windows": 100, "context": 64, "samples": 4, "bootstrap": 200}
    spec = {"model": "theirs", "family": "f", "ref": "r", "recipe": None, "seed": 3, "skill": skill}
    (row,) = measure_skill(
        Job(Task("skill", 1, "unused:unused"), spec), None, _FixedForecaster(lambda windows: windows.future)
    ).rows
    identity = {"model": "theirs", "recipe": None, "seed": 3}
    assert row == identity | {"sine_error": 0.0, "sine_error_max": 0.0, "sine_period_max": 3}
