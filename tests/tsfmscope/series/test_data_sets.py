"""Series from whatever a user holds in memory: masked arrays, tensors, lists and dicts of arrays; levels stay exact."""

from __future__ import annotations

import logging
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import tsfmscope as ts
from tsfmscope.errors import ArgumentError, DataError
from tsfmscope.series.data_sets import usable_series

STEPS = np.arange(64)
VALUES = np.sin(STEPS) + STEPS % 5
DAYS = pd.date_range("2024-01-01", periods=64)
MASK = STEPS % 9 == 3
HOLED = np.where(MASK, np.nan, VALUES)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (np.ma.masked_array(np.where(MASK, -9999, VALUES), MASK), {"series-0": HOLED}),
        (np.ma.masked_array(np.where(MASK, -9999, STEPS), MASK), {"series-0": np.where(MASK, np.nan, STEPS)}),
        ([np.ma.masked_array(VALUES, MASK), VALUES[:40]], {"series-0": HOLED, "series-1": VALUES[:40]}),
        ([VALUES, VALUES[:40].tolist()], {"series-0": VALUES, "series-1": VALUES[:40]}),
        ([Decimal(int(step)) if step else None for step in STEPS], {"series-0": np.where(STEPS, STEPS, np.nan)}),
        ([[*VALUES[:40], None]], {"series-0": [*VALUES[:40], np.nan]}),
        (pa.table({"day": DAYS[::-1], "y": VALUES[::-1]}), {"y": VALUES}),
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
    series = usable_series(data, max_series=None, seed=0).loaded.series
    assert [item.series for item in series] == [*expected]
    for item in series:
        np.testing.assert_array_equal(item.values, expected[item.series])


def test_one_line_states_what_was_read(caplog: pytest.LogCaptureFixture) -> None:
    days = pd.DataFrame({"y": VALUES, "z": VALUES}, index=pd.date_range("2024-01-01", periods=64, freq="h"))
    irregular = days.set_index(days.index[:1].append(days.index[1:] + pd.to_timedelta(STEPS[1:] ** 3, unit="s")))
    for data in (days, irregular, VALUES):
        usable_series(data, max_series=None, seed=0)
    usable_series(np.stack([VALUES, VALUES]), max_series=1, seed=0)
    spaced = ": steps are taken as equally spaced, season 1; else set --freq"
    columns = "DataFrame: times from 'timestamp', a series from each of 2 of 3 columns ('y', 'z')"
    lines = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert [line for line in lines if line != columns] == [
        "data: 2 series, frequency h, season 24, from 2024-01-01 00:00",
        f"data: 2 series from 2024-01-01 00:00, no regular frequency{spaced}",
        f"data: 1 series of 64 steps, no times{spaced}",
        f"data: 1 of 2 series (a seeded sample), no times{spaced}",
    ]
    assert lines.count(columns) == 2


def test_a_file_is_named_as_the_user_names_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "shop.2024.csv"
    pd.DataFrame({"y": VALUES}).to_csv(path, index=False)
    usable_series(path, max_series=None, seed=0, takes_any=True)
    note = f"{path}: 1 series of 64 steps, no times: steps are taken as equally spaced, season 1; else set --freq"
    assert [record.message for record in caplog.records].count(note) == 1


@pytest.mark.parametrize("name", ["no.csv", "~nosuch/x", "x" * 300, "a\0b"])
def test_a_file_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(ArgumentError, match="which is no file, no folder and no data set"):
        usable_series(name, max_series=None, seed=0)


@pytest.mark.parametrize("kind", [list, dict])
def test_series_in_a_list_or_dict_keep_their_times(kind: type) -> None:
    hours = pd.date_range("2024-01-02", periods=64, freq="h")
    items = {"b": pd.Series(VALUES, hours), "a": pd.Series(VALUES[:40], hours[:40] - pd.Timedelta(hours=24))[::-1]}
    data = items if kind is dict else list(items.values())
    first, second = usable_series(data, max_series=None, seed=0).loaded.series
    assert (first.series, second.series) == (("b", "a") if kind is dict else ("series-0", "series-1"))
    assert (first.freq, first.start, second.start) == ("h", hours[0], hours[0] - pd.Timedelta(hours=24))
    np.testing.assert_array_equal(second.values, VALUES[:40])


@pytest.mark.parametrize("data", [{1, 2}, None, ["1", "2"], [1j] * 40, [{"values": VALUES}]])
def test_other_data_are_refused_in_one_line(data: Any) -> None:
    with pytest.raises(DataError, match=r"data: expected a DataFrame, a Series, .* no array of real numbers") as error:
        usable_series(data, max_series=None, seed=0)
    assert len(str(error.value)) < 250


@pytest.mark.parametrize("family", ["chronos-bolt", "chronos-2", "moirai", "timesfm"])
def test_an_embedding_does_not_depend_on_a_large_level(family: str) -> None:
    model = ts.load(f"{family}-mini")
    # Whole numbers of 1/64 are exact next to the level.
    values = np.round(640 * np.sin(STEPS / 3)) / 64
    plain, raised = (ts.embed(model, data, context=64).to_numpy() for data in (values, values + 1e9))
    assert np.abs(plain - raised).max() <= 1e-5 * np.abs(plain).max()


def test_a_forecast_follows_a_large_level() -> None:
    from tsfmscope.series.types import Series
    from tsfmscope.series.windows import last_windows

    values = np.round(640 * np.sin(STEPS / 3)) / 64
    for family in ("chronos-bolt", "chronos-2"):
        model = ts.load(f"{family}-mini").family
        medians = []
        for level in (0.0, 1e9):
            windows, _ = last_windows([Series("d", "s", values + level)], context=48, horizon=8)
            medians.append(model.forecast(windows, seeds=[0]).median - level)
        np.testing.assert_allclose(medians[1], medians[0], atol=1e-5)
