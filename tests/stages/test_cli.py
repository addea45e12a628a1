"""`python -m stages`: exit codes, and one line for what the user can mend."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, "-m", "stages", *arguments]
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
    done = run(folder, "roots", TSFM_LENS_DATA=str(folder / "nowhere"))
    assert done.returncode == 2
    assert "no such folder; set TSFM_LENS_DATA" in done.stderr


def test_plan_says_how_much_a_profile_asks_for_and_writes_nothing(folder: Path) -> None:
    done = run(folder, "plan")
    assert done.returncode == 0, done.stderr
    assert "3 models, 4 data sets, 2 conditions" in done.stdout
    assert not (folder / "data").exists()


def test_retry_without_failures_says_so(folder: Path) -> None:
    assert "no stage has failures" in run(folder, "retry").stdout


def test_an_unknown_stage_is_refused(folder: Path) -> None:
    done = run(folder, "geometri")
    assert done.returncode == 2
    assert "geometri" in done.stderr


def test_the_two_stages_that_make_series_write_the_same_bytes_twice(folder: Path) -> None:
    def content() -> dict[str, bytes]:
        return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.glob("data/*/**/*.parquet")}

    variables = {"TSFM_LENS_DATA": ""}
    for stage in ("roots", "kernelsynth", "datasets"):
        assert run(folder, stage, **variables).returncode == 0
    first = content()
    assert {"data/kernelsynth/series/linear-2.parquet", "data/datasets/series/macrodata.parquet"} <= set(first)
    for stage in ("roots", "kernelsynth", "datasets"):
        run(folder, stage, **variables)
    assert content() == first
