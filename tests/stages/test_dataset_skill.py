"""Skill on whole data sets: the jobs that are planned, their rows, and the tables that the stage writes."""

from __future__ import annotations

import contextlib
import gc
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from stages import checkpoints
from stages.config.params import Params, load
from stages.planning import dataset_skill
from stages.planning.dataset_skill import dataset_skill_jobs, is_trained_on, mean_line
from store.files import to_arrow, write_parquet
from store.stage_outputs import read_rows
from tasks import dataset_skill as entries
from tasks.forecasts import load_baseline
from tasks.job import Job, StoreCallbacks
from tasks.sweep import engine
from tasks.sweep.actor import Worker, WorkerConfig
from tasks.sweep.cluster import Resources
from tasks.sweep.records import Summary, record
from tsfmscope.series.synthetic.kernelsynth import kernelsynth_series
from tsfmscope.series.tables import series_table
from tsfmscope.series.types import Series

ROOT = Path(__file__).parents[2]
BOLT, THEIRS, BASELINE = "chronos-bolt-mini", "theirs", "auto-theta"
FOLDER = str(ROOT / "tsfmscope" / "checkpoints" / BOLT)


def params_of(folder: Path, **skill: Any) -> Params:
    """One model with a recipe, the same as a folder of unknown origin, and one baseline, on few data sets."""
    block: dict[str, Any] = {"seed": 0, "models": {BOLT: {}, THEIRS: {"family": "chronos-bolt", "ref": FOLDER}}}
    mine = {"source": "folder", "file": "mine.parquet", "horizon": 6}
    sets = {"linear-2": {}, "nile": {}, "co2": {}, "constant": {}, "english": {}, "mine": mine}
    block["datasets"] = {"sets": sets}
    block["conditions"] = {"c": {"context": 64}}
    block["studies"] = {"s": {"title": "s", "measures": ["forecasts"], "models": "all", "datasets": ["nile"]}}
    block["studies"]["s"]["conditions"] = ["c"]
    asked = {"windows": 100, "samples": 2, "bootstrap": 100, "context": 64, "baselines": [BASELINE]}
    asked["datasets"] = [name for name in sets if name != "english"]
    block["checkpoints"] = {"committed": str(ROOT / "tsfmscope" / "checkpoints"), "skill": asked | skill}
    (folder / "params.yaml").write_text(yaml.safe_dump(block))
    return load(folder / "params.yaml")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the series of linear-2, of nile, and of a data set of the user; those of co2 are missing."""
    monkeypatch.chdir(tmp_path)
    write_series()
    return tmp_path


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Such a folder after the stage has run, and what the stage printed."""
    folder, printed = tmp_path_factory.mktemp("measured"), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed), pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "run", run_here)
        write_series()
        # A worker collects garbage before it loads a model, which takes seconds after many tests.
        gc.freeze()
        checkpoints.main(params_of(folder, max_series=4))
        gc.unfreeze()
    return folder, printed.getvalue()


def run_here(jobs: Iterable[Job], callbacks: StoreCallbacks, resources: Resources, **options: Any) -> Summary:
    """Run the jobs of a sweep in this process, since actors of Ray would take half a minute to import torch."""
    by_key = {job.key: job for job in jobs}
    missing = callbacks.missing(list(by_key))
    worker, loaded = Worker("actor-0", callbacks, WorkerConfig(1, str(Path.cwd()))), None
    for job in map(by_key.__getitem__, missing):
        if (model := (job.task.loader, job.group)) != loaded:
            assert worker.load(job).failure is None
            loaded = model
        callbacks.append([record(job, worker.run(job, 1), 1)])
    return Summary(len(by_key), len(by_key) - len(missing), len(missing), 0, 0.0, {})


def write_series() -> None:
    """Write the series under data/."""
    drawn = [Series("linear-2", one.series, one.values) for one in kernelsynth_series(3, 0)]
    write_parquet(Path("data/kernelsynth/series/linear-2.parquet"), series_table(drawn))
    rng = np.random.default_rng(1)
    walks = [rng.standard_normal(200).cumsum().astype(np.float32) for _ in range(5)]
    walks[1][:] = 4.0  # constant
    for name, count in (("nile", 1), ("mine", 5)):
        series = [Series(name, f"{name}/{n}", walks[n], domain="nature", freq="D") for n in range(count)]
        write_parquet(Path(f"data/datasets/series/{name}.parquet"), series_table(series))


def row_of(model: str, recipe: str | None) -> dict[str, Any]:
    """A row of `checkpoints`."""
    row = {"model": model, "family": "chronos-bolt", "modality": "series", "ref": FOLDER, "options": None}
    return row | {"fingerprint": "f", "recipe": recipe}


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("all", {"linear-2", "nile"}),  # the user's own file adds no job and changes no mean
        (["nile", "mine"], {"nile", "mine"}),
        (["nile", "co2", "nile"], {"nile"}),
        ([], set()),
        (None, set()),
    ],
)
def test_there_is_one_job_for_each_model_and_baseline_on_each_data_set_at_hand(
    here: Path, asked: Any, names: set[str]
) -> None:
    jobs = [
        one.job
        for one in dataset_skill_jobs(params_of(here, datasets=asked), [row_of(BOLT, "k"), row_of(THEIRS, None)])
    ]
    pairs = [(job.spec["model"], job.spec["dataset"]) for job in jobs]
    assert sorted(pairs) == sorted((model, name) for model in (BOLT, THEIRS, BASELINE) for name in names)
    assert all(job.group == job.spec["model"] for job in jobs)
    assert len({job.key for job in jobs}) == len(jobs)


