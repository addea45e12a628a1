"""Local baselines: by hand, against statsforecast's own face, without a forecast, and as rows of the store."""

from __future__ import annotations

from typing import Any, cast, get_args

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from stages.config.blocks import Baseline
from tasks.forecasts import ScoreSpec, evaluate_locally, forecast_rows, load_baseline
from tasks.job import Job, Task
from tsfmscope.forecasting.baselines import LONGEST_FIT, METHODS, quantiles
from tsfmscope.models.base import Forecaster
from tsfmscope.series.tables import series_table, table_series
from tsfmscope.series.types import Series

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
TASK = Task("baseline", 1, "tasks.forecasts:evaluate_locally", table="forecasts")
SPEC = {
    "base_model": None, "size_parameter": None, "size_rule": None, "dataset": "made-up", "condition": "c",
    "context": 40, "noise": 0.0,
    "horizon": 6, "min_context": 8, "held_out": None, "seed": 3, "levels": list(LEVELS), "samples": 20, "batch": 2,
    "keep_quantiles": False,
}  # fmt: skip
NAN = np.nan


def _walk(steps: int = 40, seed: int = 0) -> np.ndarray:
    season = 3 * np.sin(2 * np.pi * np.arange(steps) / 4)
    return 20 + season + np.random.default_rng(seed).standard_normal(steps).cumsum()


def test_every_baseline_is_known_by_one_name_to_params_code_and_sql(tmp_path: Any) -> None:
    import store
    from store import catalogue

    catalogue.build(tmp_path / "results.duckdb", {})
    with store.open(tmp_path / "results.duckdb") as connection:
        named = {model for (model,) in connection.sql("select model from baselines").fetchall()}
    assert set(METHODS) == set(get_args(Baseline)) == named


def test_seasonal_naive_repeats_the_last_season_and_widens_by_the_root_of_the_seasons() -> None:
    context, horizon = _walk(), 10
    found = quantiles("seasonal-naive", context, horizon, LEVELS, 4)
    residuals = context[4:] - context[:-4]
    sigma = np.sqrt((residuals**2).sum() / len(residuals))
    steps = np.arange(horizon)
    spread = sigma * np.sqrt(steps // 4 + 1)
    for level, row in zip(LEVELS, found, strict=True):
        np.testing.assert_allclose(row, context[-4:][steps % 4] + norm.ppf(level) * spread, rtol=1e-6)


@pytest.mark.parametrize("name", ["auto-ets", "auto-theta", "auto-arima"])
def test_quantiles_are_the_ends_of_the_packages_own_intervals(name: str) -> None:
    from statsforecast import StatsForecast
    from statsforecast import models as package

    kinds = {"auto-ets": package.AutoETS, "auto-theta": package.AutoTheta, "auto-arima": package.AutoARIMA}
    model = kinds[name](season_length=4)
    context = _walk(seed=1)
    frame = pd.DataFrame({"unique_id": "a", "ds": np.arange(len(context)), "y": context})
    theirs = StatsForecast([model], freq=1).forecast(df=frame, h=6, level=[20, 80])
    found = dict(zip(LEVELS, quantiles(name, context, 6, LEVELS, 4), strict=True))
    point = type(model).__name__
    columns = {0.1: f"{point}-lo-80", 0.4: f"{point}-lo-20", 0.6: f"{point}-hi-20", 0.9: f"{point}-hi-80"}
    for level, column in columns.items():
        np.testing.assert_allclose(found[level], theirs[column], rtol=1e-5, err_msg=column)
    np.testing.assert_allclose(found[0.5], theirs[point], rtol=0.02)  # the mean, where sampled ends do not pass it


@pytest.mark.parametrize("name", sorted(METHODS))
def test_quantiles_ascend_and_two_runs_are_equal_bit_for_bit(name: str) -> None:
    found = quantiles(name, _walk(seed=2), 6, LEVELS, 4)
    assert (np.diff(found, axis=0) >= 0).all()
    assert found.tobytes() == quantiles(name, _walk(seed=2), 6, LEVELS, 4).tobytes()


@pytest.mark.parametrize(
    ("missing", "whole"),
    [
        ([NAN, NAN, 1, 4, 2, 8, 5, 7], [1, 4, 2, 8, 5, 7]),
        ([1, 4, NAN, NAN, 7, 5, 9, 4], [1, 4, 5, 6, 7, 5, 9, 4]),
        ([1, 4, 2, 8, 5, 7, NAN, NAN], [1, 4, 2, 8, 5, 7, 7, 7]),
    ],
    ids=["before", "between", "at the end"],
)
def test_missing_steps_are_cut_off_or_filled_in(missing: list[float], whole: list[float]) -> None:
    found, expected = (quantiles("seasonal-naive", np.array(one), 5, LEVELS, 2) for one in (missing, whole))
    np.testing.assert_array_equal(found, expected)


def test_a_long_context_is_fitted_on_its_last_steps() -> None:
    context = np.random.default_rng(0).normal(size=2 * LONGEST_FIT).cumsum()
    whole, last = (quantiles("auto-theta", steps, 6, LEVELS, 12) for steps in (context, context[-LONGEST_FIT:]))
    np.testing.assert_array_equal(whole, last)


@pytest.mark.parametrize(("season", "used"), [(4, 4), (5, 1), (48, 1)])
def test_a_season_that_the_context_holds_less_than_twice_is_none(season: int, used: int) -> None:
    context = np.array([3.0, 1, 4, 1, 5, 9, 2, 6])
    np.testing.assert_array_equal(
        quantiles("seasonal-naive", context, 6, LEVELS, season), quantiles("seasonal-naive", context, 6, LEVELS, used)
    )


@pytest.mark.parametrize("context", [[5.0] * 20, [NAN] * 20, [NAN] * 19 + [3.0], [NAN, 2, NAN, 2, 2]])
@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_constant_context_is_not_forecast(name: str, context: list[float]) -> None:
    with pytest.raises(ValueError, match="the context is constant"):
        quantiles(name, np.array(context), 3, LEVELS, 1)


def test_an_unknown_baseline_is_named_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="got 'arima', expected one of seasonal-naive, auto-ets"):
        quantiles("arima", _walk(), 3, LEVELS, 1)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.01, 100), st.floats(-1000, 1000), st.integers(0, 99))
