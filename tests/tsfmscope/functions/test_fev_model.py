"""`ts.fev_model` on small local tasks: fev's scores are ours, and its forecasts have the format of the task."""

from __future__ import annotations

import logging
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import datasets
import fev
import numpy as np
import pandas as pd
import pytest

import tsfmscope as ts
from tsfmscope.compression.export import densify, save
from tsfmscope.errors import DataError, ModelError
from tsfmscope.forecasting import scores
from tsfmscope.forecasting.options import ScoreOptions
from tsfmscope.functions.load import Model
from tsfmscope.series.types import Series

ROOT = Path(__file__).parents[3]
CONTEXT, HORIZON, WINDOWS, SEASON = 64, 6, 2, 7
LEVELS = [0.1, 0.5, 0.9]
# Lengths of the series; the last are shorter than the context and than the smallest context of `inspect`.
LENGTHS = (160, 130, 160, 50, 20)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder, with a cache of its own for Hugging Face data sets."""
    (tmp_path / "checkpoints").symlink_to(ROOT / "tsfmscope" / "checkpoints")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One compressed model in memory, as a folder, and as a dense export."""
    made = ts.compress("chronos-bolt-mini", "nile", to=0.25, method="joint", context=CONTEXT, horizon=HORIZON)
    narrow, dense = (tmp_path_factory.mktemp(name) for name in ("narrow", "dense"))
    made.save(narrow)
    save(densify(ts.load(narrow).family), dense)
    return {"memory": made, "narrow": narrow, "dense": f"chronos-bolt:{dense}"}


def values(length: int, seed: int) -> np.ndarray:
    """A noisy season of a week; every third series lacks a few steps of its past and one of its last window."""
    rng = np.random.default_rng(seed)
    series = 5 + np.sin(2 * np.pi * np.arange(length) / SEASON) + rng.normal(size=length) / 4
    if seed % 3 == 2:
        series[[length - 3, length - 15, length - 16]] = np.nan
    return series.astype(np.float32)


def write(path: Path, columns: tuple[str, ...] = ("target",), lengths: tuple[int, ...] = LENGTHS) -> dict[str, Any]:
    """Write a Parquet file in long format; return arguments of a task on it."""
    frames = []
    for index, length in enumerate(lengths):
        times = pd.date_range("2024-01-01", periods=length, freq="D")
        targets = {column: values(length, index + 10 * at) for at, column in enumerate(columns)}
        frames.append(pd.DataFrame({"id": f"item-{index}", "timestamp": times, **targets}))
    pd.concat(frames).to_parquet(path)
    return {"dataset_path": str(path), "horizon": HORIZON, "seasonality": SEASON}


def task_of(folder: Path, **changes: Any) -> fev.Task:
    scored = {"eval_metric": "WQL", "extra_metrics": ["MASE"], "quantile_levels": LEVELS, "num_windows": WINDOWS}
    return fev.Task(**write(folder / "days.parquet") | scored | changes)


def our_scores(model: Model) -> dict[str, float]:
    """WQL and MASE of the same windows by `score_forecasts`: means over windows, with fev's weights of steps."""
    fields: dict[str, Any] = {"freq": "D", "start": datetime(2024, 1, 1), "season": SEASON}
    series = [Series("days", f"item-{i}", values(length, i), **fields) for i, length in enumerate(LENGTHS)]
    found: dict[str, list[float]] = {"WQL": [], "MASE": []}
    for cutoff in range(-HORIZON * WINDOWS, 0, HORIZON):
        scored = scores.score_forecasts(
            model.family, series, ScoreOptions(levels=tuple(LEVELS), batch=32), context=CONTEXT, horizon=HORIZON,
            seed=0, min_context=1,
            seed_of=lambda name, cutoff=cutoff: scores.window_seed(f"0/{cutoff}", name), earlier=-cutoff - HORIZON,
        )  # fmt: skip
        assert len(scored.rows) == len(LENGTHS)
        found["WQL"].append(scored.accuracy(len(LEVELS))["wql"])
        # fev takes the mean over all observed steps, we take the mean over series.
        weights = [row["n_future"] for row in scored.rows.values()]
        found["MASE"].append(float(np.average([row["mase"] for row in scored.rows.values()], weights=weights)))
    return {name: float(np.mean(scores)) for name, scores in found.items()}


