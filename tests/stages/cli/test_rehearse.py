"""`tsfmscope rehearse`: one row per model, continued after an interruption; what fails is named."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tsfmscope.stages.cli import rehearsing
from tsfmscope.stages.cli.app import app
from tsfmscope.stages.config.params import ParamsError
from tsfmscope.tasks.errors import ModelError
from tsfmscope.tasks.rehearsal.layouts import LAYOUTS, QUICK, Checks


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ("rehearse", *arguments), prog_name="tsfmscope", catch_exceptions=False)


def test_a_released_model_passes_and_its_row_is_used_again(tmp_path: Path) -> None:
    arguments = ("chronos-bolt-tiny", "--folder", str(tmp_path / "rows"), "--json")
    first = run(*arguments)
    assert first.exit_code == 0, first.output
    (row,) = json.loads(first.stdout)
    assert (row["status"], row["reason"], row["parameters"], row["layers"]) == ("passed", None, 8_652_672, 8)
    assert row["bytes"] == 34_622_352 + 1120
    # A process with torch, and the weights twice.
    assert row["peak_bytes"] > row["peak_bytes_load"] / 2 > 35e6
    assert {path.name for path in (tmp_path / "rows").iterdir()} == {"chronos-bolt-tiny.json"}
    # Without a terminal, a line per model takes the place of the bar.
    assert [line for line in first.stderr.splitlines() if line.startswith("chronos")] == [
        "chronos-bolt-tiny, 0 of 1 done"
    ]
    before = (tmp_path / "rows" / "chronos-bolt-tiny.json").stat().st_mtime_ns
    again = run(*arguments)
    assert json.loads(again.stdout) == [row]
    assert (tmp_path / "rows" / "chronos-bolt-tiny.json").stat().st_mtime_ns == before


def test_a_model_that_differs_fails_by_name_and_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huge = dataclasses.replace(LAYOUTS["lag-llama"], checks=Checks(1e15))
    monkeypatch.setattr(rehearsing, "LAYOUTS", {**LAYOUTS, "lag-llama": huge})
    done = run("lag-llama", "--folder", str(tmp_path))
    assert done.exit_code == 1
    assert "failed: lag-llama: disk: needs about 8000000.0 GB" in done.stdout
    assert "free some of it, or name another --folder" in done.stdout
    assert rehearsing.stored_row(tmp_path, huge, 0) is None
    assert {path.name for path in tmp_path.iterdir()} == {"lag-llama.json"}


def test_a_row_of_another_seed_or_layout_is_not_used(tmp_path: Path) -> None:
    layout = LAYOUTS["lag-llama"]
    row = {"key": rehearsing.layout_key(layout, 0), "status": "passed"}
    (tmp_path / "lag-llama.json").write_text(json.dumps(row))
    assert rehearsing.stored_row(tmp_path, layout, 0) == row
    assert rehearsing.stored_row(tmp_path, layout, 1) is None
    changed = dataclasses.replace(layout, config={**layout.config, "n_layer": 9})
    assert rehearsing.stored_row(tmp_path, changed, 0) is None
    (tmp_path / "lag-llama.json").write_text('{"key": ')
    assert rehearsing.stored_row(tmp_path, layout, 0) is None


@pytest.mark.parametrize(
    ("step", "environment", "message"),
    [
        (
            "inspect",
            {"HF_ENDPOINT": "http://127.0.0.1:9"},
            "hub:time-series-foundation-models/Lag-Llama: .*HF_ENDPOINT",
        ),
        ("sort", {}, "its process ended with code 1 and no result; its last messages: .*KeyError: 'sort'"),
    ],
    ids=["no hub", "fault"],
)
def test_a_step_that_fails_states_the_reason_of_its_process(
    tmp_path: Path, step: str, environment: dict[str, str], message: str
) -> None:
    with pytest.raises(ModelError, match=f"(?s){message}"):
        rehearsing.run_step(step, "lag-llama", tmp_path, 0, environment)


def test_a_process_that_the_system_ends_is_told_from_one_that_fails() -> None:
    assert "ended by signal 9, as the system does when memory is short" in rehearsing._describe_end("write", -9, "")


def test_models_are_all_the_smallest_or_the_named_ones_each_once() -> None:
    assert rehearsing.choose_models([], quick=False) == tuple(LAYOUTS)
    assert rehearsing.choose_models([], quick=True) == QUICK
    assert rehearsing.choose_models(["t5-base", "t5-base"], quick=False) == ("t5-base",)


@pytest.mark.parametrize(
    ("models", "quick", "message"),
    [
        (["chronos-bolt-tinx"], False, "got 'chronos-bolt-tinx'.*did you mean chronos-bolt-tiny"),
        (["x"], False, "got 'x'.*known: chronos-t5-tiny, "),
        (["t5-base"], True, "--quick: got names of models too"),
    ],
)
def test_wrong_arguments_are_one_line(models: list[str], quick: bool, message: str) -> None:
    with pytest.raises(ParamsError, match=message):
        rehearsing.choose_models(models, quick=quick)


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ParamsError, match=r"--folder .*cannot be made .*name another folder"):
        rehearsing.rehearse_models(["lag-llama"], tmp_path / "file" / "in", 0, lambda step, n_done, total: None)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill"])
def test_rows_survive_an_end_in_the_middle_and_the_rest_is_done_later(tmp_path: Path, ending: signal.Signals) -> None:
    command = [
        sys.executable,
        "-m",
        "tsfmscope",
        "rehearse",
        "lag-llama",
        "chronos-bolt-tiny",
        "--folder",
        str(tmp_path),
    ]
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    first, files = tmp_path / "lag-llama.json", tmp_path / "work" / "files"
    deadline = time.monotonic() + 240
    while not (first.is_file() and files.is_dir()):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, ending)
    process.communicate()
    assert process.returncode == (130 if ending == signal.SIGINT else -9)
    assert files.exists() == (ending == signal.SIGKILL)
    before = first.read_bytes()
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0
    assert first.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"lag-llama.json", "chronos-bolt-tiny.json"}
