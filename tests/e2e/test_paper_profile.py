"""`tsfmscope rehearse --stages`: all stages of the profile `paper` on released layouts with random weights."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from tests.e2e.checkout import BIN, ROOT, Checkout, checkout
from tsfmscope.stages.cli.app import app
from tsfmscope.stages.cli.rehearsed_profile import METHODS, SMALLEST, reduced_profile
from tsfmscope.stages.config.params import Params
from tsfmscope.tasks.rehearsal.layouts import LAYOUTS

PROFILE = (ROOT / "params" / "paper.yaml").read_text()


@pytest.mark.parametrize("quick", [False, True])
def test_the_reduced_profile_is_valid_and_keeps_models_and_studies(quick: bool) -> None:
    whole, reduced = yaml.safe_load(PROFILE), reduced_profile(yaml.safe_load(PROFILE), quick=quick)
    params = Params.model_validate(reduced)
    assert set(reduced["studies"]) == set(whole["studies"])
    assert set(params.compression.methods) == set(METHODS)
    assert params.datasets.max_series == 1
    assert {condition.context for condition in params.conditions.values()} == {256, 144, 100, 96}
    horizons = {name: data_set.horizon for name, data_set in params.datasets.sets.items()}
    assert max(horizons.values()) == horizons["linear-1"] == 32 and horizons["hospital"] == 12
    for name, study in reduced["studies"].items():
        kept = [one for one in whole["studies"][name]["conditions"] if not quick or one != "text-512"]
        assert study["conditions"] == (["context-500"] if study["models"] == "all" else kept)
    compressed = {name for name in reduced["studies"]["compression-table2"]["models"] if "@" in name}
    if quick:
        assert set(reduced["models"]) == {*SMALLEST, "patchtst"}
        assert set(whole["datasets"]["sets"]) - set(reduced["datasets"]["sets"]) == {"english"}
        assert {name.partition("@")[0] for name in compressed} == {"chronos-t5-base"}
    else:
        assert {name: model["ref"] for name, model in reduced["models"].items()} == {
            name: model["ref"] for name, model in whole["models"].items()
        }
        assert set(reduced["datasets"]["sets"]) == set(whole["datasets"]["sets"])
        assert {name.partition("@")[2] for name in compressed} == set(METHODS)


def rehearse(cwd: Path, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tsfmscope", "rehearse", "--stages", "--quick", "--folder", str(folder), "--json"]
    environment = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "RAY_worker_niceness": "0"}
    environment.pop("PYTHONPATH", None)
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=cwd, env=environment, stdout=pipe, stderr=pipe, text=True)


def test_a_folder_with_another_rehearsal_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (tmp_path / "run.json").write_text('{"commit": "0123", "seed": 0, "quick": true}')
    done = CliRunner().invoke(app, ("rehearse", "--stages", "--folder", str(tmp_path)))
    assert done.exit_code == 2
    assert f"--folder {tmp_path}: has the rehearsal of {{'commit': '0123', 'seed': 0, 'quick': True}}" in done.stderr
    assert "name another folder, or delete this one" in done.stderr


def test_a_folder_of_something_else_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository" / "mine.txt").write_text("mine")
    done = CliRunner().invoke(app, ("rehearse", "--stages", "--folder", str(tmp_path)))
    assert done.exit_code == 2
    assert f"--folder {tmp_path}: has repository, but no rehearsal; name another folder" in done.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["repository", "mine.txt"]


def test_what_cannot_be_rehearsed_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments, message in (
        ((), "--stages: expected a git checkout with params/paper.yaml in the current folder; go there first"),
        (("lag-llama",), "--stages: got names of models too; leave out the names or the option"),
    ):
        done = CliRunner().invoke(app, ("rehearse", "--stages", *arguments))
        assert (done.exit_code, done.stderr.strip()) == (2, f"tsfmscope: {message}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_stage_of_the_paper_profile_runs_on_the_smallest_released_layouts(tmp_path: Path) -> None:
    made, folder = checkout(tmp_path / "checkout"), tmp_path / "rehearsal"
    interrupted = rehearse(made.folder, folder)
    try:
        rows = folder / "repository" / "data" / "embeddings" / "dumps"
        while len(list(rows.glob("part-*"))) < 2 and interrupted.poll() is None:
            time.sleep(0.2)
        interrupted.send_signal(signal.SIGINT)
        _, messages = interrupted.communicate()
    finally:
        interrupted.kill()
    assert interrupted.returncode == 130, messages[-3000:]
    assert "what is done is stored; run the same command again to go on" in messages
    stored = json.loads((folder / "stages.json").read_text())
    assert (stored["tokens"]["is_over"], stored["embeddings"]["is_over"]) == (True, False)

    again = rehearse(made.folder, folder)
    try:
        output, messages = again.communicate()
    finally:
        again.kill()
    assert again.returncode == 0, messages[-3000:]
    found = json.loads(output)
    assert found["failures"] == 0
    stages = {row["stage"]: row for row in found["stages"]}
    assert {"tokens", "embeddings", "geometry", "spectra", "heads", "compression", "forecasts", "report"} <= set(stages)
    assert stages["tokens"]["wall"] == stored["tokens"]["wall"]
    assert stages["embeddings"]["wall"] > stored["embeddings"]["wall"]
    assert 1e8 < stages["embeddings"]["memory"] < 4e9
    of_repository = Checkout(folder / "repository")
    assert of_repository.jobs("embeddings")["reused"] > 0
    originals = {*SMALLEST, "patchtst"} - {"lag-llama-rope"}
    assert {row["model"] for row in found["costs"]} == originals
    for row in found["costs"]:
        # Of series with missing steps, only the fullest window is tokenised for the prediction.
        if row["stage"] == "tokens":
            assert row["rows"] == pytest.approx(row["rows_predicted"], rel=0.1), row
        if row["stage"] == "embeddings":
            assert row["rows"] == row["rows_predicted"], row
            assert row["bytes"] == pytest.approx(row["bytes_predicted"], rel=0.05), row
    measured = {row["model"] for row in of_repository.sql("select distinct model from geometry")}
    assert measured == {*SMALLEST, "patchtst"}
    layers = of_repository.sql("select max(layer) as last from geometry where model = 'chronos-t5-base'")
    assert layers == [{"last": LAYOUTS["chronos-t5-tiny"].config["num_layers"]}]
    compressed = {row["model"] for row in of_repository.sql("select distinct model from compression")}
    assert compressed == {f"chronos-t5-base@{name}" for name in METHODS if name != "share-0.073"}
