"""Error of a median forecast on clean sines, relative to forecasting zero; every model should continue them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from tsfmscope.forecasting.skill import sample_seed
from tsfmscope.series.types import Series, Windows
from tsfmscope.series.windows import last_windows

if TYPE_CHECKING:
    from tsfmscope.models.base import Forecaster

# Steps: a day of hours, which most corpora of time series contain.
PERIOD = 24
# Steps of all sines, up to a week of hours.
PERIODS = (3, 6, 7, 12, 24, 30, 48, 60, 96, 120, 144, 168)
# Number of windows with PERIOD, with evenly spaced phases.
PHASES = 8
# Phases of the other periods, as shares of a period. A window half a period later would be the same, negated.
OTHER_PHASES = (0.0, 0.25)
# A context holds at least this number of the other periods.
FEWEST_CYCLES = 2
HORIZON = 64
MEDIAN = 0.5


def sine_windows(context: int) -> tuple[Windows, np.ndarray]:
    """Return windows of noiseless sines of amplitude 1 and mean 0, and the period of each window.

    The first windows have PERIOD, with PHASES phases. The others have those of PERIODS that a context holds
    FEWEST_CYCLES times. All windows are declared as hourly with season PERIOD, so a model must find another
    period in the context.
    """
    sines = [(PERIOD, phase / PHASES) for phase in range(PHASES)]
    others = [period for period in PERIODS if period != PERIOD and FEWEST_CYCLES * period <= context]
    sines += [(period, phase) for period in others for phase in OTHER_PHASES]
    steps = np.arange(context + HORIZON)
    series = [
        Series(
            "sine",
            f"period-{period}-phase-{phase:g}",
            np.sin(2 * np.pi * (steps / period + phase)).astype(np.float32),
            freq="h",
            start=datetime(2024, 1, 1),
            season=PERIOD,
        )
        for period, phase in sines
    ]
    windows, _ = last_windows(series, context=context, horizon=HORIZON)
    return windows, np.array([period for period, _ in sines])


def sine_errors(model: Forecaster, *, context: int, samples: int, seed: int) -> dict[str, Any]:
    """Return `sine_error`, with PERIOD, and `sine_error_max` with `sine_period_max`, its period: columns of `skill`.

    The error of a period is the absolute error of the median over the error of forecasting 0, both summed over the
    windows of `sine_windows`. 0 is an exact forecast; 1 is no better than forecasting 0.
    """
    windows, periods = sine_windows(context)
    seeds = [sample_seed(seed, window) for window in range(len(windows))]
    median = model.forecast(windows, levels=[MEDIAN], samples=samples, seeds=seeds).values[:, 0]
    future = windows.future.astype(np.float64)
    errors, sizes = np.abs(future - median).sum(axis=1), np.abs(future).sum(axis=1)
    by_period = {
        int(period): float(errors[periods == period].sum() / sizes[periods == period].sum())
        for period in np.unique(periods)
    }
    worst = max(by_period, key=lambda period: by_period[period])
    return {"sine_error": by_period[PERIOD], "sine_error_max": by_period[worst], "sine_period_max": worst}
