"""The clean sine: its error of forecasts that are known, and of models that can and cannot continue a period."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tasks.checkpoints import measure_skill
from tasks.job import Job, Task
from tsfmscope.forecasting.skill import HORIZON, OTHER_PHASES, PERIOD, PERIODS, PHASES, sine_errors, sine_windows
from tsfmscope.models import registry
from tsfmscope.models.types import Forecast
from tsfmscope.series.types import Windows

ROOT = Path(__file__).parents[3]
ASKED = {"context": 500, "samples": 4, "seed": 0}
BOLTS = {
    "chronos-bolt-nano": ROOT / "tests" / "checkpoints",
    "chronos-bolt-350k": Path(os.environ.get("TSFMSCOPE_WEIGHTS", "")),
}


class _FixedForecaster:
    """A forecaster of a known answer, the same at every level."""

    def __init__(self, answer: Callable[[Windows], np.ndarray]) -> None:
        self.answer = answer

    def forecast(self, windows: Windows, *, levels: list[float], samples: int, seeds: list[int]) -> Forecast:
        return Forecast(np.repeat(self.answer(windows)[:, None], len(levels), axis=1), tuple(levels))


def test_windows_are_sines_of_one_period_and_of_all_phases() -> None:
    windows, periods = sine_windows(500)
    values = np.concatenate([windows.context, windows.future], axis=1).astype(float)[:PHASES]
    assert (periods[:PHASES] == PERIOD).all()
    assert values.shape == (PHASES, 500 + HORIZON) and windows.season == PERIOD
    np.testing.assert_allclose(values[:, PERIOD:], values[:, :-PERIOD], atol=1e-6)
    np.testing.assert_allclose(values[:, : PERIOD // 2], -values[:, PERIOD // 2 : PERIOD], atol=1e-6)
    power = np.abs(np.fft.rfft(values[:, : 20 * PERIOD])) ** 2
    assert (power.argmax(axis=1) == 20).all() and (power[:, 20] / power.sum(axis=1) > 1 - 1e-9).all()
    assert len({round(float(one[0] + 10 * one[1]), 4) for one in values}) == PHASES


@pytest.mark.parametrize(("context", "most"), [(512, 168), (336, 168), (335, 144), (64, 30), (16, PERIOD)])
def test_every_window_has_its_period_and_the_context_holds_the_others_twice(context: int, most: int) -> None:
    windows, periods = sine_windows(context)
    assert periods.max() == most and set(periods) <= set(PERIODS)
    assert len(periods) == len(windows) == PHASES + len(OTHER_PHASES) * (len(set(periods)) - 1)
    for window, period in enumerate(periods):
        values = np.concatenate([windows.context[window], windows.future[window]])
        np.testing.assert_allclose(values[period:], values[:-period], atol=1e-5)
        assert not any(np.allclose(values[lag:], values[:-lag], atol=1e-2) for lag in range(1, period))


def test_the_largest_error_is_that_of_the_period_that_a_forecaster_misses() -> None:
    def all_but_seven(windows: Windows) -> np.ndarray:
        missed = [name.startswith("period-7-") for name in windows.series]
        return np.where(np.array(missed)[:, None], 0.25 * windows.future, 0.9 * windows.future)

    found = sine_errors(_FixedForecaster(all_but_seven), **ASKED)
    assert found == {
        "sine_error": pytest.approx(0.1, abs=1e-5),
        "sine_error_max": pytest.approx(0.75, abs=1e-5),
        "sine_period_max": 7,
    }


@pytest.mark.parametrize(("answer", "error"), [
    (lambda windows: windows.future, 0.0),
    (lambda windows: 0 * windows.future, 1.0),
    (lambda windows: -windows.future, 2.0),
    (lambda windows: 0.75 * windows.future, 0.25),
    (lambda windows: windows.context[:, -PERIOD:][:, np.arange(HORIZON) % PERIOD], 0.0),  # seasonal naive
])  # fmt: skip
def test_the_error_is_relative_to_forecasting_zero(answer: Callable[[Windows], np.ndarray], error: float) -> None:
    assert sine_errors(_FixedForecaster(answer), **ASKED)["sine_error"] == pytest.approx(error, abs=1e-5)


@pytest.mark.parametrize(("name", "low", "high"), [("chronos-bolt-nano", 0.9, 1.1), ("chronos-bolt-350k", 0.0, 0.15)])
def test_a_trained_model_continues_a_sine_and_the_smallest_does_not(name: str, low: float, high: float) -> None:
    folder = BOLTS[name] / name
    if not folder.is_dir():
        pytest.skip(f"{name}: TSFMSCOPE_WEIGHTS names no folder that holds it")
    model = registry.load("chronos-bolt", folder, options={})
    assert low < sine_errors(model, **ASKED)["sine_error"] < high


def test_a_model_that_was_not_pretrained_here_has_its_sine_alone() -> None:
    skill = {"windows": 100, "context": 64, "samples": 4, "bootstrap": 200}
    spec = {"model": "theirs", "family": "f", "ref": "r", "recipe": None, "seed": 3, "skill": skill}
    (row,) = measure_skill(
        Job(Task("skill", 1, "unused:unused"), spec), None, _FixedForecaster(lambda windows: windows.future)
    ).rows
    identity = {"model": "theirs", "recipe": None, "seed": 3}
    assert row == identity | {"sine_error": 0.0, "sine_error_max": 0.0, "sine_period_max": 3}
