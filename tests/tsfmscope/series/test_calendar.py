"""Dates and their features against gluonts, whose transforms are what the release of Lag-Llama reads dates with."""

from __future__ import annotations

import warnings
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from gluonts.time_feature import time_features_from_frequency_str
from gluonts.transform import AddTimeFeatures
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.planning.series_files import dataset_row, write_series
from tsfmscope.errors import DataError
from tsfmscope.forecasting.scores import score
from tsfmscope.series.calendar import (
    FEATURES,
    NOMINAL_FREQ,
    NOMINAL_START,
    TRAINING_FREQS,
    TRAINING_YEARS,
    calendar_features,
    gluonts_seasonality,
    random_clock,
    season_of,
    seasonality,
    start_of,
    step_dates,
    window_dates,
)
from tsfmscope.series.data_sets import DataSet
from tsfmscope.series.files.options import Reading
from tsfmscope.series.files.user_files import load_frame, load_own
from tsfmscope.series.synthetic.signals import with_noise
from tsfmscope.series.tables import series_table, table_series
from tsfmscope.series.types import Series, Windows
from tsfmscope.series.windows import last_windows

# gluonts' aliases of periods of those of ../shared/data and of the bundled series, and of others
PERIODS = {name: name for name in ("s", "10s", "min", "5min", "10min", "15min", "30min", "h", "6h", "D", "2D", "B")}
PERIODS |= {"H": "h", "T": "min", "1.5h": "90min", "W": "W-SUN", "W-THU": "W-THU", "2W": "2W-SUN"}
PERIODS |= {"MS": "M", "ME": "M", "M": "M", "3MS": "3M", "BMS": "M", "QS": "Q-DEC", "QE-NOV": "Q-NOV"}
PERIODS |= {"YS": "Y-DEC", "A": "Y-DEC"}
STARTS = [datetime(1996, 3, 18), datetime(2012, 2, 28, 23, 47, 51), datetime(1965, 7, 3, 1, 30), datetime(2000, 1, 1)]


