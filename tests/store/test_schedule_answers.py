"""Whether widening heads forecast better, from rows of forecasts to the p of a paired test, against scipy's own."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import store
from stages.planning.inference import infer
from store import catalogue, files
from tests.store.conftest import open_results
from tsfmscope.compression.options import requested_size
from tsfmscope.statistics.options import SeededOptions

SCHEDULES = {"dense": None, "flow": {"flow": {"first": 2.0}, "factors": "head"}, "flat": {"flat": 8, "factors": "head"}}
SEEDS, DATASETS = range(1, 6), ("a", "b", "c")
OPTIONS = SeededOptions(permutations=999, bootstrap=100, alpha=0.05, seed=0)


@pytest.fixture(scope="module")
def losses() -> dict[tuple[str, int, str], float]:
    """WQL of schedule, seed and data set: flow is about 10 % below flat."""
    rng = np.random.default_rng(3)
    level = {"dense": 0.0, "flow": 0.05, "flat": 0.15}
    return {
        (schedule, seed, dataset): float(np.exp(level[schedule] + seed / 3 + 0.02 * rng.normal()))
        for schedule in SCHEDULES
        for seed in SEEDS
        for dataset in DATASETS
    }


@pytest.fixture(scope="module")
def connection(losses, rows, tmp_path_factory: pytest.TempPathFactory):
    folder: Path = tmp_path_factory.mktemp("schedules")
    names = [f"{schedule}-{seed}" for schedule in SCHEDULES for seed in SEEDS]
    asked = {"study": "s", "x_axis": json.dumps({name: float(name[-1]) for name in names})}
    forecasts = [
        rows["forecasts"]
        | {"model": f"{schedule}-{seed}", "dataset": dataset, "condition": "c", "series": "one", "job_key": "k"}
        | {
            "base_model": None,
            "mase": None,
            "mase_gluonts": None,
            **requested_size(None if schedule == "dense" else {"share": 0.25}),
        }
        | {"wql_window": loss, "quantile_loss": 2 * loss, "target_abs": 2.0, "levels": [0.5]}
        for (schedule, seed, dataset), loss in losses.items()
    ]
    tables = {
        "forecasts": forecasts,
        "checkpoints": [
            rows["checkpoints"]
            | {"model": name, "family": "chronos-t5", "recipe": "r"}
            | {"heads": json.dumps(heads) if (heads := SCHEDULES[name[:-2]]) else None}
            for name in names
        ],
        "study_jobs": [{"study": "s", "stage": "forecasts", "job_key": "k"}],
        "studies": [rows["studies"] | asked],
    }
    for name, lines in tables.items():
        files.write_rows(folder / name, name, lines)
    paths = {name: [folder / name] for name in tables}
    catalogue.build(folder / "units.duckdb", paths)
    with store.open(folder / "units.duckdb", threads=1) as units:
        inferred = infer(units, OPTIONS)
    files.write_rows(folder / "inference", "inference", inferred)
    catalogue.build(folder / "r.duckdb", paths | {"inference": [folder / "inference"]})
    with store.open(folder / "r.duckdb") as opened:
        yield opened


@pytest.mark.parametrize(("first", "second"), [("flow", "flat"), ("flow", "dense"), ("flat", "dense")])
def test_a_pair_of_schedules_is_tested_over_seeds(connection, losses, first: str, second: str) -> None:
    columns = "ratio, low, high, p, n_seeds, n_tests"
    found = connection.execute(
        f"select {columns} from flow_against_flat where pair = ? and measure = 'WQL'",
        [f"{first} less {second} at 0.25"],
    ).fetchall()
    logs = {
        schedule: [np.mean([np.log(losses[schedule, seed, dataset]) for dataset in DATASETS]) for seed in SEEDS]
        for schedule in SCHEDULES
    }
    test = stats.ttest_rel(logs[first], logs[second])
    interval = np.exp(test.confidence_interval(0.95))
    ratio = np.exp(np.mean(logs[first]) - np.mean(logs[second]))
    assert found == [(*map(pytest.approx, (ratio, *interval, test.pvalue)), len(SEEDS), 3)]


def test_a_score_that_no_window_has_is_in_no_test_and_other_answers_are_left_alone(connection) -> None:
    mase = connection.execute("select n_seeds, ratio, reason from flow_against_flat where measure = 'MASE'").fetchall()
    assert mase == [(0, None, "0 units; a spread needs 2")] * 3
    assert connection.execute("select count(*) from rank_tests").fetchall() == [(0,)]


def test_a_training_says_how_it_ended_and_how_fast_it_was(rows, tmp_path: Path) -> None:
    curves = [
        rows["training"] | {"model": model, "job_key": key, "step": step, "loss": loss}
        for model, key in (("whole", "a"), ("trial", "b"))
        for step, loss in ((10, 3.0), (20, 1.0), (30, 2.0))
    ]
    trial = {"model": "trial", "family": "f", "heads": '{"flat": 2}', "seed": 0, "steps": 90, "steps_done": 30}
    timing = {"stage": "checkpoints", "key": "a", "seconds": 2.0, "load_seconds": 0.0, "actor": "a", "node": "n"}
    timing |= {"device": "cpu", "started": datetime(2026, 1, 1, tzinfo=UTC), "tokens_per_s": 7.0}
    models = [rows["checkpoints"] | {"model": name, "recipe": "a", "heads": None} for name in ("whole", "otherwise")]
    tables = {
        "training": curves,
        "trials": [trial | {"loss": 2.0, "ended": "stopped", "ref": None, "recipe": "b"}],
        "timings": [timing],
        "checkpoints": models,
    }
    with open_results(tmp_path, tables) as connection:
        found = connection.sql(
            "select model, heads, steps_done, ended, loss, lowest_loss, tokens_per_s from training_runs order by model"
        ).fetchall()
    assert found == [
        ("trial", '{"flat": 2}', 30, "stopped", 2.0, 1.0, None),
        ("whole", None, 30, "finished", 2.0, 1.0, 7.0),
    ]
