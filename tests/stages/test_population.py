"""Trainings of a population: validation loss of snapshots, tests by half of the data sets, and frozen hypotheses."""

from __future__ import annotations

import json
import math
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

from stages import external_inputs
from stages.config.params import ParamsError
from stages.planning.checkpoints import population_jobs
from stages.planning.inference import infer
from stages.planning.population_tests import (
    ANSWERS,
    frozen_commit,
    hypothesis_columns,
    population_rows,
    read_hypotheses,
)
from stages.statistics import infer_saved
from store import saved_results
from tasks.checkpoints import measure_validation_loss
from tests.population import HYPOTHESIS, QUICK, is_confirming, population_tables
from tests.stages.config.test_population import BOLT, RECIPE, block, read
from tests.stages.estimates import differences
from tests.store.conftest import open_results
from tsfmscope.models.chronos import ChronosBolt
from tsfmscope.models.registry import snapshots
from tsfmscope.statistics.options import SeededOptions
from tsfmscope.training.held_out import validation_loss
from tsfmscope.training.options import Recipe
from tsfmscope.training.pretraining import pretrain


def test_the_validation_loss_is_that_of_unseen_series_and_falls_in_training(tmp_path: Path) -> None:
    entries = {"family": "chronos-bolt", "config": BOLT, "seed": 0, **RECIPE, "phases": [], "snapshots": [1]}
    recipe = Recipe.model_validate(entries | {"steps": 120, "futures": [], "weight_decay": 0.0, "warm_up": 0})
    pretrain(recipe, tmp_path, model="m", key="k")
    models = [ChronosBolt.load(snapshots(tmp_path)[1]), ChronosBolt.load(tmp_path)]
    early, late = (validation_loss(model, recipe, batches=4, seed=0) for model in models)
    assert early[1] == late[1] == 4 * (640 // 80)
    assert late[0] < early[0]
    # The same windows for all seeds of a recipe, and other windows with another seed of the study.
    assert validation_loss(models[1], recipe.model_copy(update={"seed": 1}), batches=4, seed=0) == late
    assert validation_loss(models[1], recipe, batches=4, seed=1) != late


def test_there_is_one_job_for_each_snapshot_at_hand(tmp_path: Path) -> None:
    params = read(block())
    model = ChronosBolt.new(BOLT, seed=0)
    model.save(tmp_path)
    row = {"family": "chronos-bolt", "ref": str(tmp_path), "options": None, "fingerprint": "f"}
    names = [*params.models][:-1]
    jobs = [planned.job for planned in population_jobs(params, [row | {"model": name} for name in names])]
    assert [job.spec["model"] for job in jobs] == names
    assert len({job.key for job in jobs}) == len(jobs)
    (found,) = measure_validation_loss(jobs[0], None, model).rows
    expected = {"model": "chronos-bolt-small-0-step-10", "run": "chronos-bolt-small-0", "family": "chronos-bolt"}
    expected |= {"size": "small", "run_seed": 0, "step": 10, "is_final": False}
    assert {name: found[name] for name in expected} == expected
    assert math.isfinite(found["validation_loss"]) and found["n_windows"] == 16 * 8
    assert not [*population_jobs(params.model_copy(update={"population": None}), [row | {"model": names[0]}])]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """A catalogue of the population, only for reading."""
    with open_results(tmp_path_factory.mktemp("population"), population_tables()) as connection:
        yield connection


def test_the_confirming_half_is_scored_for_hypotheses_only(results: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    path = tmp_path / "hypotheses.yaml"
    path.write_text(yaml.safe_dump([HYPOTHESIS]))
    tables = population_tables()
    alone = [*population_rows(results, QUICK, [])]
    inference = infer(results, QUICK, read_hypotheses(path))
    own = results.sql("select distinct model, dataset from independent_units").fetchall()
    rows = [row for row in inference if row["answer"] in ANSWERS.values()]
    assert {row["block"] for row in alone} == {"explored"}
    (confirmed,) = [row for row in rows if row["block"] == "confirmed"]
    assert len(rows) == len(alone) + 1
    assert [row["n_tests"] for row in rows if row["answer"] == "hypothesis_tests"] == [1]
    # zeta counts with its sign turned: more isotropic runs have less error here.
    assert confirmed["measure"] == "zeta" and confirmed["statistic"] == "spearman"
    assert confirmed["estimate"] < -0.9 and confirmed["p"] == confirmed["p_smallest"] == 1.0  # of two families
    n_confirming = sum(is_confirming(f"set-{n}") for n in range(10))
    assert confirmed["n"] == 6 * n_confirming and 0 < n_confirming < 10
    groupings = {row["grouping"]: row for row in alone if row["measure"] == "zeta" and row["statistic"] == "spearman"}
    assert set(groupings) == {"across_runs", "inside_families", "across_seeds", "within_runs"}
    assert groupings["within_runs"]["n_clusters"] == 2  # families
    claims = [row | {"commit": "c"} for row in hypothesis_columns(read_hypotheses(path), inference)]
    with open_results(tmp_path, tables | {"inference": inference, "hypotheses": claims}) as connection:
        assert differences(connection, inference) == []
        (verdict,) = connection.sql("select verdict, estimate from hypothesis_tests").fetchall()
    assert verdict == ("undecided", confirmed["estimate"])
    # The other tests leave out snapshots and the confirming half.
    assert {model for model, _ in own} == {f"r{run}" for run in range(6)}
    assert not any(is_confirming(name) for _, name in own)
    by_dataset = {row["block"] for row in inference if row["answer"] == "correlation_by_dataset"}
    assert by_dataset == {name for _, name in own}


def test_values_that_are_not_finite_are_left_out_by_both(tmp_path: Path) -> None:
    tables = population_tables()
    population = {row["model"]: row for row in tables["population"]}
    population["r0-step-2"]["validation_loss"] = math.nan
    for step in (1, 2, 3):
        population[f"r1-step-{step}"]["validation_loss"] = population["r1"]["validation_loss"]
    for row in tables["forecasts"]:
        row |= {"quantile_loss": math.inf} if row["model"] == "r2" else {}
    with open_results(tmp_path, tables) as connection:
        assert differences(connection, infer(connection, QUICK)) == []


@pytest.mark.parametrize("change", [{"measure": "zetta"}, {"study": "nowhere"}, {"grouping": "noise"}])
def test_a_hypothesis_about_nothing_that_was_measured_is_an_error(
    results: duckdb.DuckDBPyConnection, tmp_path: Path, change: dict[str, str]
) -> None:
    path = tmp_path / "hypotheses.yaml"
    path.write_text(yaml.safe_dump([HYPOTHESIS | change]))
    hypotheses = read_hypotheses(path)
    known = infer(results, QUICK, [*hypotheses, *read_hypotheses_of(HYPOTHESIS, tmp_path)])
    with pytest.raises(ParamsError, match=rf"'h'.*{next(iter(change.values()))}.*found 0; known: s zeta across_runs"):
        hypothesis_columns(hypotheses, known)


def read_hypotheses_of(block: dict[str, Any], folder: Path) -> list[Any]:
    path = folder / "one.yaml"
    path.write_text(yaml.safe_dump([block]))
    return read_hypotheses(path)


def test_p_is_adjusted_over_the_whole_file_and_a_margin_decides_that_there_is_no_effect(tmp_path: Path) -> None:
    rows = [
        {"study": "s", "answer": "hypothesis_tests", "measure": measure, "block": "confirmed", **columns}
        for measure, columns in {
            "a": {"grouping": "across_runs", "statistic": "spearman", "p": 0.01, "estimate": -0.4, "low": -0.6},
            "b": {"grouping": "across_runs", "statistic": "spearman", "p": 0.9, "estimate": 0.01, "low": -0.1},
            "c": {"grouping": "noise", "statistic": "more_error", "p": 0.02, "estimate": 0.7, "low": 0.6},
            "d": {"grouping": "across_runs", "statistic": "spearman", "p": None, "estimate": None, "low": None},
            "e": {"grouping": "across_runs", "statistic": "spearman", "p": 0.8, "estimate": 0.01, "low": -0.1},
        }.items()
    ]
    highs, detectable = {"a": -0.2, "b": 0.1, "c": 0.8, "d": None, "e": 0.1}, {"b": 0.15, "e": 0.3}
    for row in rows:
        row |= {"high": highs[row["measure"]], "detectable": detectable.get(row["measure"], 0.2), "n": 9}
        row |= {"reason": None if row["p"] else "nothing to test"}
        row |= {"n_clusters": 3, "n_tests": 4, "alpha": 0.05, "seed": 0, "p_by": row["p"], "p_bh": row["p"]}
    common = {"margin": 0.2, "claim": "c", "study": "s", "direction": "negative"}
    blocks = [common | {"name": name, "measure": name, "grouping": "across_runs"} for name in "abde"]
    blocks.append(common | {"name": "c", "measure": "c", "grouping": "noise", "statistic": "more_error"})
    path = tmp_path / "hypotheses.yaml"
    path.write_text(yaml.safe_dump(blocks))
    claims = {row["name"]: row for row in hypothesis_columns(read_hypotheses(path), rows)}
    assert {name: row["p_holm"] for name, row in claims.items()} == pytest.approx(
        {"a": 0.04, "b": 1.0, "c": 0.06, "d": None, "e": 1.0}
    )
    assert claims["c"]["centre"] == 0.5 and claims["c"]["error"] is None and claims["a"]["centre"] == 0.0
    claims["c"]["p_holm"] = 0.03
    tables = {"inference": rows, "hypotheses": [row | {"commit": "c"} for row in claims.values()]}
    with open_results(tmp_path, tables) as connection:
        verdicts = dict(connection.sql("select name, verdict from hypothesis_tests").fetchall())
    # e would have missed an effect as large as its margin.
    expected = {"a": "holds", "b": "no effect", "c": "reversed", "d": "not tested", "e": "undecided"}
    assert verdicts == expected


@pytest.mark.parametrize(
    ("change", "texts"),
    [
        ({"direction": "down"}, ["0.direction"]),
        ({"measur": "zeta"}, ["0.measur"]),
        ({"grouping": "everywhere"}, ["0.grouping"]),
        (None, ["'h' occurs twice"]),
        ("{", ["cannot be read"]),
    ],
)
def test_a_wrong_file_of_hypotheses_is_one_line(tmp_path: Path, change: Any, texts: list[str]) -> None:
    path = tmp_path / "hypotheses.yaml"
    twice = [HYPOTHESIS, HYPOTHESIS]
    path.write_text(change if isinstance(change, str) else yaml.safe_dump([HYPOTHESIS | change] if change else twice))
    with pytest.raises(ParamsError) as error:
        read_hypotheses(path)
    assert "\n" not in str(error.value) and all(text in str(error.value) for text in texts), str(error.value)


def test_hypotheses_that_can_still_change_confirm_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("hypotheses.yaml")
    path.write_text("[]\n")
    with pytest.raises(ParamsError, match="git status: failed"):
        frozen_commit(path)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    with pytest.raises(ParamsError, match="not committed"):
        frozen_commit(path)
    subprocess.run([*git, "add", str(path)], check=True)
    subprocess.run([*git, "commit", "--quiet", "-m", "m"], check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    assert frozen_commit(path)["commit"] == head
    assert abs(frozen_commit(path)["committed"].timestamp() - time.time()) < 60
    path.write_text("[ ]\n")
    with pytest.raises(ParamsError, match="not committed"):
        frozen_commit(path)
    subprocess.run([*git, "commit", "--quiet", "-am", "m"], check=True)
    with pytest.raises(ParamsError, match="changed by 2 commits, expected 1"):
        frozen_commit(path)


def test_a_change_of_the_hypotheses_changes_what_the_stage_depends_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TSFMSCOPE_DATA", raising=False)
    params = read(block(hypotheses="hypotheses.yaml"))
    found = []
    for text in (None, "[]\n", "[ ]\n"):
        if text:
            Path("hypotheses.yaml").write_text(text)
        external_inputs.main(params)
        found.append(json.loads(Path("data/params.json").read_text())["population"]["hypotheses_fingerprint"])
    assert found[0] is None and len(set(found)) == 3


def test_the_params_may_say_which_data_sets_confirm(tmp_path: Path) -> None:
    tables = population_tables()
    for row in tables["datasets"]:
        row["confirms"] = None if row["dataset"] == "set-0" else row["dataset"] in ("set-1", "set-2")
    with open_results(tmp_path, tables) as connection:
        halves = dict(connection.sql("select distinct dataset, half from population_units").fetchall())
    assert {name for name, half in halves.items() if half == "confirmed"} - {"set-0"} == {"set-1", "set-2"}
    assert halves["set-0"] == ("confirmed" if is_confirming("set-0") else "explored")


def test_saved_batches_of_a_population_are_tested_together(tmp_path: Path) -> None:
    tables, folder = population_tables(), tmp_path / "batches"
    for number in (0, 1):
        part = {
            name: [r for r in rows if "run" not in r or int(r["run"][1]) % 2 == number] for name, rows in tables.items()
        }
        models = {row["model"] for row in part["population"]}
        part |= {name: [row for row in tables[name] if row["model"] in models] for name in ("geometry", "forecasts")}
        part["checkpoints"] = [row for row in tables["checkpoints"] if row["model"] in models]
        with open_results(tmp_path / f"results-{number}", part) as connection:
            (database,) = connection.sql("select path from duckdb_databases() where not internal").fetchall()[0]
        saved_results.save(Path(database), folder / f"batch-{number}")
        # Statistics of a batch are about that batch alone: they do not count among those of all.
        infer_saved(folder / f"batch-{number}", None, SeededOptions())
    path = tmp_path / "hypotheses.yaml"
    with open_results(tmp_path / "whole", tables) as connection:
        expected = infer(connection, SeededOptions(), [])
    rows = infer_saved(folder, None, SeededOptions())
    names = [*ANSWERS.values(), "correlation"]
    found, numbers = ([row for row in part if row["answer"] in names] for part in (rows, expected))
    assert len(found) == len(numbers) > 20
    for one, other in zip(found, numbers, strict=True):
        assert all(one[name] == other[name] for name in ("measure", "grouping", "statistic", "n"))
        # Saved numbers are float32.
        estimates = [math.nan if row.get("estimate") is None else row["estimate"] for row in (one, other)]
        assert estimates[0] == pytest.approx(estimates[1], abs=1e-6, nan_ok=True)
    with saved_results.connect(folder) as connection:
        assert connection.sql("select count(*) from datasets").fetchall() == [(10,)]
        assert connection.sql("select count(*) from inference").fetchall() == [(len(rows),)]
    path.write_text("[]")
    with pytest.raises(ParamsError):
        infer_saved(folder, path, SeededOptions())
