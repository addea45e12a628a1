"""Regrets and summaries of bench/choice.py on hand-worked losses."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from bench import choice
from bench.choice import RULES, Table, regrets, same_origin, summarize


def table(last: list[float], earlier: list[float]) -> Table:
    """Return two candidates with one series: losses of the last window and of the one before."""
    losses = np.full((2, 1, choice.ORIGINS), np.nan)
    losses[:, 0, 0], losses[:, 0, 1] = last, earlier
    return Table("guided", losses, np.ones((1, choice.ORIGINS)))


def test_the_regret_is_the_log_of_the_chosen_loss_over_the_least() -> None:
    row = regrets(table([2.0, 1.0], [1.0, 3.0]), np.array([0.0, -1.0]), RULES, windows=1, held_out=1).iloc[0]
    assert row["windows alone"] == pytest.approx(np.log(2))
    assert row["skill elsewhere alone"] == 0
    assert row["chance"] == pytest.approx(np.log(2) / 2)


def test_a_series_without_an_earlier_window_gives_no_regret() -> None:
    assert regrets(table([2.0, 1.0], [np.nan, np.nan]), np.zeros(2), RULES, windows=1, held_out=1).empty


def test_sets_of_the_same_origin_are_left_out_together() -> None:
    assert same_origin("weather_rain") == {"weather_solar", "weather_rain", "weather_sunshine"}
    assert same_origin("covid_deaths") == {"covid_deaths"}


def test_a_summary_counts_sets_below_equal_and_above() -> None:
    frame = pd.DataFrame({name: [0.1, 0.2] for name in RULES}, index=["a", "b"])
    frame["combine"] = [0.0, 0.3]
    rows = {row["rule"]: row for row in summarize(frame, pd.Series("guided", frame.index), windows=1)}
    assert rows["combine"]["ratio"] == pytest.approx(np.exp(0.15), abs=1e-3)
    assert [rows["combine"][f"{word} windows"] for word in ("below", "equal", "above")] == [1, 0, 1]