@pytest.mark.parametrize(
    "name", ["chronos-bolt-mini", "chronos-t5-mini", "lag-llama-mini", "memory", "narrow", "dense"]
)
def test_fev_scores_a_model_as_we_do(name: str, small: dict[str, Any], folder: Path) -> None:
    """Dense and compressed, direct quantiles, sample paths and calendar features; missing values and short series."""
    reference = small.get(name, name)
    model = ts.fev_model(reference, context=CONTEXT)
    task = task_of(folder)
    summary = task.evaluation_summary(model.fit_predict(task), model_name=model.model_name)
    ours = our_scores(reference if isinstance(reference, Model) else ts.load(reference))
    assert {metric: summary[metric] for metric in ours} == pytest.approx(ours, rel=1e-5)
    assert model.inference_time > 0 and model.training_time == 0


def test_a_compressed_folder_and_its_dense_export_have_one_score(small: dict[str, Any], folder: Path) -> None:
    task = task_of(folder)
    scores = {}
    for name, reference in {"base": "chronos-bolt-mini", **small}.items():
        model = ts.fev_model(reference, context=CONTEXT)
        scores[name] = task.evaluation_summary(model.fit_predict(task), model_name=name)["test_error"]
    assert scores["narrow"] == pytest.approx(scores["memory"], rel=1e-5)
    assert scores["dense"] == pytest.approx(scores["memory"], rel=1e-4)
    assert scores["memory"] != pytest.approx(scores["base"], rel=1e-4)


