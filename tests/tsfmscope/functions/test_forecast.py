"""Forecasts of a table: real times, the numbers of the family's own package, series without a forecast, and files."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tsfmscope as ts
from tsfmscope.errors import ArgumentError, DataError
from tsfmscope.functions.forecast import ForecastResult
from tsfmscope.functions.load import as_forecaster
from tsfmscope.models.references import CHECKPOINTS
from tsfmscope.series.calendar import future_times

BOLT = "chronos-bolt-mini"
LEVELS = [f"0.{n}" for n in range(1, 10)]


def table(*lengths: int, freq: str = "D", start: str = "2024-01-01") -> pd.DataFrame:
    """Return a long table with one series per length, ids a, b, …"""
    parts = []
    for number, length in enumerate(lengths):
        times = pd.date_range(start, periods=length, freq=freq)
        values = 10 * (number + 1) + np.sin(np.arange(length) / 2)
        parts.append(pd.DataFrame({"item_id": "abcdefgh"[number], "timestamp": times, "target": values}))
    return pd.concat(parts, ignore_index=True)


@pytest.mark.parametrize(
    ("start", "freq", "expected"),
    [
        ("2024-01-30", "D", ["2024-02-02", "2024-02-03"]),
        ("2024-01-01", "W-MON", ["2024-01-22", "2024-01-29"]),
        ("2024-01-03", "W", ["2024-01-24", "2024-01-31"]),  # a Wednesday: the weekday of the series stays
        ("2024-01-31", "ME", ["2024-04-30", "2024-05-31"]),
        ("2024-01-01", "MS", ["2024-04-01", "2024-05-01"]),
        ("2024-01-15", "MS", ["2024-04-15", "2024-05-15"]),
        ("2024-01-01", "QS", ["2024-10-01", "2025-01-01"]),
        ("2020-02-29", "YS", ["2023-02-28", "2024-02-29"]),
        ("2024-01-04", "B", ["2024-01-09", "2024-01-10"]),
        ("2024-01-01 23:00", "h", ["2024-01-02 02:00", "2024-01-02 03:00"]),
        ("2024-01-01", "15min", ["2024-01-01 00:45", "2024-01-01 01:00"]),
        ("1705-01-01", "YS", ["1708-01-01", "1709-01-01"]),
    ],
)
def test_times_go_on_at_the_frequency(start: str, freq: str, expected: list[str]) -> None:
    times = future_times(datetime.fromisoformat(start), freq, 3, 2)
    assert [time.isoformat(" ") for time in times] == [pd.Timestamp(text).isoformat(" ") for text in expected]


@pytest.mark.parametrize(
    ("start", "freq", "steps", "expected"),
    [
        # The clocks go forward on 31 March 2024 at 2:00, and back on 27 October at 3:00.
        ("2024-03-31 00:00", "h", 1, ["2024-03-31 01:00:00+01:00", "2024-03-31 03:00:00+02:00"]),
        ("2024-10-27 01:00", "h", 1, ["2024-10-27 02:00:00+02:00", "2024-10-27 02:00:00+01:00"]),
        ("2024-03-29 08:00", "D", 1, ["2024-03-30 08:00:00+01:00", "2024-03-31 08:00:00+02:00"]),
    ],
)
def test_hours_are_equally_long_and_days_keep_their_time_of_day(
    start: str, freq: str, steps: int, expected: list[str]
) -> None:
    times = future_times(datetime.fromisoformat(start), freq, steps, 2, "Europe/Berlin")
    assert [str(time) for time in times] == expected


@pytest.mark.parametrize(
    ("form", "options", "expected"),
    [
        # The table ends on 30 March 2024 at 23:00; the clocks go forward in the third hour after it.
        ("%Y-%m-%d %H:%M", {"tz": "Europe/Berlin"}, ["00:00:00+0100", "01:00:00+0100", "03:00:00+0200"]),
        ("%Y-%m-%d %H:%M", {}, ["00:00:00", "01:00:00", "02:00:00"]),
        ("%Y-%m-%d %H:%M%z", {}, ["00:00:00+0100", "01:00:00+0100", "02:00:00+0100"]),
    ],
)
def test_times_of_a_file_go_on_in_its_zone(
    form: str, options: dict[str, str], expected: list[str], tmp_path: Path
) -> None:
    times = pd.date_range("2024-03-28", "2024-03-30 23:00", freq="h", tz="Europe/Berlin")
    values = np.sin(np.arange(len(times)) / 4)
    pd.DataFrame({"timestamp": times.strftime(form), "y": values}).to_csv(tmp_path / "a.csv", index=False)
    ts.forecast(BOLT, tmp_path / "a.csv", horizon=3, **options).save(tmp_path / "f.csv")
    written = pd.read_csv(tmp_path / "f.csv", dtype=str)["timestamp"].tolist()
    assert written == [f"2024-03-31 {text}" for text in expected]


def test_weekly_series_of_one_table_keep_their_own_weekday() -> None:
    frame = pd.concat([table(60, freq=f"W-{day}").assign(item_id=day) for day in ("MON", "SUN")])
    times = ts.forecast(BOLT, frame, horizon=2).frame.groupby("item_id")["timestamp"]
    assert {day: {time.day_name() for time in own} for day, own in times} == {"MON": {"Monday"}, "SUN": {"Sunday"}}


def test_a_forecast_is_that_of_the_package() -> None:
    from chronos import BaseChronosPipeline

    frame = table(200, 90)
    ours = ts.forecast(BOLT, frame, horizon=24).frame
    assert list(ours) == ["item_id", "timestamp", "mean", *LEVELS]
    pipeline = BaseChronosPipeline.from_pretrained(CHECKPOINTS / BOLT)
    theirs = pipeline.predict_df(frame, prediction_length=24, quantile_levels=[float(level) for level in LEVELS])
    assert ours["item_id"].tolist() == theirs["item_id"].tolist()
    assert ours["timestamp"].tolist() == theirs["timestamp"].tolist()
    np.testing.assert_allclose(ours[LEVELS], theirs[LEVELS], rtol=1e-5)
    np.testing.assert_array_equal(ours["mean"], ours["0.5"])


def test_a_series_has_the_same_forecast_alone_and_with_others() -> None:
    alone = ts.forecast(BOLT, table(60), horizon=5).frame
    together = ts.forecast(BOLT, table(60, 300, 20), horizon=5).frame
    np.testing.assert_allclose(together[together["item_id"] == "a"][LEVELS], alone[LEVELS], rtol=1e-5)


def test_short_series_are_listed_and_constant_ones_have_a_forecast() -> None:
    frame = pd.concat([table(40, 2), table(40).assign(item_id="flat", target=7.0)])
    frame.loc[frame["item_id"] == "b", "target"] = [1.0, np.nan]
    result = ts.forecast(BOLT, frame, horizon=4)
    assert set(result.frame["item_id"]) == {"a", "flat"}
    assert [(skip.series, skip.reason) for skip in result.skipped] == [
        ("b", "under 3 observed values in the last 40 steps")
    ]
    flat = result.frame[result.frame["item_id"] == "flat"]
    np.testing.assert_allclose(flat["mean"], 7.0, rtol=1e-6)


def test_series_without_times_have_numbered_steps(caplog: pytest.LogCaptureFixture) -> None:
    result = ts.forecast(BOLT, [np.arange(30.0), np.arange(50.0)], horizon=2)
    assert result.frame["timestamp"].tolist() == [30, 31, 50, 51]
    assert "steps are numbered from 0" in caplog.text


@pytest.mark.parametrize("horizon", [1, 200])
def test_any_horizon_has_finite_and_ascending_quantiles(horizon: int) -> None:
    result = ts.forecast(BOLT, table(64, 17), horizon=horizon)
    values = result.frame[LEVELS].to_numpy()
    assert len(values) == 2 * horizon and np.isfinite(values).all() and (np.diff(values, axis=1) >= 0).all()


@pytest.mark.parametrize(
    ("model", "data", "options", "kind", "message"),
    [
        ("vit-nano", [np.arange(40.0)], {}, ArgumentError, "reads image and does not forecast; name a model of time"),
        (BOLT, [np.array([1.0])], {}, DataError, "no series can be forecast: 1 series: under 3 observed values"),
        (BOLT, [np.full(40, np.nan)], {}, DataError, "no usable series"),
        (BOLT, pd.DataFrame({"y": []}), {}, DataError, "no usable series"),
        (BOLT, [np.arange(40.0)], {"horizon": 0}, ArgumentError, "horizon: got 0"),
        (BOLT, "english", {}, ArgumentError, "text data, expected time series"),
    ],
)
def test_bad_input_is_one_line(
    model: str, data: Any, options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message) as caught:
        ts.forecast(model, data, **options)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def result() -> ForecastResult:
    return ts.forecast(BOLT, table(60, 45), horizon=3)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".png", ".svg", ".pdf"])
def test_files_are_written_whole_or_not_at_all(suffix: str, result: ForecastResult, tmp_path: Path) -> None:
    path = result.save(tmp_path / "new" / f"f{suffix}")
    if suffix in (".csv", ".parquet"):
        read = pd.read_csv(path, parse_dates=["timestamp"]) if suffix == ".csv" else pd.read_parquet(path)
        pd.testing.assert_frame_equal(read, result.frame, check_dtype=False)
    else:
        assert path.stat().st_size > 5_000
    with pytest.raises(ValueError, match=r"expected a name that ends in \.csv"):
        result.save(tmp_path / "f.xls")
    assert sorted(file.name for file in tmp_path.rglob("*.*")) == [path.name]


def test_dates_in_a_csv_file_have_no_time_of_day_unless_a_step_has_one(result: ForecastResult, tmp_path: Path) -> None:
    assert '"2024-03-01"' in result.save(tmp_path / "days.csv").read_text()
    hours = ts.forecast(BOLT, table(40, freq="h"), horizon=2).save(tmp_path / "hours.csv").read_text()
    assert '"2024-01-02 16:00:00"' in hours


def test_an_onnx_model_forecasts_the_same_without_torch(tmp_path: Path) -> None:
    frame = table(100, 80)
    frame.to_csv(tmp_path / "data.csv", index=False)
    ts.export(BOLT, tmp_path / "onnx", onnx=True, context=128, horizon=8)
    loaded = as_forecaster(tmp_path / "onnx")
    assert loaded.max_context == 128 and loaded.license.name == "apache-2.0" and loaded.n_bytes > 1_000_000
    code = (
        "import sys; sys.modules['torch'] = None; import tsfmscope as ts\n"
        f"ts.forecast({str(tmp_path / 'onnx')!r}, {str(tmp_path / 'data.csv')!r}, horizon=8)"
        f".save({str(tmp_path / 'f.parquet')!r})"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    ours = ts.forecast(BOLT, frame, horizon=8, context=128).frame
    np.testing.assert_allclose(pd.read_parquet(tmp_path / "f.parquet")[LEVELS], ours[LEVELS], rtol=1e-5)
    with pytest.raises(ArgumentError, match="is an ONNX model, which has its own"):
        as_forecaster(tmp_path / "onnx", device="cuda:0")


def test_the_picture_has_one_panel_per_series_up_to_six(tmp_path: Path) -> None:
    few, many = (ts.forecast(BOLT, table(*lengths), horizon=3).plot() for lengths in ((40, 50), (40,) * 8))
    assert [len(chart.to_dict()["concat"]) for chart in (few, many)] == [2, 6]
