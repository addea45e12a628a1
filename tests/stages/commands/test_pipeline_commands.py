"""Commands that run the pipeline: plan, profile, retry."""

from __future__ import annotations

import functools
import itertools
import json
import operator
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from stages import PARAMS, STAGES
from stages.commands.runs import use_profile
from stages.config.params import ParamsError, load
from stages.planning.run_stage import run_stage
from stages.planning.sweeping import RETRY_VARIABLE
from store.files import write_rows
from tests.store.conftest import valid_row
from tsfmscope.cli.app import app

ROOT = Path(__file__).parents[3]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "params.yaml").write_text((ROOT / "params" / "smoke.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "200"}, catch_exceptions=False)


def test_plan_says_how_much_a_profile_asks_for_and_writes_nothing(folder: Path) -> None:
    done = run("plan")
    assert done.exit_code == 0, done.stderr
    assert "3 models, 4 data sets, 2 conditions" in done.stdout
    assert not (folder / "data").exists()


def test_plan_reports_the_observed_steps_of_every_context_and_what_is_not_at_hand(folder: Path) -> None:
    params = yaml.safe_load((folder / "params.yaml").read_text())
    params["datasets"]["sets"] |= {"nile": {}, "mine": {"source": "folder", "file": "gone.parquet", "horizon": 4}}
    params["conditions"]["long"] = {"context": 400}
    params["studies"] |= {
        "own": {"title": "own", "models": "all", "datasets": ["nile", "mine"], "conditions": ["long"]}
    }
    params["studies"]["own"]["measures"] = ["isotropy"]
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    done = run("plan")
    assert done.exit_code == 0, done.stderr
    horizon = load(folder / "params.yaml").datasets.sets["nile"].horizon
    (line,) = [line for line in done.stdout.splitlines() if line.split()[:1] == ["nile"]]
    assert f"{100 - horizon} / {100 - horizon}" in line
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("context 400: no series fills it in ")]
    assert "nile" in line.split(" in ")[1].split(", ")
    assert "not on this machine, so their contexts are unknown: mine" in done.stdout
    document = json.loads(run("plan", "--json").stdout)
    assert document["absent"] == ["mine"]
    assert {"study": "own", "models": 2, "datasets": 2, "conditions": 1, "cells": 4} in document["studies"]
    short = {"dataset": "nile", "context": 400, "is_filled": False}
    assert short | {"minimum": 100 - horizon, "median": 100.0 - horizon} in document["contexts"]


def test_plan_extrapolates_the_work_of_a_model_from_its_finished_jobs(folder: Path) -> None:
    params = yaml.safe_load((folder / "params.yaml").read_text())
    params["models"] = {"patchtst-mini": {}, "lag-llama-mini": {}}
    first = next(iter(params["datasets"]["sets"]))
    params["studies"] = {"own": {"title": "own", "models": "all", "datasets": "all", "conditions": ["noisy"]}}
    params["report"] = {"study": "own"}
    params["checkpoints"]["committed"] = str(ROOT / "tsfmscope" / "checkpoints")
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    # One finished cell of one model, with an activation file.
    row = valid_row("dumps") | {"job_key": "a", "model": "patchtst-mini", "dataset": first, "condition": "noisy"}
    write_rows(folder / "data/embeddings/dumps/00000.parquet", "dumps", [row | {"rows": 700, "bytes": 9000}])
    timing = valid_row("timings") | {"stage": "embeddings", "subject": "patchtst-mini", "seconds": 1.5}
    unknown = [row for row in json.loads(run("plan", "--json").stdout)["work"] if row["measured"]]
    assert [(row["jobs"], row["seconds"]) for row in unknown] == [(None, None)]
    # A job that ran twice counts once.
    write_rows(folder / "data/timings/embeddings/timings/00000.parquet", "timings", [timing | {"seconds": 9.0}, timing])
    work = {(row["stage"], row["model"]): row for row in json.loads(run("plan", "--json").stdout)["work"]}
    assert set(work) == set(itertools.product(("tokens", "embeddings", "forecasts", "geometry"), params["models"]))
    found = work["embeddings", "patchtst-mini"]
    cells = found["cells"]
    assert cells > 1
    assert (found["measured"], found["jobs"], found["rows"]) == (1, cells, 700 * cells)
    assert (found["bytes"], found["seconds"]) == (9000 * cells, 1.5 * cells)
    assert {row["seconds"] for key, row in work.items() if key != ("embeddings", "patchtst-mini")} == {None}
    (line,) = [line for line in run("plan").stdout.splitlines() if line.split()[:1] == ["embeddings"]]
    assert line.split() == ["embeddings", str(2 * cells), str(cells), str(cells), str(700 * cells), *line.split()[5:]]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"options": {"precsion": "bfloat16"}}, "options: got ['precsion']; family chronos-t5 takes precision"),
        (
            {"family": "chronos-t5", "ref": "checkpoints/nope"},
            "ref: checkpoints/nope: no such folder, nor of the form hub:ORG/NAME",
        ),
    ],
)
def test_plan_refuses_what_the_run_would_refuse_of_a_model(folder: Path, model: dict[str, Any], words: str) -> None:
    file = folder / "params.yaml"
    block = yaml.safe_load(file.read_text())
    block["models"]["chronos-t5-nano"] |= model
    file.write_text(yaml.safe_dump(block))
    (folder / "checkpoints").mkdir(exist_ok=True)
    done = run("plan")
    assert done.exit_code != 0
    assert f"models.chronos-t5-nano.{words}" in " ".join(done.stderr.split())


