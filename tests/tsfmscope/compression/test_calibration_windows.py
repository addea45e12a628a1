"""Calibration windows: every data set has the same weight, and synthetic series need no data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tsfmscope.compression.calibration import calibration_tokens, calibration_windows
from tsfmscope.compression.options import Calibration
from tsfmscope.errors import DataError
from tsfmscope.series.tables import series_table
from tsfmscope.series.types import Series


def short_and_long() -> dict[str, Any]:
    """One data set with room for three windows, and one with room for many."""
    rng = np.random.default_rng(0)
    values = {"short": rng.normal(size=30), "long": rng.normal(size=400)}
    return {name: series_table([Series(name, name, row.astype(np.float32))]) for name, row in values.items()}


def test_every_data_set_has_the_same_number_of_windows(toys: dict[str, Any]) -> None:
    spec: dict[str, Any] = {"windows": 8, "context": 32, "horizon": 6, "held_out": 0.2, "seed": 0}
    spec |= {"datasets": ["short", "long"]}
    model, tables = toys["chronos-bolt"], short_and_long()
    assert [len(one) for one in calibration_windows(model, tables, Calibration(**spec))] == [3, 8]
    short, long = calibration_tokens(model, tables, Calibration(**spec))
    assert len(short) == len(long) == 8
    assert short.origin.tolist() == [*short.origin[:3], *short.origin[:3], *short.origin[:2]]


def test_synthetic_sets_follow_the_data_depend_on_the_seed_alone_and_need_no_data(toys: dict[str, Any]) -> None:
    spec: dict[str, Any] = {"windows": 16, "context": 32, "horizon": 6, "held_out": 0.2}
    model, tables = toys["chronos-bolt"], short_and_long()
    with_data = calibration_windows(model, tables, Calibration(**spec, datasets=["long"], seed=0, synthetic=2))
    without = [Calibration(**spec, datasets=[], seed=seed, synthetic=2) for seed in (0, 1)]
    alone, other = (calibration_windows(model, {}, options) for options in without)
    assert [one.dataset for one in with_data] == ["long", "synthetic", "synthetic"]
    for ours, theirs in zip(with_data[1:], alone, strict=True):
        assert np.array_equal(ours.context, theirs.context, equal_nan=True)
    assert not np.array_equal(alone[0].context, alone[1].context, equal_nan=True)
    assert not np.array_equal(alone[0].context, other[0].context, equal_nan=True)
    n_observed = alone[0].count_observed(32)
    assert n_observed.min() >= 16 and n_observed.max() == 32 and (n_observed < 32).sum() >= 4


def test_series_that_are_constant_before_the_last_fifth_do_not_calibrate(toys: dict[str, Any]) -> None:
    values = np.r_[np.ones(80), np.arange(20)].astype(np.float32)
    spec = Calibration(datasets=("flat",), windows=8, context=32, horizon=6, held_out=0.2, seed=0)
    tables = {"flat": series_table([Series("flat", "a", values)])}
    with pytest.raises(DataError, match=r"give no window before the last 20% .*: constant \(1 series\)"):
        calibration_windows(toys["chronos-bolt"], tables, spec)
