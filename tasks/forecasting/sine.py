"""Error of a median forecast on a clean sine, relative to forecasting zero; every model should continue it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np

from tsfmscope.tasks.forecasting.skill import sample_seed
from tsfmscope.tasks.series.types import Series, Windows
from tsfmscope.tasks.series.windows import last_windows

if TYPE_CHECKING:
    from tsfmscope.tasks.models.base import Forecaster

# Steps: a day of hours, which most corpora of time series contain.
PERIOD = 24
# Number of windows, with evenly spaced phases.
PHASES = 8
HORIZON = 64
MEDIAN = 0.5


def sine_windows(context: int) -> Windows:
    """Return windows of noiseless sines, one per phase: period PERIOD hourly steps, amplitude 1, mean 0."""
    steps = np.arange(context + HORIZON)
    starts = np.arange(PHASES) * PERIOD / PHASES
    series = [
        Series(
            "sine",
            f"phase-{start:g}",
            np.sin(2 * np.pi * (steps + start) / PERIOD).astype(np.float32),
            freq="h",
            start=datetime(2024, 1, 1),
            season=PERIOD,
        )
        for start in starts
    ]
    return last_windows(series, context=context, horizon=HORIZON)[0]


def sine_error(model: Forecaster, *, context: int, samples: int, seed: int) -> float:
    """Return the absolute error of the median on `sine_windows` over the error of forecasting 0.

    0 is an exact forecast; 1 is no better than forecasting 0.
    """
    windows = sine_windows(context)
    seeds = [sample_seed(seed, window) for window in range(len(windows))]
    median = model.forecast(windows, levels=[MEDIAN], samples=samples, seeds=seeds).values[:, 0]
    future = windows.future.astype(np.float64)
    return float(np.abs(future - median).sum() / np.abs(future).sum())
