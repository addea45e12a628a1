"""Errors on one data set: by hand and without a seasonal error."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tsfmscope.forecasting.skill import dataset_errors, spread_rows
from tsfmscope.series.types import Windows

LEVELS = (0.1, 0.5, 0.9)
NAN = np.nan


def windows_of(context: np.ndarray, future: np.ndarray, season: int = 1) -> Windows:
    """Windows of series named s0, s1 and so on."""
    names = [f"s{row}" for row in range(len(context))]
    context, future = context.astype(np.float32), future.astype(np.float32)
    return Windows(context, future, names, np.full(len(names), context.shape[1]), "made-up", "D", season)


def test_both_errors_are_those_of_the_definitions_step_by_step() -> None:
    rng = np.random.default_rng(0)
    windows = windows_of(rng.normal(3, 1, (5, 12)), rng.normal(3, 1, (5, 4)), season=3)
    windows.future[1, 2] = windows.future[4, 0] = NAN
    quantiles = np.sort(rng.normal(3, 1, (5, len(LEVELS), 4)), axis=1)
    found = dataset_errors(windows, quantiles, LEVELS)

    loss, naive_loss, absolute, naive_absolute, size, steps = 0.0, 0.0, 0.0, 0.0, 0.0, 0
    for window in range(5):
        for step in range(4):
            y = float(windows.future[window, step])
            if np.isnan(y):
                continue
            naive = float(windows.context[window, 12 - 3 + step % 3])
            for index, level in enumerate(LEVELS):
                for forecast, is_naive in ((quantiles[window, index, step], False), (naive, True)):
                    error = y - forecast
                    pinball = 2 * max(level * error, (level - 1) * error)
                    loss, naive_loss = (loss, naive_loss + pinball) if is_naive else (loss + pinball, naive_loss)
            absolute += abs(y - quantiles[window, 1, step])
            naive_absolute += abs(y - naive)
            size += abs(y)
            steps += 1
    assert found["wql"] == pytest.approx(loss / (3 * size))
    assert found["wql_seasonal"] == pytest.approx(naive_loss / (3 * size))
    assert (found["mae"], found["mae_seasonal"]) == pytest.approx((absolute / steps, naive_absolute / steps))
    assert found["wql_ratio"] == pytest.approx(loss / naive_loss)
    assert found["mae_ratio"] == pytest.approx(absolute / naive_absolute)
    assert found["reason"] is None


def test_ratios_do_not_depend_on_the_unit_of_the_series() -> None:
    rng = np.random.default_rng(1)
    context, future, quantiles = rng.normal(size=(3, 9)), rng.normal(size=(3, 2)), rng.normal(size=(3, 3, 2))
    one = dataset_errors(windows_of(context, future), quantiles, LEVELS)
    other = dataset_errors(windows_of(1024 * context, 1024 * future), 1024 * quantiles, LEVELS)
    for name in ("wql", "wql_seasonal", "wql_ratio", "mae_ratio"):
        assert other[name] == pytest.approx(one[name])
    assert other["mae"] == pytest.approx(1024 * one["mae"])


@pytest.mark.parametrize(("context", "future", "nulls", "reason"), [
    # The last value is repeated exactly.
    ([[1, 2, 2]], [[2, 2]], {"wql_ratio", "mae_ratio"}, "wql_ratio, mae_ratio: seasonal naive has no error"),
    ([[1, 2, 3]], [[0, 0]], {"wql", "wql_seasonal"}, "wql: the targets are zero"),
    (
        [[1, 0, 0]],
        [[0, 0]],
        {"wql", "wql_seasonal", "wql_ratio", "mae_ratio"},
        "wql: the targets are zero; wql_ratio, mae_ratio: seasonal naive has no error",
    ),
    (
        np.zeros((0, 3)),
        np.zeros((0, 2)),
        {"wql", "wql_seasonal", "wql_ratio", "mae", "mae_seasonal", "mae_ratio"},
        "no window with an observed target",
    ),
], ids=["no seasonal error", "targets of 0", "both", "no window"])  # fmt: skip
def test_an_undefined_number_is_null_with_a_reason(
    context: Sequence, future: Sequence, nulls: set[str], reason: str
) -> None:
    windows = windows_of(np.array(context, dtype=float), np.array(future, dtype=float))
    found = dataset_errors(windows, np.ones((len(windows), 3, 2)), LEVELS)
    assert {name for name, value in found.items() if value is None} == nulls
    assert found["reason"] == reason


def test_a_forecast_that_is_not_finite_is_refused() -> None:
    windows = windows_of(np.ones((1, 3)), np.ones((1, 2)))
    with pytest.raises(ValueError, match="quantiles: got NaN or infinity"):
        dataset_errors(windows, np.full((1, 3, 2), NAN), LEVELS)


@pytest.mark.parametrize(("count", "names"), [(3, ["s0", "s2", "s4"]), (7, [f"s{row}" for row in range(7)]), (9, None)])
def test_of_many_series_evenly_spaced_ones_are_scored(count: int, names: list[str] | None) -> None:
    windows = windows_of(np.ones((7, 3)), np.ones((7, 2)))
    assert spread_rows(windows, count).series == (names or windows.series)