@pytest.mark.parametrize(
    ("mixture", "real", "bundled", "other"),
    [
        ({"kernelsynth": 0.5, "tsmixup": 0.5}, None, True, False),
        ({"bundled": 1.0}, None, True, False),
        ({"priors": 0.5, "periodic": 0.5}, None, False, False),
        ({"shards": 1.0}, [], False, False),
        ({"shards": 1.0}, ["bundled:nile"], True, False),
        ({"shards": 1.0}, ["bundled:co2", "folder/some.parquet"], False, None),
    ],
)
def test_a_data_set_is_trained_on_by_recipes_that_mix_it_in(
    here: Path, mixture: dict[str, float], real: list[str] | None, bundled: bool | None, other: bool | None
) -> None:
    params = params_of(here)
    if real is not None:
        Path("corpus").mkdir()
        Path("corpus/corpus.json").write_text(json.dumps({"seed": 0, "real": real}))
    changes = {"mixture": mixture, "corpus": None if real is None else "corpus"}
    params.checkpoints.recipes[BOLT] = params.checkpoints.recipes[BOLT].model_copy(update=changes)
    for name, expected in (("nile", bundled), ("mine", other), ("linear-2", other)):
        assert is_trained_on(params, row_of(BOLT, "k"), name) is expected
        assert is_trained_on(params, row_of(THEIRS, None), name) is None


def test_an_embedding_from_a_recipe_on_bundled_series_counts(here: Path) -> None:
    params = params_of(here)
    recipe = params.checkpoints.recipes[BOLT].model_copy(update={"mixture": {"bundled": 1.0}})
    params.checkpoints.recipes["first"] = recipe
    changes = {"mixture": {"kernelsynth": 1.0}, "embedding_from": "first"}
    params.checkpoints.recipes[BOLT] = recipe.model_copy(update=changes)
    assert is_trained_on(params, row_of(BOLT, "k"), "nile") is True


def test_a_baseline_leaves_out_the_series_that_it_does_not_forecast(here: Path) -> None:
    jobs = [one.job for one in dataset_skill_jobs(params_of(here), [])]
    (job,) = (job for job in jobs if job.spec["dataset"] == "mine")
    data = dataset_skill.read_series(here, job)
    (row,) = entries.measure_baseline(job, data, load_baseline(job)).rows
    assert (row["n_series"], row["n_windows"], row["trained_on"], row["is_real"]) == (5, 4, False, True)
    assert (row["horizon"], row["season"], row["domain"]) == (6, 7, "nature")
    constant = series_table([Series("mine", "c", np.ones(200, np.float32), freq="D")])
    (row,) = entries.measure_baseline(job, constant, BASELINE).rows
    assert row["n_windows"] == 0 and row["wql"] is None and row["reason"] == f"{BASELINE}: the context is constant"
    to_arrow("dataset_skill", [{**row, "job_key": job.key}])


def test_the_stage_writes_a_row_for_each_data_set_and_the_means(measured: tuple[Path, str]) -> None:
    here, printed = measured
    rows = read_rows(here / "data/checkpoints", "dataset_skill").to_pylist()
    facts = {(row["model"], row["dataset"]): row for row in rows}
    assert set(facts) == {(model, name) for model in (BOLT, THEIRS, BASELINE) for name in ("linear-2", "nile", "mine")}
    assert [facts[model, "nile"]["trained_on"] for model in (BOLT, THEIRS, BASELINE)] == [False, None, False]
    assert [facts[BOLT, name]["is_real"] for name in ("linear-2", "nile", "mine")] == [False, True, True]
    assert (facts[BOLT, "mine"]["n_series"], facts[BOLT, "mine"]["n_windows"]) == (5, 4)
    # The folder has the same weights, and what a model was trained on changes none of its errors.
    for name in ("wql", "mae", "wql_ratio", "mae_ratio"):
        assert facts[BOLT, "nile"][name] == facts[THEIRS, "nile"][name] > 0

    means = {(row["model"], row["kind"]): row for row in read_rows(here / "data/checkpoints", "mean_skill").to_pylist()}
    assert {key: row["n_datasets"] for key, row in means.items()} == {
        (BOLT, "real"): 2, (THEIRS, "real"): 2, (BASELINE, "real"): 2,
        (BOLT, "synthetic"): 1, (THEIRS, "synthetic"): 1, (BASELINE, "synthetic"): 1,
    }  # fmt: skip
    both = [facts[THEIRS, name]["wql_ratio"] for name in ("nile", "mine")]
    assert means[THEIRS, "real"]["wql"] == pytest.approx(np.sqrt(np.prod(both)))
    naive = "relative to point seasonal naive (seasons: table dataset_skill)"
    assert f"checkpoints: {THEIRS}: on 2 real data sets, {naive}: WQL" in printed


def test_a_line_has_an_interval_where_there_is_one() -> None:
    row = {"kind": "real", "n_datasets": 1, "wql": 0.5, "mae": 0.75, "wql_low": None, "wql_high": None}
    row |= {"mae_low": 0.25, "mae_high": 1.0}
    assert mean_line(row) == (
        "on 1 real data set, relative to point seasonal naive (seasons: table dataset_skill): WQL 0.500, "
        "MAE 0.750 [0.250, 1.000]"
    )
