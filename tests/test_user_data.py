"""Series from whatever a user holds in memory: masked arrays, tensors, lists and dicts of arrays; levels stay exact."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import tsfmscope as ts
from tsfmscope.stages.config.defaults import params_here
from tsfmscope.user_data import usable_series

STEPS = np.arange(64)
VALUES = np.sin(STEPS) + STEPS % 5
MASK = STEPS % 9 == 3
HOLED = np.where(MASK, np.nan, VALUES)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (np.ma.masked_array(np.where(MASK, -9999, VALUES), MASK), {"series-0": HOLED}),
        (np.ma.masked_array(np.where(MASK, -9999, STEPS), MASK), {"series-0": np.where(MASK, np.nan, STEPS)}),
        ([np.ma.masked_array(VALUES, MASK), VALUES[:40]], {"series-0": HOLED, "series-1": VALUES[:40]}),
        ([VALUES, VALUES[:40].tolist()], {"series-0": VALUES, "series-1": VALUES[:40]}),
        ({"a": VALUES, "b": VALUES[:40]}, {"a": VALUES, "b": VALUES[:40]}),
        (VALUES.tolist(), {"series-0": VALUES}),
        (torch.tensor(VALUES, requires_grad=True), {"series-0": VALUES}),
        ([torch.tensor(VALUES, requires_grad=True)], {"series-0": VALUES}),
        (torch.tensor(STEPS, dtype=torch.bfloat16), {"series-0": STEPS}),
        (VALUES + 1e12, {"series-0": VALUES + 1e12}),
        (pd.Series(VALUES + 1e12), {"value": VALUES + 1e12}),
        (pd.Series(VALUES).astype("float32"), {"value": VALUES.astype(np.float32)}),
    ],
)
def test_series_have_the_values_of_what_is_passed(data: Any, expected: dict[str, np.ndarray]) -> None:
    series = usable_series(params_here(), data, None, 0).loaded.series
    assert [item.series for item in series] == [*expected]
    for item in series:
        np.testing.assert_array_equal(item.values, expected[item.series])


def test_one_line_states_what_was_read(caplog: pytest.LogCaptureFixture) -> None:
    days = pd.DataFrame({"y": VALUES, "z": VALUES}, index=pd.date_range("2024-01-01", periods=64, freq="h"))
    irregular = days.set_index(days.index[:1].append(days.index[1:] + pd.to_timedelta(STEPS[1:] ** 3, unit="s")))
    for data in (days, irregular, VALUES):
        usable_series(params_here(), data, None, 0)
    assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == [
        "data: 2 series, frequency h, season 24, from 2024-01-01 00:00",
        "data: 2 series from 2024-01-01 00:00, no regular frequency: steps are taken as equally spaced, season 1",
        "data: 1 series of 64 steps, no times: steps are taken as equally spaced, season 1",
    ]


@pytest.mark.parametrize("family", ["chronos-bolt", "chronos-2", "moirai", "timesfm"])
@pytest.mark.parametrize("level", [1e8, 1e9])
def test_an_embedding_does_not_depend_on_a_large_level(family: str, level: float) -> None:
    model = ts.load(f"{family}-nano")
    # Whole numbers of 1/64 are exact next to both levels.
    values = np.round(640 * np.sin(STEPS / 3)) / 64
    plain, raised = (ts.embed(model, data, context=64).to_numpy() for data in (values, values + level))
    assert np.abs(plain - raised).max() <= 1e-5 * np.abs(plain).max()


def test_a_forecast_follows_a_large_level() -> None:
    from tsfmscope.tasks.series.types import Series
    from tsfmscope.tasks.series.windows import last_windows

    values = np.round(640 * np.sin(STEPS / 3)) / 64
    for family in ("chronos-bolt", "chronos-2"):
        model = ts.load(f"{family}-nano").family
        medians = []
        for level in (0.0, 1e9):
            windows, _ = last_windows([Series("d", "s", values + level)], context=48, horizon=8)
            medians.append(model.forecast(windows, seeds=[0]).median - level)
        np.testing.assert_allclose(medians[1], medians[0], atol=1e-5)
