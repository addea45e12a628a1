"""Inputs against the release's own path on real dates: gluonts' transforms and its lags.

The release's estimator chains AddTimeFeatures, AddObservedValuesIndicator and InstanceSplitter; its module then scales,
takes the lags of each step and appends log1p|loc|, log scale and the time features of the same step.
"""

from __future__ import annotations

import warnings
from datetime import datetime

import numpy as np
import pandas as pd
import pytest
from gluonts.time_feature import time_features_from_frequency_str
from gluonts.transform import AddObservedValuesIndicator, AddTimeFeatures, Chain, InstanceSplitter, TestSplitSampler

from tsfmscope.models.lag_llama import LAGS, LagLlama
from tsfmscope.series.files.sources import load_bundled
from tsfmscope.series.types import Series, Windows
from tsfmscope.series.windows import last_windows

TOKENS, HORIZON = 8, 4
PERIODS = {"MS": "M", "QS": "Q", "YS": "Y", "W": "W-SUN"}


def walks(freq: str, start: datetime) -> list[Series]:
    values = np.random.default_rng(0).normal(size=(3, 1200)).cumsum(axis=1).astype(np.float32)
    return [Series("walks", f"s{i}", one[i * 300 :], freq=freq, start=start) for i, one in enumerate(values)]


CASES = {
    "macrodata, QS": lambda: load_bundled("macrodata")[:3],
    "co2, W": lambda: [replace_missing(one) for one in load_bundled("co2")],
    "sunspots, YS": lambda: load_bundled("sunspots"),
    "elnino, MS": lambda: load_bundled("elnino"),
    "B": lambda: walks("B", datetime(1990, 1, 1)),
    "D": lambda: walks("D", datetime(1967, 2, 28)),
    "h": lambda: walks("h", datetime(2015, 12, 31, 7)),
    "30min": lambda: walks("30min", datetime(2012, 1, 1, 0, 30)),
    "5min": lambda: walks("5min", datetime(2012, 3, 1)),
    "s": lambda: walks("s", datetime(2012, 3, 1, 23, 59, 7)),
}


def replace_missing(one: Series) -> Series:
    values = np.nan_to_num(one.values, nan=float(np.nanmedian(one.values)))
    return Series(one.dataset, one.series, values, freq=one.freq, start=one.start)


def released_inputs(series: list[Series], windows: Windows) -> np.ndarray:
    """Inputs [W, T, 92] as the release makes them."""
    past = TOKENS + LAGS[-1]
    transform = Chain(
        [
            AddTimeFeatures("start", "target", "time_feat", time_features_from_frequency_str("s"), pred_length=HORIZON),
            AddObservedValuesIndicator("target", "observed_values"),
            InstanceSplitter(
                "target", "is_pad", "start", "forecast_start", TestSplitSampler(), past, HORIZON,
                time_series_fields=["time_feat", "observed_values"], dummy_value=0.0,
            ),
        ]
    )  # fmt: skip
    found = {one.series: one for one in series}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # periods of business days
        entries = [
            {"start": pd.Period(one.start, PERIODS.get(one.freq, one.freq)), "target": one.values[:origin]}
            for one, origin in zip((found[name] for name in windows.series), windows.origin, strict=True)
        ]
        made = list(transform(entries, is_train=False))
    inputs = []
    for entry in made:
        target, seen = entry["past_target"].astype(np.float64), entry["past_observed_values"] > 0
        known = np.sort(target[seen])
        loc, scale = known[(len(known) - 1) // 2], max(np.subtract(*np.quantile(known, [0.75, 0.25])), 1e-10)
        positions = LAGS[-1] + np.arange(TOKENS)
        lags = ((target - loc) / scale)[positions[:, None] - np.array(LAGS)]
        static = np.broadcast_to([np.log1p(abs(loc)), np.log(scale)], (TOKENS, 2))
        inputs.append(np.concatenate([lags, static, entry["past_time_feat"][LAGS[-1] :]], axis=1))
    return np.stack(inputs)


@pytest.mark.parametrize("case", CASES)
def test_inputs_are_those_of_the_release_on_real_dates(case: str) -> None:
    series = CASES[case]()
    windows, _ = last_windows(series, context=TOKENS + LAGS[-1], horizon=HORIZON)
    config = {"context_length": TOKENS, "n_layer": 1, "n_head": 1, "n_embd_per_head": 2}
    family = LagLlama.new(config, seed=1)
    tokens = family.tokenize(windows)
    expected = released_inputs(series, windows)
    np.testing.assert_array_equal(tokens.arrays["inputs"][..., -6:], expected[..., -6:])
    np.testing.assert_allclose(tokens.arrays["inputs"], expected, rtol=1e-5, atol=1e-5)