def test_the_units_of_the_data_do_not_matter(scale: float, shift: float, seed: int) -> None:
    context = _walk(24, seed)
    one, other = (quantiles("seasonal-naive", c, 5, LEVELS, 4) for c in (context, scale * context + shift))
    np.testing.assert_allclose(other, scale * one + shift, rtol=1e-5, atol=1e-4 * (scale + abs(shift)))


def _data() -> pa.Table:
    made = [Series("made-up", f"s{n}", _walk(50 + n, n).astype(np.float32), freq="QS") for n in range(4)]
    made[1] = Series("made-up", "s1", np.r_[np.full(44, 2.0), np.arange(6)].astype(np.float32), freq="QS")
    made[2] = Series("made-up", "s2", np.ones(10, dtype=np.float32), freq="QS")
    return series_table(made)


def _rows(name: str, **change: Any) -> list[dict[str, Any]]:
    job = Job(TASK, {**SPEC, "model": name, **change})
    return [dict(row) for row in evaluate_locally(job, _data(), load_baseline(job)).rows]


def test_rows_are_those_of_the_store_and_a_series_without_a_forecast_says_why() -> None:
    from store.schema import TABLES

    columns = {column.name: column for column in TABLES["forecasts"].columns if column.name != "job_key"}
    rows = _rows("auto-ets", keep_quantiles=True)
    assert [row["series"] for row in rows] == ["s0", "s1", "s2", "s3"]
    for row in rows:
        assert set(row) == set(columns)
        assert [name for name in row if row[name] is None and not columns[name].nullable] == []
        pa.array([row], pa.struct([(name, column.type) for name, column in columns.items()]))
    reasons = [row["reason"] for row in rows]
    assert reasons[1] == "not forecast: auto-ets: the context is constant"
    assert reasons[2].startswith("not forecast: too short")
    assert (reasons[0], reasons[3]) == (None, None)
    for row in rows[1:3]:
        assert {row[name] for name in ("nmse", "wql_window", "mase", "quantiles")} == {None}
        assert row["quantile_loss"] == row["target_abs"] == 0
    assert (rows[1]["origin"], rows[1]["n_context"], rows[1]["n_future"]) == (44, 40, 6)
    assert all(row["samples"] is None for row in rows)


def test_what_a_fit_raises_concerns_its_own_series_alone() -> None:
    """AutoETS raises NotImplementedError for five steps."""
    short = Series("made-up", "short", np.array([1, 2, 1, 3, 5, 0, 0, 0, 0, 0, 0], dtype=np.float32), freq="QS")
    data = series_table([short, Series("made-up", "long", _walk(50).astype(np.float32), freq="QS")])
    job = Job(TASK, {**SPEC, "model": "auto-ets", "min_context": 4})
    first, last = evaluate_locally(job, data, load_baseline(job)).rows
    assert first["reason"] == "not forecast: auto-ets: tiny datasets" and first["wql_window"] is None
    assert last["reason"] is None and last["wql_window"] > 0


def test_baselines_and_models_are_scored_on_the_same_windows() -> None:
    """seasonal naive by this project's own code, through the entry that models take."""
    from tsfmscope.forecasting.baselines import seasonal_naive
    from tsfmscope.models.types import Forecast

    class Naive:
        direct_quantiles = True

        def with_condition(self, context: int, history: int) -> tuple[Any, int]:
            return self, context

        def forecast(self, windows: Any, *, levels: Any, samples: int, seeds: Any) -> Forecast:
            return Forecast(seasonal_naive(windows, len(levels)).astype(np.float32), tuple(levels))

    spec = ScoreSpec.model_validate({**SPEC, "model": "seasonal-naive"})
    rows = forecast_rows(spec, table_series(_data()), cast("Forecaster", Naive()), key="k")
    ours = {row["series"]: row for row in rows}
    for row in _rows("seasonal-naive"):
        same = ("origin", "n_context", "n_future")
        if row["reason"] is None:
            same += ("nmse", "mase", "seasonal_error", "target_abs", "nmse_denominator")
            assert row["wql_window"] != ours[row["series"]]["wql_window"]  # theirs has intervals
        for name in same:
            assert row[name] == pytest.approx(ours[row["series"]][name], rel=1e-5), name
