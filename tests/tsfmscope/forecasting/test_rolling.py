"""Rolling-origin windows, pooled scores and intervals, against definitions in plain Python."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from typing import Any

import numpy as np
import pytest
import scipy.stats

from tsfmscope.forecasting import rolling
from tsfmscope.models.base import QUANTILES
from tsfmscope.series.types import Series
from tsfmscope.series.windows import gather_windows, rolling_origins


def series(name: str, values: Any) -> Series:
    return Series("d", name, np.asarray(values, np.float32), freq="D", season=1)


@pytest.mark.parametrize(("steps", "count", "origins"), [
    (40, 3, [36, 32, 28]),
    # 16 steps of context before the second origin.
    (24, 3, [20, 16]),
    (20, 3, [16]),
    (40, 1, [36]),
    (19, 3, []),
])  # fmt: skip
def test_windows_are_the_last_ones_and_do_not_overlap(steps: int, count: int, origins: list[int]) -> None:
    picks, skipped = rolling_origins([series("a", range(steps))], context=16, horizon=4, count=count)
    assert [origin for own in picks for _, origin in own] == origins
    assert len(picks) == count
    assert [skip.reason for skip in skipped] == (
        [] if origins else ["too short for 16 steps of context and a horizon of 4"]
    )


def test_a_window_without_observed_targets_is_no_window() -> None:
    values = np.arange(40.0)
    values[36:] = np.nan
    picks, skipped = rolling_origins([series("a", values), series("b", range(40))], context=16, horizon=4, count=2)
    assert picks == [[(1, 36)], [(0, 32), (1, 32)]]
    assert not skipped


def grids() -> tuple[Any, ...]:
    """Windows of three series, one of them with one window, with missing targets; forecasts; cells."""
    rng = np.random.default_rng(0)
    data = [series(str(n), rng.normal(5, 2, size)) for n, size in enumerate((60, 50, 21))]
    data[0].values[-2] = np.nan
    picks, _ = rolling_origins(data, context=16, horizon=4, count=3)
    flat = [pick for own in picks for pick in own]
    cells = [(index, column) for column, own in enumerate(picks) for index, _ in own]
    windows = gather_windows(data, flat, 20, 4)
    quantiles = np.sort(rng.normal(5, 2, (len(flat), 9, 4)), axis=1)
    return data, flat, cells, windows, quantiles


def test_pooled_scores_are_those_of_their_definitions() -> None:
    data, flat, cells, windows, quantiles = grids()
    shape = (3, 3)
    pasts = [data[i].values[:origin] for i, origin in flat]
    targets = rolling.Targets(*rolling.fill_grids([rolling.window_targets(windows, pasts)], cells, shape))
    parts = [
        rolling.window_errors(windows.take(slice(a, b)), quantiles[a:b], QUANTILES) for a, b in ((0, 2), (2, len(flat)))
    ]
    errors = rolling.Errors(*rolling.fill_grids(parts, cells, shape))
    naive_values = np.repeat(np.stack([data[i].values[origin - 1] for i, origin in flat])[:, None, None], 9, axis=1)
    naive_quantiles = np.repeat(naive_values, 4, axis=2)
    of_naive = rolling.window_errors(windows, naive_quantiles, QUANTILES)
    naive = rolling.Errors(*rolling.fill_grids([of_naive], cells, shape))

    loss = naive_loss = size = 0.0
    mase, inside, observed = [], 0, 0
    for window, (index, origin) in enumerate(flat):
        past = data[index].values[:origin].astype(float)
        steps = [(y, t) for t, y in enumerate(data[index].values[origin : origin + 4].astype(float)) if y == y]
        for y, t in steps:
            for q, level in enumerate(QUANTILES):
                for values, is_naive in ((quantiles, False), (naive_quantiles, True)):
                    gap = y - float(values[window, q, t])
                    pinball = 2 * max(level * gap, (level - 1) * gap)
                    loss, naive_loss = loss + (not is_naive) * pinball, naive_loss + is_naive * pinball
            size += abs(y)
            observed += 1
            inside += quantiles[window, 0, t] <= y <= quantiles[window, 8, t]
        changes = [abs(b - a) for a, b in itertools.pairwise(past) if a == a and b == b]
        error = sum(abs(y - quantiles[window, 4, t]) for y, t in steps) / len(steps)
        mase.append(error / (sum(changes) / len(changes)))
    scores = rolling.pool_scores(errors, naive, targets, 9)
    assert scores["n_windows"] == len(flat) == 7
    assert scores["n_series"] == 3
    assert scores["wql"] == pytest.approx(loss / 9 / size, rel=1e-6)
    assert scores["ratio"] == pytest.approx(loss / naive_loss, rel=1e-6)
    assert scores["mase"] == pytest.approx(sum(mase) / len(mase), rel=1e-6)
    assert scores["coverage"] == pytest.approx(inside / observed)


def test_what_is_undefined_is_none() -> None:
    zero = rolling.Targets(*(np.array([[value]]) for value in (0.0, 4.0, 0.0)))
    errors = rolling.Errors(*(np.array([[value]]) for value in (1.0, 1.0, 0.0)))
    without = rolling.Errors(*(np.array([[value]]) for value in (0.0, 0.0, 0.0)))
    scores = rolling.pool_scores(errors, without, zero, 9)
    assert (scores["wql"], scores["mase"], scores["ratio"], scores["coverage"]) == (None, None, None, 0.0)


def plain_interval(above: np.ndarray, below: np.ndarray, draws: int) -> tuple[float, float]:
    """Interval by drawing series and origins one by one; scale and t quantile from the variance of each kind."""
    draw = random.Random(0)
    n, m = above.shape

    def log_ratio(rows: list[int], columns: list[int]) -> float:
        cells = [(i, j) for i in rows for j in columns if not math.isnan(above[i, j])]
        return math.log(sum(above[cell] for cell in cells) / sum(below[cell] for cell in cells))

    together, by_row, by_column = [], [], []
    for _ in range(draws):
        rows, columns = [draw.randrange(n) for _ in range(n)], [draw.randrange(m) for _ in range(m)]
        together.append(log_ratio(rows, columns))
        by_row.append(log_ratio(rows, [*range(m)]))
        by_column.append(log_ratio([*range(n)], columns))
    u = [statistics.pvariance(by_row), statistics.pvariance(by_column)]
    v = [u[0] * n / (n - 1), u[1] * m / (m - 1)]
    freedom = sum(v) ** 2 / (v[0] ** 2 / (n - 1) + v[1] ** 2 / (m - 1))
    factor = math.sqrt(sum(v) / sum(u)) * scipy.stats.t.ppf(0.975, freedom) / 1.959964
    whole = log_ratio([*range(n)], [*range(m)])
    together.sort()
    low, high = together[int(0.025 * draws)], together[int(0.975 * draws)]
    return math.exp(whole + factor * (low - whole)), math.exp(whole + factor * (high - whole))


def test_an_interval_is_that_of_drawing_series_and_origins_one_by_one() -> None:
    rng = np.random.default_rng(1)
    above, below = rng.gamma(2, size=(8, 4)), rng.gamma(5, size=(8, 4))
    above[6:, 2:] = np.nan
    found = rolling.ratio_interval(above, below, rolling.draw_resamples(8, 4, seed=0, draws=20_000))
    assert found == pytest.approx(plain_interval(above, below, 20_000), rel=0.02)


@pytest.mark.parametrize(
    ("n_series", "n_origins", "sd_origin"), [(1, 3, 0.3), (12, 3, 0.0), (12, 3, 0.3), (30, 1, 0.0)]
)
def test_equal_forecasters_are_told_apart_rarely(n_series: int, n_origins: int, sd_origin: float) -> None:
    rng, told = np.random.default_rng(2), 0
    for trial in range(200):
        size = rng.gamma(2, size=(n_series, 1))
        effect = rng.normal(0, sd_origin, (1, n_origins)) + rng.normal(0, 0.3, (n_series, n_origins))
        grids = size * np.exp(effect / 2), size * np.exp(-effect / 2)
        found = rolling.ratio_interval(*grids, rolling.draw_resamples(n_series, n_origins, seed=trial, draws=400))
        told += not found.low <= 1 <= found.high
    # 5 % of 200, and what chance adds.
    assert told <= 20


def test_one_window_has_no_interval_and_equal_errors_have_one_of_no_width() -> None:
    resamples = rolling.draw_resamples(2, 1, seed=0)
    lone = np.array([[1.0], [np.nan]])
    assert rolling.ratio_interval(lone, lone, resamples) == (None, None)
    both = np.array([[1.0], [3.0]])
    assert rolling.ratio_interval(both, both, resamples) == (1.0, 1.0)
    assert rolling.ratio_interval(both, np.zeros((2, 1)), resamples) == (None, None)
    assert rolling.ratio_interval(np.zeros((2, 1)), both, resamples) == (0.0, 0.0)


def test_three_units_have_two_degrees_of_freedom() -> None:
    expected = math.sqrt(1.5) * scipy.stats.t.ppf(0.975, 2) / scipy.stats.norm.ppf(0.975)
    assert rolling.small_sample_factor([(1, 0.0), (3, 0.7)]) == pytest.approx(expected)
    assert rolling.small_sample_factor([(1, 0.0), (3, 0.0)]) == 1
    assert rolling.small_sample_factor([(10_000, 1.0)]) == pytest.approx(1, abs=1e-3)