def official(start: datetime, period: str, steps: int) -> np.ndarray:
    """Features [steps, 6] that the release's estimator computes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # periods of business days
        entry = {"start": pd.Period(start, period), "target": np.zeros(steps)}
        features = time_features_from_frequency_str("s")
        transform = AddTimeFeatures("start", "target", "time_feat", features, pred_length=0)
        found: np.ndarray = transform.map_transform(entry, is_train=True)["time_feat"].T
        return found


def ours(start: datetime, freq: str, first: int, steps: int) -> np.ndarray:
    dates = step_dates(np.array([start_of(start)]), freq, np.array([first]), steps)
    return calendar_features(dates)[0]


@pytest.mark.parametrize("start", STARTS, ids=str)
@pytest.mark.parametrize("freq", PERIODS)
def test_features_are_those_of_the_release_at_every_frequency(freq: str, start: datetime) -> None:
    expected = official(start, PERIODS[freq], 2100)
    got = ours(start, freq, 0, 2100)
    assert got.shape == (2100, FEATURES) and got.dtype == np.float32
    np.testing.assert_allclose(got, expected, atol=1e-7)
    np.testing.assert_array_equal(ours(start, freq, 1003, 500), got[1003:1503])  # from any index on
    assert np.ptp(got, axis=0).max() > 0.2 or freq in ("YS", "A")  # the last day of a year is always the 31st


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(PERIODS)), st.datetimes(datetime(1, 1, 8), datetime(9990, 1, 1)), st.integers(-5, 30))
def test_any_start_and_index_agree_with_a_period_of_pandas(freq: str, start: datetime, first: int) -> None:
    got = ours(start, freq, first, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        begin = pd.Period(start.replace(microsecond=start.microsecond // 1000 * 1000), PERIODS[freq])
        for index, features in enumerate(got, start=first):
            if index < 0:
                assert (features == 0).all()
                continue
            date = begin + index
            fields = [date.second / 59, date.minute / 59, date.hour / 23, date.dayofweek / 6]
            fields += [(date.day - 1) / 30, (date.dayofyear - 1) / 365]
            np.testing.assert_allclose(features, np.array(fields) - 0.5, atol=1e-6)


@pytest.mark.parametrize(
    ("freq", "start", "step", "expected"),
    [
        ("YS", datetime(1700, 1, 1), 308, "2008-12-31"),
        ("YS", datetime(2000, 1, 1), 100_000, "102000-12-31"),  # nanoseconds end in 2262
        ("MS", datetime(1600, 2, 1), 0, "1600-02-29"),
        ("QS", datetime(1800, 1, 1), 40_000, "11800-03-31"),
        ("W", datetime(1990, 6, 14), 1, "1990-06-24"),  # a Thursday: weeks end on Sundays
        ("W-THU", datetime(1990, 6, 14), 1, "1990-06-21"),
        ("B", datetime(1969, 12, 26), 1, "1969-12-29"),  # a Friday
        ("B", datetime(2000, 1, 1), 0, "2000-01-03"),  # a Saturday is read as the Monday after
        ("D", datetime(1, 1, 1), 3_000_000, "8214-09-22"),
        ("h", datetime(1969, 12, 31, 23, 59), 1, "1970-01-01"),
        ("ms", datetime(1969, 12, 31, 23, 59, 59, 999_000), 1, "1970-01-01"),
        ("ns", datetime(1600, 1, 1), 10**9, "1600-01-01T00:00:01"),
    ],
)
def test_dates_reach_before_1970_and_beyond_2262(freq: str, start: datetime, step: int, expected: str) -> None:
    found = step_dates(np.array([start_of(start)]), freq, np.array([step]), 1)
    assert found[0, 0] == np.datetime64(expected, "s")
    assert np.abs(calendar_features(found)).max() <= 0.5


@pytest.mark.parametrize("freq", ["SME", "bh", "WOM-3FRI", "C"])
def test_a_frequency_without_periods_has_no_dates_and_features_of_zero(freq: str) -> None:
    assert (ours(datetime(2000, 1, 1), freq, 0, 5) == 0).all()


@pytest.mark.parametrize("freq", ["999999999YS", "-999999999W", "999999999D", "0h", "-1MS"])
def test_a_hostile_frequency_ends_in_features_in_range(freq: str) -> None:
    assert np.abs(ours(datetime(9999, 12, 31), freq, 0, 1000)).max() <= 0.5


def test_an_unknown_frequency_is_named() -> None:
    with pytest.raises(DataError, match="freq: expected a pandas alias such as h, D, W, MS, got 'fortnight'"):
        ours(datetime(2000, 1, 1), "fortnight", 0, 1)


def test_a_series_without_start_or_frequency_has_the_nominal_date() -> None:
    got = step_dates(np.array([start_of(None)]), "", np.array([0]), 3)
    assert got[0].tolist() == [NOMINAL_START.astype("datetime64[s]") + day for day in range(0, 3 * 86_400, 86_400)]
    assert NOMINAL_FREQ == "D"


def test_windows_carry_the_start_of_their_series_and_dates_follow_from_the_origin() -> None:
    values = np.arange(40, dtype=np.float32)
    starts = [datetime(2020, 2, 28, 20), datetime(1969, 12, 31, 23), None]
    data = [Series("d", str(i), values[i * 5 :], freq="h", start=start) for i, start in enumerate(starts)]
    again = table_series(series_table(data))
    for series in (data, again):
        windows, _ = last_windows(series, context=36, horizon=4)
        dates = window_dates(windows, 36)
        assert np.isnat(dates).sum(axis=1).tolist() == [0, 5, 10]  # before the first value
        for row, (one, start) in enumerate(zip(data, starts, strict=True)):
            begin = NOMINAL_START if start is None else np.datetime64(start, "ms")
            expected = begin + np.arange(len(one.values)) * np.timedelta64(1, "h")
            np.testing.assert_array_equal(dates[row, row * 5 :], expected)
        np.testing.assert_array_equal(window_dates(windows, 6), dates[:, -10:])
        taken = windows.take([2, 0])
        assert taken.series == ["2", "0"] and np.array_equal(taken.context, windows.context[[2, 0]], equal_nan=True)
        np.testing.assert_array_equal(window_dates(taken, 36), dates[[2, 0]])
        np.testing.assert_array_equal(window_dates(windows.take(slice(1, 3)), 36), dates[1:])


def test_a_time_zone_is_left_out_of_a_start() -> None:
    local = datetime(2020, 1, 1, 8, tzinfo=timezone(timedelta(hours=2)))
    assert start_of(local) == np.datetime64("2020-01-01T08", "ms")


def test_random_clocks_are_plausible_and_follow_from_the_seed() -> None:
    drawn = [random_clock(rng) for rng in [np.random.default_rng(0)] for _ in range(300)]
    rng = np.random.default_rng(0)
    assert [random_clock(rng) for _ in range(300)] == drawn
    assert {clock.freq for clock in drawn} == set(TRAINING_FREQS)
    assert all(TRAINING_YEARS[0] <= clock.start < TRAINING_YEARS[1] for clock in drawn)
    assert len({clock.start for clock in drawn}) == 300


def test_noise_leaves_dates_as_they_are() -> None:
    data = [Series("d", "a", np.arange(60, dtype=np.float32), freq="W", start=datetime(2001, 5, 6))]
    windows, _ = last_windows(data, context=20, horizon=5)
    noisy = with_noise(windows, data, noise=0.1, seed=0)
    assert not np.array_equal(noisy.context, windows.context)
    np.testing.assert_array_equal(window_dates(noisy, 20), window_dates(windows, 20))


def test_windows_given_no_starts_have_nominal_dates() -> None:
    nothing = np.zeros((2, 4), dtype=np.float32)
    windows = Windows(nothing, nothing[:, :1], ["a", "b"], np.array([4, 2]), "d", "MS", 1)
    dates = window_dates(windows, 4)
    assert dates[0, 0] == np.datetime64("2000-01-31", "s")
    assert np.isnat(dates[1, :2]).all() and dates[1, 2] == dates[0, 0]


LONG = 10_000
# Frequency, season of long series, GluonTS's.
FREQUENCIES = [
    ("D", 7, 1), ("1D", 7, 1), ("2D", 1, 1), ("7D", 52, 1), ("14D", 26, 1), ("24h", 7, 1), ("1440min", 7, 1),
    ("B", 5, 5), ("C", 5, 1), ("W", 52, 1), ("W-SUN", 52, 1), ("W-MON", 52, 1), ("2W", 26, 1), ("4W-WED", 13, 1),
    ("3W", 1, 1), ("MS", 12, 12), ("ME", 12, 12), ("M", 12, 12), ("BMS", 12, 1), ("BME", 12, 1), ("QS", 4, 4),
    ("QS-OCT", 4, 4), ("QE-DEC", 4, 4), ("Q", 4, 4), ("BQS-JAN", 4, 1), ("2QS", 2, 2), ("YS", 1, 1), ("YE-JUN", 1, 1),
    ("h", 24, 24), ("H", 24, 24), ("2h", 12, 12), ("30min", 48, 48), ("30T", 48, 48), ("15min", 96, 96),
    ("5min", 288, 288), ("min", 1440, 1440), ("s", 3600, 3600), ("10s", 360, 360), ("ms", 1, 1), ("", 1, 1),
]  # fmt: skip


def daily_series(weeks: int) -> np.ndarray:
    """Ten times the day of the week, plus the number of the week."""
    return (10 * np.arange(7) + np.arange(weeks)[:, None]).reshape(-1).astype(np.float32)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("freq", "season", "of_gluonts"), FREQUENCIES)
def test_a_frequency_has_its_season_and_gluonts_s(freq: str, season: int, of_gluonts: int) -> None:
    assert (seasonality(freq, LONG), gluonts_seasonality(freq)) == (season, of_gluonts)


@pytest.mark.parametrize(
    ("freq", "steps", "season"),
    [("W", 104, 52), ("W", 103, 1), ("2W", 52, 26), ("2W", 51, 1), ("7D", 103, 1), ("D", 7, 7), ("D", 6, 1),
     ("h", 24, 24), ("h", 23, 1), ("s", 3599, 1), ("MS", 12, 12)],
)  # fmt: skip
def test_weeks_need_two_years_and_others_one_season(freq: str, steps: int, season: int) -> None:
    assert seasonality(freq, steps) == season


def test_the_season_of_a_data_set_is_that_of_its_median_length() -> None:
    lengths = [60, 110, 120]
    weekly = [Series("d", f"s{n}", np.arange(n, dtype=np.float32), freq="W") for n in lengths]
    assert season_of(weekly) == last_windows(weekly, context=64, horizon=8)[0].season == 52
    assert season_of(weekly[:2]) == 1
    assert season_of([replace(one, season=4) for one in weekly]) == 4
    assert season_of([]) == 1


@pytest.mark.parametrize("wrong", ["fortnight", "-1h", "-1D"])
@pytest.mark.parametrize("function", [lambda freq: seasonality(freq, 99), gluonts_seasonality])
def test_a_wrong_frequency_is_named(function: object, wrong: str) -> None:
    assert callable(function)
    with pytest.raises(DataError, match=rf"freq: expected .* got '{wrong}'"):
        function(wrong)


def test_mase_of_days_divides_by_the_change_over_a_week() -> None:
    """Each value is 1 above that of the week before, and 10 above that of the day before or 59 below it."""
    windows, _ = last_windows([Series("d", "a", daily_series(5), freq="D")], context=28, horizon=7, min_context=7)
    assert windows.season == 7
    scores = score(
        windows.future,
        np.repeat(windows.future[:, None] + 2, 3, axis=1),
        (0.1, 0.5, 0.9),
        context=windows.context,
        past=[daily_series(4)],
        season=windows.season,
        printed_season=gluonts_seasonality(windows.freq),
    ).row(0)
    assert (scores["season"], scores["seasonal_error"], scores["mase"]) == (7, 1, 2)
    assert scores["mase_gluonts"] == pytest.approx(2 / ((24 * 10 + 3 * 59) / 27))


def test_written_series_have_the_season_of_the_data_set_whichever_of_them_are_read(tmp_path: Path) -> None:
    weekly = [Series("d", f"s{n}", np.arange(n, dtype=np.float32), freq="W") for n in (60, 110, 120)]
    write_series(tmp_path, "d", weekly)
    read = table_series(pq.read_table(tmp_path / "series" / "d.parquet"))
    assert [season_of([one]) for one in read] == [52, 52, 52]
    assert dataset_row("d", DataSet(source="folder", file="d", horizon=8), read, 3)["season"] == 52


@pytest.mark.parametrize(("season", "expected"), [(None, 7), (14, 14)])
def test_a_user_states_the_season_of_own_series(tmp_path: Path, season: int | None, expected: int) -> None:
    frame = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=70), "y": daily_series(10)})
    frame.to_csv(tmp_path / "days.csv", index=False)
    rows = {"item_id": ["a"], "start": frame["ds"][:1], "freq": ["D"], "target": [daily_series(10)]}
    pd.DataFrame(rows).to_parquet(tmp_path / "days.parquet")
    reading = Reading(season=season)
    loaded = [load_own(tmp_path / name, name="d", reading=reading) for name in ("days.csv", "days.parquet")]
    for one in (*loaded, load_frame(frame, name="d", reading=reading)):
        assert season_of(one.series) == expected
