"""Baselines are planned where a study asks, and no answer on models takes them in."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import yaml

from stages import forecasts
from stages.config.blocks import Baseline
from stages.config.params import Params, ParamsError, load
from stages.planning import planning
from store import files
from store.errors import CheckFailed
from store.report_queries import load_queries
from tasks.forecasts import evaluate_locally, load_baseline
from tests.stages.test_statistics import Tables, tables
from tests.store.conftest import open_results
from tsfmscope.series.tables import series_table
from tsfmscope.series.types import Series

ROOT = Path(__file__).parents[2]
STUDY = "two-models"
NAMES = ["seasonal-naive", "auto-theta"]
MODELS = {"t5-text-nano": {"family": "t5-text", "ref": "somewhere"}}


def _params(folder: Path, **changes: Any) -> Params:
    block = yaml.safe_load((ROOT / "params" / "smoke.yaml").read_text())
    block["datasets"] = {"max_series": 4, "min_length": 32, "sets": {"nile": {}, "english": {}, "co2": {}}}
    block["conditions"] = {"c": {"context": 64}, "text": {"context": 64, "modality": "text"}}
    asked = {"models": "all", "datasets": ["nile", "english", "co2"], "conditions": ["c", "text"]}
    block["studies"] = {"quiet": {"title": "q", "measures": ["weights"], **asked}}
    block["studies"]["asking"] = {"title": "a", "measures": ["baselines"], **asked}
    block["forecasts"] = {"baselines": NAMES}
    block["compression"] = {}
    block["report"] = {"study": "asking"}
    (folder / "params.yaml").write_text(yaml.safe_dump(block | changes))
    return load(folder / "params.yaml")


def _series(folder: Path, *names: str) -> None:
    for name in names:
        values = np.random.default_rng(1).standard_normal(150).cumsum().astype(np.float32)
        path = folder / f"data/datasets/series/{name}.parquet"
        files.write_parquet(path, series_table([Series(name, f"{name}/0", values, freq="YS")]))


def test_a_job_a_baseline_and_data_set_of_series_where_a_study_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _series(tmp_path, "nile", "english")  # co2 is not at hand
    params = _params(tmp_path, models=MODELS)
    cells = planning.cells(params, ["baselines"], instead=params.forecasts.baselines)
    assert set(cells) == {(name, "nile", "c") for name in NAMES}
    assert {study for studies in cells.values() for study in studies} == {"asking"}
    with pytest.raises(ParamsError, match=r"studies\.asking\.measures: baselines, but forecasts.baselines is"):
        _params(tmp_path, models=MODELS, forecasts={})


def test_a_validation_window_is_another_job_of_another_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _series(tmp_path, "nile")
    made = {"model": "chronos-bolt-mini", "family": "chronos-bolt", "modality": "series", "options": None}
    made |= {"ref": "tsfmscope/checkpoints/chronos-bolt-mini", "fingerprint": "f"}
    monkeypatch.setattr(planning, "checkpoints", lambda: {"chronos-bolt-mini": made})
    study = {"title": "v", "models": ["chronos-bolt-mini"], "datasets": ["nile"], "conditions": ["c"]}
    studies = {"both": study | {"measures": ["forecasts", "validation"]}, "last": study | {"measures": ["forecasts"]}}
    models = {"chronos-bolt-mini": {"family": "chronos-bolt", "ref": "tsfmscope/checkpoints/chronos-bolt-mini"}}
    params = _params(tmp_path, models=models, studies=studies, report={"study": "both"})
    last, earlier = forecasts.plan(params)
    assert (last.job.task.table, last.studies) == ("forecasts", ["both", "last"])
    assert (earlier.job.task.table, earlier.studies) == ("validation", ["both"])
    assert earlier.job.spec == last.job.spec | {"earlier": last.job.spec["horizon"], "max_series": 32}
    assert earlier.job.inputs == last.job.inputs and earlier.job.key != last.job.key


def test_a_planned_job_answers_rows_of_forecasts_under_the_baselines_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _series(tmp_path, "nile")
    planned = [one for one in forecasts.plan(_params(tmp_path, models=MODELS)) if one.job.task.name == "baseline"]
    assert [(one.job.group, one.studies) for one in planned] == [(name, ["asking"]) for name in sorted(NAMES)]
    for one in planned:
        (path,) = one.job.inputs
        (row,) = evaluate_locally(one.job, files.read_parquet(Path(path)), load_baseline(one.job)).rows
        found = files.to_arrow("forecasts", [{**row, "job_key": one.job.key}]).to_pylist()[0]
        assert (found["model"], found["base_model"], found["size_rule"]) == (one.job.group, None, None)
        assert found["wql_window"] > 0 and found["reason"] is None and found["n_context"] == 64


def test_a_model_may_not_have_the_name_of_a_baseline(tmp_path: Path) -> None:
    models = {"auto-ets": {"family": "chronos-t5", "ref": "somewhere"}}
    with pytest.raises(ParamsError, match=r"models\.auto-ets: the name of a baseline \(see forecasts\.baselines\)"):
        _params(tmp_path, models={**MODELS, **models})


def _with_baselines(made: Tables) -> Tables:
    """The same with a forecast by every baseline of every cell, far better than the models' own."""
    added, studies = [], []
    for row in {(row["dataset"], row["condition"]): row for row in made["forecasts"]}.values():
        for name in get_args(Baseline):
            key = f"{name}-{row['dataset']}-{row['condition']}"
            added.append({**row, "model": name, "nmse": 1e-4, "reason": None, "job_key": key})
            studies.append({"study": STUDY, "stage": "forecasts", "job_key": key})
    return {**made, "forecasts": made["forecasts"] + added, "study_jobs": made["study_jobs"] + studies}


def test_no_statistic_and_no_count_of_models_takes_a_baseline_in(tmp_path: Path) -> None:
    """The views that the stage statistics reads, those that the page shows, and the page's count of models."""
    made = tables([STUDY])
    views = ("nmse_against_isotropy", "pair_signs", "condition_pairs", "rank_units", "partition_spread")
    asked = [f"select * from {name} order by all" for name in views]
    asked.append(load_queries("page")["scope"].fill(study=STUDY).sql)
    told, scored = [], []
    for name, one in (("without", made), ("with", _with_baselines(made))):
        (tmp_path / name).mkdir()
        with open_results(tmp_path / name, one) as connection:  # its checks hold too, among them forecasts_references
            told.append([repr(connection.sql(sql).fetchall()) for sql in asked])
            scored.append({row[0] for row in connection.sql("select model from scores").fetchall()})
    assert told[0] == told[1]
    assert scored[1] - scored[0] == set(get_args(Baseline))


def test_a_model_that_is_neither_listed_nor_a_baseline_is_still_found(tmp_path: Path) -> None:
    made = tables(["one-unit"])
    made["forecasts"][0] |= {"model": "auto-arima-2"}
    with pytest.raises(CheckFailed, match="forecasts_references"), open_results(tmp_path, made):
        pass