def test_a_file_of_models_and_studies_is_enough_and_all_values_are_written(folder: Path) -> None:
    block = {
        "models": {"nano": {"family": "chronos-t5", "ref": "hub:amazon/chronos-t5-tiny"}},
        "studies": {"mine": {"title": "Mine", "models": "all", "measures": ["weights"]}},
    }
    (folder / "params.yaml").write_text(yaml.safe_dump(block))
    assert run("plan").exit_code == 0
    run_stage("external_inputs")
    values = json.loads((folder / PARAMS).read_text())
    assert (values["seed"], values["datasets"]["max_series"], values["theory"]) == (0, 64, None)
    for key in {key for stage in STAGES for key in stage.params}:
        functools.reduce(operator.getitem, key.split("."), values)  # KeyError if it is missing


def test_profile_copies_a_file_of_params_and_prints_its_plan(folder: Path) -> None:
    (folder / "params").mkdir()
    text = (folder / "params.yaml").read_text()
    (folder / "params" / "small.yaml").write_text(text)
    (folder / "params.yaml").write_text(text + "\n# an edit\n")
    done = run("profile", "small")
    assert done.exit_code == 2 and "has edits" in done.stderr
    done = run("profile", "small", "--force")
    assert done.exit_code == 0, done.stderr
    assert "3 models, 4 data sets, 2 conditions" in done.stdout
    assert (folder / "params.yaml").read_text() == text
    assert "no profile 'smal' in params; known: small" in run("profile", "smal").stderr


def test_retry_runs_the_stages_that_have_failures(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("retry").stdout == "no stage has failures\n"
    assert json.loads(run("retry", "--json").stdout) == {"stages": []}
    ran: list[tuple[str, str | None]] = []
    monkeypatch.setattr("stages.planning.sweeping.stages_with_failures", lambda: ["tokens", "heads"])
    monkeypatch.setattr(
        "stages.planning.run_stage.run_stage", lambda name: ran.append((name, os.environ.get(RETRY_VARIABLE)))
    )
    done = run("retry", "--json")
    assert json.loads(done.stdout) == {"stages": ["tokens", "heads"]} and "retrying tokens, heads" in done.stderr
    assert ran == [("tokens", "1"), ("heads", "1")]
    assert RETRY_VARIABLE not in os.environ
    assert run("retry").stdout.splitlines()[-1].startswith("now run `dvc repro`")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two profiles and a committed params.yaml that equals neither."""
    (tmp_path / "params").mkdir()
    (tmp_path / "params" / "smoke.yaml").write_text("profile: smoke\n")
    (tmp_path / "params" / "paper.yaml").write_text("profile: paper\n")
    (tmp_path / "params.yaml").write_text("profile: default\n")
    commit = ["-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "first"]
    for command in (["init", "-q"], ["add", "."], commit):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "params.yaml"


def test_profiles_replace_the_committed_file_and_each_other(workspace: Path) -> None:
    for name in ("smoke", "paper", "smoke"):
        use_profile(name)
        assert workspace.read_text() == f"profile: {name}\n"


def test_edits_are_kept_unless_they_are_given_up(workspace: Path) -> None:
    edited = "profile: default\n# mine\n"
    workspace.write_text(edited)
    with pytest.raises(ParamsError, match=r"params\.yaml has edits .*cp params\.yaml params/mine\.yaml.*FORCE=1"):
        use_profile("smoke")
    assert workspace.read_text() == edited
    use_profile("smoke", force=True)
    assert workspace.read_text() == "profile: smoke\n"


def test_edits_that_are_kept_as_a_profile_may_be_replaced(workspace: Path) -> None:
    workspace.write_text("profile: mine\n")
    (workspace.parent / "params" / "mine.yaml").write_text("profile: mine\n")
    use_profile("smoke")
    use_profile("mine")
    assert workspace.read_text() == "profile: mine\n"


def test_without_git_a_file_that_is_no_profile_counts_as_edited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "params").mkdir()
    (tmp_path / "params" / "smoke.yaml").write_text("profile: smoke\n")
    monkeypatch.chdir(tmp_path)
    use_profile("smoke")
    (tmp_path / "params.yaml").write_text("profile: other\n")
    with pytest.raises(ParamsError, match="has edits"):
        use_profile("smoke")


def test_an_unknown_profile_names_the_known_ones(workspace: Path) -> None:
    with pytest.raises(ParamsError, match="no profile 'smok' in params; known: paper, smoke"):
        use_profile("smok")
