"""Every way to ask wrongly: stderr names the key, the value and the mend, and the exit code is the documented one."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from tsfmscope.cli.app import app

ROOT = Path(__file__).parents[3]
BOLT = "chronos-bolt-mini"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "params.yaml").write_text((ROOT / "params" / "full.yaml").read_text())
    (tmp_path / "checkpoints").symlink_to(ROOT / "tsfmscope" / "checkpoints")
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"city": ["a", "b"], "word": ["x", "y"]}).to_csv("words.csv", index=False)
    pd.DataFrame({"y": [1.0, 2.0, 4.0]}).to_csv("short.csv", index=False)
    pd.DataFrame({"y": range(50)}).to_csv("long.csv", index=False)
    pd.DataFrame({"y": [3.0] * 60, "z": [None] * 60}).to_csv("dull.csv", index=False)
    Path("empty").mkdir()
    Path("no.txt").write_text("1,2")
    return tmp_path


@pytest.mark.parametrize(("arguments", "code", "said"), [
    (("inspect", "chronos-bold-mini", "nile"), 2, "did you mean chronos-bolt-mini"),
    (("inspect", "chronos-bold:checkpoints/" + BOLT, "nile"), 2, "unknown family 'chronos-bold'; did you mean"),
    (("inspect", "nothing", "nile", "--family", "patchtst"), 2, "nothing: expected a bundled model, a folder"),
    (("inspect", "nile", BOLT), 2, "hub:ORG/NAME; it is data, and the model comes first"),
    (("inspect", "words.csv", BOLT), 2, "hub:ORG/NAME; it is data, and the model comes first"),
    (("inspect", "nothing", "nile"), 2, "; `tsfmscope models` lists those that are bundled"),
    (("inspect", "empty", "nile"), 2, "empty: its config.json names no known family; pass one with --family"),
    (("inspect", BOLT, "nile", "--family", "moirai"), 2, "is of family chronos-bolt; leave the family out"),
    (("inspect", BOLT, "nille"), 2, "got 'nille', which is no file, no folder and no data set; did you mean nile"),
    (("inspect", BOLT, "missing.csv"), 2, "got 'missing.csv', which is no file"),
    (("inspect", BOLT, "~nosuch/x"), 2, "got '~nosuch/x', which is no file"),
    (("inspect", BOLT, "x" * 300), 2, "which is no file, no folder and no data set"),
    (("inspect", "x" * 300, "nile"), 2, "expected a bundled model, a folder"),
    (("inspect", "chronos-bolt:~nosuch/x", "nile"), 1, "~nosuch/x: no such folder"),
    (("inspect", BOLT, "nile", "--context", "1000000000"), 2, "--context"),
    (("embed", BOLT, "nile", "--context", "1000000000"), 2, "--context"),
    (("inspect", BOLT, "english"), 2, "english: text data, but model chronos-bolt-mini reads series"),
    (("inspect", BOLT, "nile", "--device", "cuda:99"), 2, "--device: got 'cuda:99', expected a device of this machine"),
    (("inspect", BOLT, "nile", "--out", "look.gif"), 2, "expected a name that ends in .html, .png, .svg"),
    (("inspect", BOLT, "nile", "--context", "4"), 2, "--context"),
    (("inspect", BOLT), 2, "Missing argument"),
    (("inspect", f"checkpoints/{BOLT}/model.safetensors", "nile"), 1, "a folder; name the folder that contains it"),
    (("inspect", "chronos-bolt:empty", "nile"), 1, "not a checkpoint"),
    (("inspect", "chronos-t5-mini@joint-0.25", "nile"), 2, "expected a bundled model, a folder"),
    (("inspect", "moirai:checkpoints/" + BOLT, "nile"), 1, "so this is no moirai checkpoint"),
    (("inspect", BOLT, "words.csv"), 1, "expected a column of numbers, got 'city'"),
    (("inspect", BOLT, "nile", "--time", "ds"), 2, "expected a file, got the data set 'nile'"),
    (("inspect", BOLT, "long.csv", "--value", "x"), 1, "expected a column of the table for --value, got 'x'"),
    (("inspect", BOLT, "short.csv"), 1, "short.csv: no usable series: 1 too short: under 32 steps"),
    (("inspect", BOLT, "long.csv", "--horizon", "40"), 1, "too short for 16 steps of context and a horizon of 40"),
    (("inspect", BOLT, "dull.csv"), 1, "1 constant"),
    (("inspect", BOLT, "empty"), 1, "the folder contains no file of .csv"),
    (("inspect", BOLT, "no.txt"), 1, "expected a file that ends in .csv"),
    (("report",), 2, "no results at data/results.duckdb; `make repro` (or `dvc repro`) makes them"),
    (("sql", "select 1"), 2, "no database at data/results.duckdb"),
    (("sql", "none.sql"), 2, "none.sql cannot be read"),
    (("tables", "geometri"), 2, "unknown table or view 'geometri', near: geometry"),
    (("status",), 2, "no status in data/.status"),
    (("failures",), 2, "no results in data; `make repro`"),
    (("plan", "none.yaml"), 2, "none.yaml: No such file"),
    (("profile", "none"), 2, "no profile 'none' in params; known: none"),
    (("embed", BOLT, "nile", "--layer", "9"), 2, "--layer: got 9, expected 'last', 'best' or 0 to 4"),
    (("embed", BOLT, "nile", "--layer", "first"), 2, "--layer: got 'first', expected"),
    (("embed", BOLT, "nile", "--stack", "middle"), 2, "--stack: got 'middle', expected one of encoder, decoder"),
    (("embed", BOLT, "nile", "--out", "vectors.xlsx"), 2, "expected a name that ends in .csv, .parquet"),
    (("export", "chronos-bold-mini", "out"), 2, "did you mean chronos-bolt-mini"),
    (("export", BOLT, "checkpoints"), 2, "checkpoints: is there already, and not empty; name a new folder"),
    (("check-family", "chronos-bold"), 2, "unknown family 'chronos-bold'; did you mean"),
    (("corpus", "out", "--real", "none.parquet"), 2, "--real none.parquet: "),
    (("new", "study", "isotropy", "--models", "all", "--measures", "weights"), 2, "a study has this name already"),
    (("new", "study", "mine", "--models", "chronos-bold-mini", "--measures", "weights"), 2, "did you mean"),
    (("new", "study", "mine", "--models", BOLT), 2, "datasets: got none, but data are needed for isotropy"),
    (("new", "study", "a b", "--models", BOLT, "--measures", "weights"), 2, "invalid name 'a b'"),
    (("new", "study", "mine", "--models", BOLT, "--measures", "weight"), 2, "studies.mine.measures.0"),
    (("new", "study", "mine", "--models", BOLT, "--params", "other.yaml"), 2, "other.yaml: No such file"),
    (("advice",), 2, "No such command 'advice'"),
], ids=lambda value: " ".join(value) if isinstance(value, tuple) else None)  # fmt: skip
def test_what_is_wrong_is_one_line_and_a_code(folder: Path, arguments: tuple[str, ...], code: int, said: str) -> None:
    before = {path.name for path in folder.iterdir()}, (folder / "params.yaml").read_bytes()
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert said in " ".join(done.stderr.split())
    assert done.exit_code == code
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert ({path.name for path in folder.iterdir()}, (folder / "params.yaml").read_bytes()) == before


@pytest.mark.parametrize("arguments", [
    ("inspect", "x" * 100_000, "nile"),
    ("inspect", BOLT, "x" * 100_000),
    ("inspect", BOLT, "nile", "--context", "9" * 4000 + "x" * 96_000),
    ("inspect", BOLT, "nile", "--" + "x" * 100_000),
    ("x" * 100_000,),
    ("--" + "x" * 100_000,),
    ("tables", "x" * 100_000),
    ("corpus", "out", "--kernels", "x" * 100_000),
], ids=lambda value: " ".join(part[:20] for part in value))  # fmt: skip
def test_a_long_input_is_shortened_in_the_error(folder: Path, arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert done.exit_code in (1, 2) and done.stdout == "" and "Traceback" not in done.stderr
    assert 20 < len(done.stderr) < 3000, len(done.stderr)


def test_a_folder_without_params_yaml_has_the_packages_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["inspect", "chronos-bolt-mini", "nile"]).exit_code == 0
    done = CliRunner().invoke(app, ["inspect", "chronos-bolt-mimi", "nile"])
    assert done.exit_code == 2
    assert re.search("did you mean .*chronos-bolt-mini", done.stderr)
    assert not list(tmp_path.iterdir())


def test_the_version_is_pyproject_tomls() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert done.stdout == f"tsfmscope {tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']['version']}\n"
