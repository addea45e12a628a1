"""`python -m tsfmscope.stages`: exit codes, and one line for what the user can mend."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tsfmscope.stages.config import dvc_keys
from tsfmscope.stages.config.params import load

ROOT = Path(__file__).parents[2]


def run(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, "-m", "tsfmscope.stages", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "params.yaml").write_text((ROOT / "params" / "smoke.yaml").read_text())
    return tmp_path


def test_a_wrong_key_exits_2_with_one_line_before_any_work(folder: Path) -> None:
    text = (folder / "params.yaml").read_text().replace("series: 6, length", "serie: 6, length")
    (folder / "params.yaml").write_text(text)
    done = run(folder, "kernelsynth")
    assert done.returncode == 2
    assert done.stderr.strip() == "params.yaml: kernelsynth.serie: unknown key; did you mean 'series'?"
    assert not (folder / "data").exists()


def test_a_data_root_that_is_no_folder_exits_2(folder: Path) -> None:
    done = run(folder, "external_inputs", TSFMSCOPE_DATA=str(folder / "nowhere"))
    assert done.returncode == 2
    assert "no such folder; set TSFMSCOPE_DATA" in done.stderr


def test_plan_says_how_much_a_profile_asks_for_and_writes_nothing(folder: Path) -> None:
    done = run(folder, "plan")
    assert done.returncode == 0, done.stderr
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
    done = run(folder, "plan")
    assert done.returncode == 0, done.stderr
    horizon = load(folder / "params.yaml").datasets.sets["nile"].horizon
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("│ nile")]
    assert f"{100 - horizon} / {100 - horizon}" in line
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("context 400: no series fills it in ")]
    assert "nile" in line.split(" in ")[1].split(", ")
    assert "not at hand, so their contexts are not known: mine" in done.stdout


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"options": {"precsion": "bfloat16"}}, "options: got ['precsion']; family chronos-t5 takes precision"),
        ({"ref": "checkpoints/nope"}, "ref: checkpoints/nope: no such folder, nor of the form hub:ORG/NAME"),
    ],
)
def test_plan_refuses_what_the_run_would_refuse_of_a_model(folder: Path, model: dict[str, Any], words: str) -> None:
    file = folder / "params.yaml"
    block = yaml.safe_load(file.read_text())
    block["models"]["chronos-t5-nano"] |= model
    file.write_text(yaml.safe_dump(block))
    (folder / "checkpoints").mkdir(exist_ok=True)
    done = run(folder, "plan")
    assert done.returncode != 0
    assert f"models.chronos-t5-nano.{words}" in " ".join(done.stderr.split())


def test_every_key_that_dvc_watches_and_a_file_lacks_is_named_at_once_with_what_to_write(folder: Path) -> None:
    file = folder / "params.yaml"
    block = yaml.safe_load(file.read_text())
    for key in ("seed", "kernelsynth", "spectra", "theory", "checkpoints", "environments"):
        block.pop(key, None)
    for key in ("max_series", "min_length"):
        block["datasets"].pop(key, None)
    block["models"] = {"nano": {"family": "chronos-t5", "ref": "hub:amazon/chronos-t5-tiny"}}
    block["studies"] = {"mine": {"title": "Mine", "models": "all", "measures": ["weights"]}}
    block["compression"], block["report"] = {}, {"study": "mine"}
    file.write_text(yaml.safe_dump(block))
    said = (
        "params.yaml: DVC has no defaults for the keys that dvc.yaml lists; add `seed: 0`, `kernelsynth: {}`, "
        "`environments: {}`, `checkpoints: {recipes: {}}`, `spectra: {}`, `theory: {}`, "
        "and to `datasets` `max_series: 64`, `min_length: 32`"
    )
    for command in ("plan", "external_inputs"):
        done = run(folder, command)
        assert (done.returncode, done.stderr.strip()) == (2, said), command
    block |= {"seed": 0, "environments": {}, "kernelsynth": {}, "spectra": {}, "theory": {}}
    block |= {"checkpoints": {"recipes": {}}, "datasets": {**block["datasets"], "max_series": 64, "min_length": 32}}
    file.write_text(yaml.safe_dump(block))
    assert run(folder, "plan").returncode == 0


@pytest.mark.parametrize("profile", [ROOT / "params.yaml", *sorted((ROOT / "params").glob("*.yaml"))])
def test_every_profile_holds_what_dvc_watches(profile: Path) -> None:
    dvc_keys.check(load(profile), profile)


def test_retry_without_failures_says_so(folder: Path) -> None:
    assert "no stage has failures" in run(folder, "retry").stdout


def test_done_says_where_results_are_only_where_there_are_some(folder: Path) -> None:
    done = run(folder, "done", TSFMSCOPE_DATA="")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("no results at data/results.duckdb; `make repro`")
    (folder / "data").mkdir()
    (folder / "data" / "results.duckdb").touch()
    done = run(folder, "done")
    assert done.returncode == 0 and done.stdout.startswith("results: data/results.duckdb")


def test_an_unknown_stage_is_refused(folder: Path) -> None:
    done = run(folder, "geometri")
    assert done.returncode == 2
    assert "geometri" in done.stderr


def test_the_two_stages_that_make_series_write_the_same_bytes_twice(folder: Path) -> None:
    def content() -> dict[str, bytes]:
        return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.glob("data/*/**/*.parquet")}

    variables = {"TSFMSCOPE_DATA": ""}
    for stage in ("external_inputs", "kernelsynth", "datasets"):
        assert run(folder, stage, **variables).returncode == 0
    first = content()
    assert {"data/kernelsynth/series/linear-2.parquet", "data/datasets/series/macrodata.parquet"} <= set(first)
    for stage in ("external_inputs", "kernelsynth", "datasets"):
        run(folder, stage, **variables)
    assert content() == first