def test_predictions_have_the_levels_of_the_task_and_the_order_of_its_series(folder: Path) -> None:
    """The median is the point forecast, also where the task names other levels or none."""
    model = ts.fev_model("chronos-bolt-mini", context=CONTEXT)
    with_median, without, none = (
        model.fit_predict(task_of(folder, num_windows=1, quantile_levels=levels, eval_metric="MASE", extra_metrics=[]))
        for levels in (LEVELS, [0.9, 0.2], [])
    )
    assert with_median[0]["target"].column_names == ["predictions", "0.1", "0.5", "0.9"]
    assert without[0]["target"].column_names == ["predictions", "0.2", "0.9"]
    assert none[0]["target"].column_names == ["predictions"]
    assert len(none) == 1 and none[0]["target"].num_rows == len(LENGTHS)
    for found in (with_median, without, none):
        assert found[0]["target"]["predictions"][:] == with_median[0]["target"]["0.5"][:]
    # Each level of a forecast lies near the last values of its own series.
    shifted = pd.read_parquet("days.parquet")
    shifted["target"] += 100 * shifted["id"].str[-1].astype(int)
    shifted.sample(frac=1, random_state=0).to_parquet("shifted.parquet")
    task = fev.Task(dataset_path="shifted.parquet", horizon=HORIZON)
    rows = np.array(model.fit_predict(task)[0]["target"]["predictions"])
    assert (rows // 100 == np.arange(len(LENGTHS))[:, None]).all()


def test_every_target_is_forecast_alone_and_covariates_are_not_read(folder: Path) -> None:
    """The predictions are those of fev's own univariate targets; only the seeds' names join id and column."""
    path = {"dataset_path": str(folder / "both.parquet"), "horizon": HORIZON, "quantile_levels": [0.1]}
    write(folder / "both.parquet", ("y", "x"))
    for name in ("chronos-bolt-mini", "chronos-t5-mini"):
        model = ts.fev_model(name, context=CONTEXT)
        both = model.fit_predict(fev.Task(**path, target=["x", "y"]))[0]
        split = model.fit_predict(fev.Task(**path, generate_univariate_targets_from=["x", "y"]))[0]["target"]
        for level in ("predictions", "0.1"):
            joined = [row for pair in zip(both["x"][level], both["y"][level], strict=True) for row in pair]
            np.testing.assert_allclose(joined, split[level][:], rtol=1e-5)
    with_covariate = fev.Task(**path, target="x", known_dynamic_columns=["y"])
    direct = ts.fev_model("chronos-bolt-mini", context=CONTEXT)
    found = direct.fit_predict(with_covariate)[0]["x"]["predictions"]
    np.testing.assert_allclose(found[:], direct.fit_predict(fev.Task(**path, target="x"))[0]["x"]["predictions"][:])


def test_long_horizons_long_contexts_and_other_frequencies(folder: Path) -> None:
    """A horizon beyond the model's own, max_context_length, cutoffs that are dates, and months."""
    model = ts.fev_model("chronos-bolt-mini", context=CONTEXT)
    task = task_of(folder, horizon=90, num_windows=1, initial_cutoff="2024-02-01", max_context_length=10)
    (predictions,) = model.fit_predict(task)
    # The two short series have no 90 steps after the cutoff; fev leaves them out.
    assert np.shape(predictions["target"]["0.9"]) == (3, 90)
    months = pd.date_range("2020-01-31", periods=60, freq="ME")
    pd.DataFrame({"id": "a", "timestamp": months, "target": np.arange(60.0)}).to_parquet("months.parquet")
    for name in ("lag-llama-mini", "moirai-mini"):
        months_task = fev.Task(dataset_path="months.parquet", horizon=6, quantile_levels=[0.5])
        assert np.isfinite(ts.fev_model(name, context=24).fit_predict(months_task)[0]["target"]["0.5"]).all()


def test_the_seed_decides_the_samples(folder: Path) -> None:
    task = task_of(folder, num_windows=1)
    first, again, other = (
        ts.fev_model("chronos-t5-mini", context=CONTEXT, samples=5, seed=seed).fit_predict(task)[0]["target"]["0.9"][:]
        for seed in (1, 1, 2)
    )
    assert first == again != other


def test_series_without_values_are_counted_and_infinite_ones_refused(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    arguments = write(folder / "days.parquet")
    frame = pd.read_parquet("days.parquet")
    frame.loc[frame["id"] == "item-1", "target"] = np.nan
    frame.to_parquet("empty.parquet")
    model = ts.fev_model("chronos-bolt-mini", context=CONTEXT)
    with caplog.at_level(logging.WARNING, "tsfmscope"):
        model.fit_predict(fev.Task(**arguments | {"dataset_path": "empty.parquet"}))
    assert "empty.parquet: 1 of 5 series have no observed value among the last 64 steps before -6" in caplog.text
    frame.loc[frame["id"] == "item-2", "target"] = np.inf
    frame.to_parquet("infinite.parquet")
    with pytest.raises(
        DataError, match=r"infinite.parquet: column 'target' of series 'item-2': expected numbers, .* got infinity"
    ):
        model.fit_predict(fev.Task(**arguments | {"dataset_path": "infinite.parquet"}))


def test_wrong_arguments_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for options, message in (({"context": 0}, "context: got 0"), ({"samples": 0}, "samples: got 0")):
        with pytest.raises(ValueError, match=message):
            ts.fev_model("chronos-bolt-mini", **options)
    with pytest.raises(
        ModelError, match="t5-text-nano: expected a model that forecasts, but family t5-text reads text"
    ):
        ts.fev_model("t5-text-nano")
    for module in ("fev", "tsfmscope.functions.fev_adapter"):
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "fev", None)
    with pytest.raises(
        ModuleNotFoundError, match=r"module 'fev' is missing; install it with `pip install 'tsfmscope\[fev"
    ):
        ts.fev_model("chronos-bolt-mini")
