"""`python -m stages NAME` runs one stage: exit codes, and one line for what the user can fix."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stages import STAGES
from stages.__main__ import main

ROOT = Path(__file__).parents[2]
MAKE_SERIES = """
from stages.planning.run_stage import run_stage

for stage in ("external_inputs", "kernelsynth", "datasets"):
    run_stage(stage)
"""


def run(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "params.yaml").write_text((ROOT / "params" / "smoke.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_wrong_key_exits_2_with_one_line_before_any_work(folder: Path) -> None:
    text = (folder / "params.yaml").read_text().replace("series: 6, length", "serie: 6, length")
    (folder / "params.yaml").write_text(text)
    done = run(folder, "-m", "stages", "kernelsynth")
    assert done.returncode == 2
    assert done.stderr.strip() == "params.yaml: kernelsynth.serie: unknown key; did you mean 'series'?"
    assert not (folder / "data").exists()


def test_a_data_root_that_is_no_folder_exits_2(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TSFMSCOPE_DATA", str(folder / "nowhere"))
    assert main(["external_inputs"]) == 2
    assert "no such folder; set TSFMSCOPE_DATA" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["geometri"], ["plan"], ["tokens", "geometry"]], ids=" ".join)
def test_anything_but_the_name_of_one_stage_is_refused(
    folder: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"expected the name of one stage, got {' '.join(arguments) or 'none'}: name one of")
    assert printed.err.count("\n") == 1


def test_stages_are_planned_without_torch_and_ray(folder: Path) -> None:
    """Every stage of `dvc repro` starts a process, and most find that nothing is left to compute."""
    names = ", ".join(f"stages.{stage.name}" for stage in STAGES if stage.name != "compression")
    code = f"import sys, {names}; print({{'torch', 'ray'}} & {{*sys.modules}})"
    assert run(folder, "-c", code).stdout == "set()\n"


@pytest.mark.slow
def test_the_two_stages_that_make_series_write_the_same_bytes_in_another_process(folder: Path) -> None:
    def make(seed: str) -> dict[str, bytes]:
        shutil.rmtree("data", ignore_errors=True)
        done = run(folder, "-c", MAKE_SERIES, TSFMSCOPE_DATA="", PYTHONHASHSEED=seed)
        assert done.returncode == 0, done.stderr
        return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.glob("data/*/**/*.parquet")}

    first = make("1")
    assert {"data/kernelsynth/series/linear-2.parquet", "data/datasets/series/macrodata.parquet"} <= set(first)
    assert make("2") == first
