"""The entry of stage forecasts with a small random model and with one whose forecast is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tasks.forecasts import evaluate
from tasks.job import Job, Task
from tsfmscope.errors import DataError
from tsfmscope.forecasting.baselines import context_median
from tsfmscope.forecasting.scores import score, window_seed
from tsfmscope.models.base import Forecaster
from tsfmscope.models.types import Forecast
from tsfmscope.series.tables import series_table, table_series
from tsfmscope.series.types import Series, Windows

TASK = Task("evaluate", 1, "tasks.forecasts:evaluate", table="forecasts")
SPEC = {
    "model": "m", "base_model": None, "size_parameter": None, "size_rule": None, "dataset": "made-up",
    "condition": "c", "context": 32, "noise": 0.0,
    "horizon": 8, "min_context": 16, "held_out": None, "seed": 3, "levels": [0.1, 0.5, 0.9], "samples": 20, "batch": 4,
    "keep_quantiles": False, "family": "chronos-t5", "ref": "r",
}  # fmt: skip


class _Median:
    """Forecasts the median of the context that it sees, and keeps what it was asked."""

    name = "chronos-t5"
    direct_quantiles = False
    lagged = False
    with_condition = Forecaster.with_condition

    def __init__(self) -> None:
        self.seen: dict[str, np.ndarray] = {}
        self.seeds: dict[str, int] = {}
        self.sizes: list[int] = []

    def forecast(self, windows: Windows, *, levels: tuple[float, ...], samples: int, seeds: list[int]) -> Forecast:
        self.sizes.append(len(windows))
        self.seeds |= dict(zip(windows.series, seeds, strict=True))
        self.seen |= dict(zip(windows.series, windows.context, strict=True))
        return Forecast(context_median(windows, len(levels)).astype(np.float32), tuple(levels))


def _data(count: int = 10, *, broken: bool = False) -> pa.Table:
    rng = np.random.default_rng(0)
    made = [
        Series("made-up", f"s{i}", rng.standard_normal(60 + i).cumsum().astype(np.float32), freq="h")
        for i in range(count)
    ]
    if broken:
        made[2] = Series("made-up", "s2", np.ones(10, dtype=np.float32), freq="h")
        made[5] = Series("made-up", "s5", np.r_[np.ones(50), np.full(8, np.nan)].astype(np.float32), freq="h")
        made[7] = Series("made-up", "s7", np.full(60, 4.0, dtype=np.float32), freq="h")
    return series_table(made)


def _rows(model: Any = None, data: pa.Table | None = None, **change: Any) -> list[dict[str, Any]]:
    job = Job(TASK, {**SPEC, **change})
    return [dict(row) for row in evaluate(job, _data() if data is None else data, model or _Median()).rows]


def test_an_earlier_window_is_scored_as_if_the_series_ended_there() -> None:
    cut = [Series("made-up", f"s{n}", np.array(one[:-8], np.float32), freq="h") for n, one in enumerate(_values())]
    earlier, before = _rows(earlier=8), _rows(data=series_table(cut))
    assert earlier == before
    assert [row["origin"] for row in earlier] == [row["origin"] - 8 for row in _rows()]


def _values() -> list[list[float]]:
    values: list[list[float]] = _data()["values"].to_pylist()
    return values


def test_there_is_a_row_a_series_with_the_scores_of_its_last_window() -> None:
    rows, data = _rows(), _data()
    assert [row["series"] for row in rows] == data["series"].to_pylist()
    for row, values in zip(rows, data["values"].to_pylist(), strict=True):
        history = np.array(values, dtype=np.float32)
        past, future = history[:-8], history[-8:]
        quantiles = np.full((1, 3, 8), np.median(past[-32:]))
        expected = score(
            future[None], quantiles, (0.1, 0.5, 0.9), context=past[None, -32:], past=[past], season=24
        ).row(0)
        assert (row["reason"], expected.pop("reason")) == (None, None)
        for name, value in expected.items():
            assert row[name] == pytest.approx(value, rel=1e-6), name
        assert row["origin"] == len(history) - 8
        assert (row["samples"], row["batch"], row["horizon"], row["quantiles"]) == (20, 4, 8, None)


def test_rows_have_the_columns_of_the_store_with_values_where_it_wants_them() -> None:
    from store.schema import TABLES

    columns = {column.name: column for column in TABLES["forecasts"].columns if column.name != "job_key"}
    for row in _rows(data=_data(broken=True), keep_quantiles=True):
        assert set(row) == set(columns)
        assert [name for name in row if row[name] is None and not columns[name].nullable] == []
        pa.array([row], pa.struct([(name, column.type) for name, column in columns.items()]))


@pytest.mark.parametrize(
    ("series", "reason"),
    [
        ("s2", "not forecast: too short"),
        ("s5", "not forecast: nothing is observed in the future"),
        ("s7", "nmse: the future does not leave the context's mean; mase: the seasonal error"),
    ],
)
def test_a_series_that_cannot_be_scored_has_a_row_with_its_reason(series: str, reason: str) -> None:
    row = next(row for row in _rows(data=_data(broken=True)) if row["series"] == series)
    assert row["nmse"] is None
    assert row["reason"].startswith(reason)


def test_the_batch_changes_calls_but_neither_seeds_nor_scores_of_a_key() -> None:
    one, other = _Median(), _Median()
    data = _data()
    assert _rows(one, data, batch=4) != _rows(other, data, batch=100)  # the batch is recorded, and is in the key
    assert (one.sizes, other.sizes) == ([4, 4, 2], [10])
    key = Job(TASK, SPEC).key
    assert one.seeds == {name: window_seed(key, name) for name in data["series"].to_pylist()}
    same = _Median()
    evaluate(Job(TASK, SPEC | {"seeded_as": key, "batch": 3}), data, same)
    assert same.seeds == one.seeds, "of a model that draws by another's seeds"
    assert len(set(one.seeds.values())) == 10
    assert all(0 <= seed < 2**63 for seed in one.seeds.values())


def test_two_runs_are_equal_and_an_order_of_series_changes_the_order_of_rows_only() -> None:
    data = _data()
    assert _rows(data=data) == _rows(data=data)
    turned = _rows(data=data.take(pa.array(range(9, -1, -1))))
    assert turned == _rows(data=data)[::-1]


def test_noise_reaches_what_the_model_sees_and_nothing_that_scores_divide_by() -> None:
    clean, noisy = _Median(), _Median()
    quiet, loud = _rows(clean), _rows(noisy, noise=0.3)
    assert all((clean.seen[name] != noisy.seen[name]).any() for name in clean.seen)
    assert [row["squared_error"] for row in quiet] != [row["squared_error"] for row in loud]
    for name in ("nmse_denominator", "target_abs", "seasonal_error", "n_context", "n_future"):
        assert [row[name] for row in quiet] == [row[name] for row in loud]


def test_the_number_of_series_can_be_asked_for() -> None:
    assert _rows(max_series=3) == _rows()[:3]


@pytest.mark.parametrize("season", [1, 7])
def test_the_scale_of_mase_is_the_season_of_the_series(season: int) -> None:
    data = series_table([replace(one, season=season) for one in table_series(_data())])
    for row, values in zip(_rows(data=data), _values(), strict=True):
        past = np.array(values, dtype=np.float32)[:-8].astype(float)
        assert row["seasonal_error"] == pytest.approx(np.abs(past[season:] - past[:-season]).mean(), rel=1e-6)


def test_a_held_out_share_shorter_than_the_horizon_leaves_nothing_to_score() -> None:
    rows = _rows(held_out=0.1)
    assert all(row["reason"].startswith("not forecast: the held-out part is shorter") for row in rows)


def test_quantiles_are_kept_where_asked() -> None:
    rows = _rows(keep_quantiles=True)
    assert np.array(rows[0]["quantiles"]).shape == (3, 8)


def test_no_series_at_all_is_an_error() -> None:
    with pytest.raises(DataError, match="data set made-up: expected at least one series, got none"):
        _rows(data=_data(0).slice(0, 0))


@pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning")  # einops 0.7, which chronos imports
@pytest.mark.parametrize(("family", "samples"), [("chronos-bolt", None), ("chronos-t5", 4)])
def test_real_families_are_scored(family: str, samples: int | None) -> None:
    from tsfmscope.models.registry import family_class

    size = {"d_model": 16, "d_kv": 4, "d_ff": 32, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 2}
    config: dict[str, Any] = {**size, "context_length": 32, "prediction_length": 8}
    config |= {"chronos-t5": {"n_tokens": 64}, "chronos-bolt": {"input_patch_size": 8, "input_patch_stride": 8}}[family]
    model = family_class(family).new(config, seed=0)
    rows = _rows(model, _data(4), samples=4)
    assert all(np.isfinite([row["nmse"], row["wql_window"], row["mase"]]).all() for row in rows)
    assert [row["samples"] for row in rows] == [samples] * 4
    assert rows == _rows(model, _data(4), samples=4)


def test_history_is_seen_by_lagged_models_alone_and_scores_divide_by_the_context() -> None:
    class _Lagged(_Median):
        lagged = True

    plain, lagged = _Median(), _Lagged()
    rows, other = _rows(plain, context=20, history=12), _rows(lagged, context=20, history=12)
    assert {len(context) for context in plain.seen.values()} == {20}
    assert {len(context) for context in lagged.seen.values()} == {32}
    for name, context in plain.seen.items():
        np.testing.assert_array_equal(lagged.seen[name][-20:], context)
    assert [row["nmse_denominator"] for row in rows] == [row["nmse_denominator"] for row in other]
    assert {row["context"] for row in other} == {20}
