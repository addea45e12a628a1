"""The two naive forecasts, by hand and against gluonts."""

from __future__ import annotations

import numpy as np
import pytest

from tsfmscope.forecasting.baselines import context_median, seasonal_naive
from tsfmscope.series.types import Windows

NAN = np.nan


def _windows(context: list[list[float]], *, horizon: int = 5, season: int = 3) -> Windows:
    rows = np.array(context, dtype=np.float32)
    future = np.zeros((len(rows), horizon), dtype=np.float32)
    origin = np.full(len(rows), rows.shape[1], dtype=np.int64)
    return Windows(rows, future, [str(i) for i in range(len(rows))], origin, "made-up", "D", season)


@pytest.mark.parametrize(("context", "expected"), [
    ([1, 2, 3, 4, 5, 6], [4, 5, 6, 4, 5]),
    ([9, 1, 2, 3, NAN, 5], [3, 1, 5, 3, 1]),
    ([NAN, NAN, NAN, NAN, 7, 8], [8, 7, 8, 8, 7]),
    ([NAN, NAN, NAN, NAN, NAN, NAN], [0, 0, 0, 0, 0]),
    ([NAN, NAN, NAN, NAN, NAN, 2], [2, 2, 2, 2, 2]),
    ([5, 6], [6, 5, 6, 6, 5]),
])  # fmt: skip
def test_seasonal_naive_repeats_the_last_observed_season(context: list[float], expected: list[float]) -> None:
    forecast = seasonal_naive(_windows([context]), 2)
    np.testing.assert_array_equal(forecast, [[expected, expected]])


def test_seasonal_naive_is_that_of_gluonts() -> None:
    import pandas as pd
    from gluonts.model.seasonal_naive import SeasonalNaivePredictor

    rng = np.random.default_rng(0)
    context = rng.standard_normal((4, 20)).astype(np.float32)
    predictor = SeasonalNaivePredictor(prediction_length=11, season_length=7)
    start = pd.Period("2020-01-01", freq="D")
    theirs = [f.samples[0] for f in predictor.predict([{"start": start, "target": row} for row in context])]
    ours = seasonal_naive(_windows(context.tolist(), horizon=11, season=7), 1)
    np.testing.assert_allclose(ours[:, 0], np.array(theirs), rtol=1e-7)


@pytest.mark.parametrize(
    ("context", "expected"), [([1, 9, 2], 2.0), ([NAN, 4, 6], 5.0), ([NAN, NAN, NAN], 0.0), ([7, 7, 7], 7.0)]
)
def test_the_context_median_is_flat_at_every_level(context: list[float], expected: float) -> None:
    forecast = context_median(_windows([context], horizon=4), 3)
    assert forecast.shape == (1, 3, 4)
    np.testing.assert_array_equal(forecast, np.full((1, 3, 4), expected))


def test_a_season_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="season: got 0, expected at least 1 step"):
        seasonal_naive(_windows([[1, 2, 3]], season=0), 1)
