"""`python -m stages NAME` runs one stage: exit codes, and one line for what the user can fix."""

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
    done = run(folder, "external_inputs", TSFMSCOPE_DATA=str(folder / "nowhere"))
    assert done.returncode == 2
    assert "no such folder; set TSFMSCOPE_DATA" in done.stderr


@pytest.mark.parametrize("arguments", [(), ("geometri",), ("plan",), ("tokens", "geometry")], ids=" ".join)
def test_anything_but_the_name_of_one_stage_is_refused(folder: Path, arguments: tuple[str, ...]) -> None:
    done = run(folder, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"expected the name of one stage, got {' '.join(arguments) or 'none'}: name one of")
    assert done.stderr.count("\n") == 1


def test_the_two_stages_that_make_series_write_the_same_bytes_twice(folder: Path) -> None:
    def content() -> dict[str, bytes]:
        return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.glob("data/*/**/*.parquet")}

    variables = {"TSFMSCOPE_DATA": ""}
    for stage in ("external_inputs", "kernelsynth", "datasets"):
        assert run(folder, stage, **variables).returncode == 0
    first = content()
    assert {"data/kernelsynth/series/linear-2.parquet", "data/datasets/series/macrodata.parquet"} <= set(first)
    for stage in ("kernelsynth", "datasets"):
        run(folder, stage, **variables)
    assert content() == first
