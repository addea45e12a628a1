"""Seasons by frequency and length, and what GluonTS's convention says of the same frequency."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from stages.planning.series_files import dataset_row, write_series
from tsfmscope.errors import DataError
from tsfmscope.forecasting.scores import score
from tsfmscope.series.data_sets import DataSet
from tsfmscope.series.files.columns import Columns
from tsfmscope.series.files.user_files import load_frame, load_own
from tsfmscope.series.seasons import gluonts_seasonality, season_of, seasonality
from tsfmscope.series.tables import table_series
from tsfmscope.series.types import Series
from tsfmscope.series.windows import last_windows

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
    columns = Columns(season=season)
    loaded = [load_own(tmp_path / name, name="d", columns=columns) for name in ("days.csv", "days.parquet")]
    for one in (*loaded, load_frame(frame, name="d", columns=columns)):
        assert season_of(one.series) == expected
