"""Every example of --help and every command of docs/cli.md runs; machines get JSON; a process of its own does too."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from tsfmscope.stages.cli import doctor_checks, report
from tsfmscope.stages.cli.app import app
from tsfmscope.stages.cli.output import cell
from tsfmscope.store import catalogue

ROOT = Path(__file__).parents[3]
COMMANDS = ((), ("doctor",), ("inspect",), ("recommend",), ("compress",), ("sql",), ("report",), ("new", "study"))
EXAMPLE = re.compile(r"^\s+tsfmscope (.*?)(\s+#.*)?$", re.MULTILINE)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalogue of no rows."""
    path = tmp_path_factory.mktemp("results") / "results.duckdb"
    catalogue.build(path, {}, seed=0)
    return path


@pytest.fixture
def folder(tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout's params and checkpoints, a file of one's own, a catalogue and a page."""
    (tmp_path / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    (tmp_path / "checkpoints").symlink_to(ROOT / "checkpoints")
    (tmp_path / "data" / "figures").mkdir(parents=True)
    (tmp_path / "data" / "results.duckdb").symlink_to(results)
    (tmp_path / "data" / "report.html").write_text("<!doctype html><title>t</title>")
    monkeypatch.chdir(tmp_path)
    values = np.sin(np.arange(180) / 5) + np.arange(180) / 100
    pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=180), "y": values}).to_csv("mine.csv", index=False)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, prog_name="tsfmscope", catch_exceptions=False)


def examples(text: str) -> list[list[str]]:
    return [shlex.split(found[1]) for found in EXAMPLE.finditer(text)]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_examples_of_help_run(folder: Path, command: tuple[str, ...]) -> None:
    said = run(*command, "--help")
    assert said.exit_code == 0
    found = examples(said.stdout)
    assert found and all(tuple(one[: len(command)]) == command for one in found)
    for arguments in found:
        done = run(*arguments)
        assert done.exit_code == 0, (arguments, done.stderr)


@pytest.mark.slow
def test_the_commands_of_the_docs_run_one_after_another(folder: Path) -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    commands = [line.removeprefix("$ tsfmscope ") for line in text.splitlines() if line.startswith("$ ")]
    assert {shlex.split(one)[0] for one in commands} == {one[0] for one in COMMANDS if one}
    for one in commands:
        done = run(*shlex.split(one))
        assert done.exit_code == 0, (one, done.stderr)
    assert Path("look.html").stat().st_size > 1e6
    assert "  rivers:\n" in Path("params.yaml").read_text()


class TestDoctor:
    def test_json_has_a_check_of_every_kind_and_every_family(self, folder: Path) -> None:
        done = run("doctor", "--json")
        found: list[dict[str, Any]] = json.loads(done.stdout)
        by_name = {one["what"]: one for one in found}
        assert {one["state"] for one in found} <= {"ok", "note", "missing"}
        assert {f"family {name}" for name in doctor_checks.registry.families()} <= set(by_name)
        assert {"python", "ray", "git", "dvc", "cores", "params.yaml", "data root", "results", "memory"} <= set(by_name)
        assert by_name["packages"]["state"] == "ok" and by_name["results"]["state"] == "ok"
        assert all(one["fix"] for one in found if one["state"] == "missing")
        assert done.exit_code == (1 if any(one["state"] == "missing" for one in found) else 0)

    def test_a_package_that_is_not_there_or_too_old_is_named_with_what_installs_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        project = tmp_path / "pyproject.toml"
        wanted = ["numpy>=1", "no-such-package-anywhere>=2", "duckdb>=9999", "absent-on-linux; sys_platform == 'win32'"]
        project.write_text(f"[project]\ndependencies = {wanted}\n")
        monkeypatch.setattr(doctor_checks, "PROJECT", project)
        found = {one.what: one for one in doctor_checks.packages()}
        assert set(found) == {"package no-such-package-anywhere", "package duckdb"}
        assert found["package duckdb"].found == importlib.metadata.version("duckdb")
        assert found["package duckdb"].fix == "uv pip install 'duckdb>=9999'"
        assert {one.state for one in found.values()} == {"missing"}

    def test_a_family_whose_package_is_missing_is_a_note_with_what_to_install(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            doctor_checks.registry, "FAMILIES", {"theirs": "no_such_module:Model", "broken": "json:Nothing"}
        )
        found = {one.what: one for one in doctor_checks.families()}
        assert found["family theirs"].state == "note" and found["family theirs"].fix.startswith("install the package")
        assert found["family broken"].fix == "fix or uninstall its package"

    def test_it_says_whether_the_cpu_multiplies_bfloat16(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for able, state, words in (
            ({"amx_bf16": True, "avx2": True}, "ok", "amx_bf16"),
            ({"amx_bf16": False, "avx2": True}, "note", "the CPU has no instructions for it"),
        ):
            monkeypatch.setattr("torch.cpu.get_capabilities", lambda able=able: able)
            (found,) = [one for one in doctor_checks.devices() if one.what == "bfloat16"]
            assert (found.state, found.found) == (state, words)
            assert bool(found.fix) == (state == "note")

    def test_params_that_are_not_valid_are_missing_and_make_exit_code_1(self, folder: Path) -> None:
        text = Path("params.yaml").read_text()
        Path("params.yaml").write_text(text.replace("max_series: 32", "max_serie: 32"))
        done = run("doctor", "--json")
        assert done.exit_code == 1
        (wrong,) = [one for one in json.loads(done.stdout) if one["state"] == "missing"]
        assert "did you mean 'max_series'?" in wrong["fix"]

    def test_a_cluster_that_does_not_answer_is_a_note(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
        (ray,) = [one for one in doctor_checks.tools() if one.what == "ray"]
        assert ray.state == "note" and "unset RAY_ADDRESS" in ray.fix


class TestSql:
    def test_json_is_that_of_the_store(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        assert run("sql", "select 1 as a, 'x' as b", "--json").exit_code == 0
        done = run("sql", "select 1 as a, 'x' as b", "--json")
        assert json.loads(done.stdout) == [{"a": 1, "b": "x"}]

    def test_a_file_of_sql_and_the_other_commands_of_the_store_are_there(self, folder: Path) -> None:
        Path("question.sql").write_text("select 2 as two")
        assert run("sql", "question.sql", "--format", "csv").stdout.split() == ["two", "2"]
        assert "zeta" in run("sql", "tables", "geometry").stdout
        assert "Usage: tsfmscope sql query" in run("sql", "query", "--help").stdout

    def test_sql_that_is_wrong_exits_2(self, folder: Path) -> None:
        done = run("sql", "select nothing from geometry")
        assert done.exit_code == 2 and "nothing" in done.stderr


class TestReport:
    def test_json_says_where_how_large_and_whether_the_results_are_newer(self, folder: Path) -> None:
        found = json.loads(run("report", "--json").stdout)
        os.utime("data/report.html", (1, 1))
        assert found == {"page": "data/report.html", "bytes": 31, "figures": 0, "built": False, "stale": False}
        assert json.loads(run("report", "--json").stdout)["stale"] is True
        assert "--build makes the page anew" in run("report").stdout

    @pytest.mark.slow
    def test_a_page_that_is_not_there_is_built_and_json_alone_is_on_stdout(self, folder: Path) -> None:
        Path("data/report.html").unlink()
        done = run("report", "--json")
        found = json.loads(done.stdout)
        assert found["built"] is True and found["bytes"] == Path("data/report.html").stat().st_size > 1e6

    def test_out_is_a_copy(self, folder: Path) -> None:
        assert run("report", "--out", "copy.html").exit_code == 0
        assert Path("copy.html").read_bytes() == Path("data/report.html").read_bytes()
        assert run("report", "--out", "nowhere/copy.html").exit_code == 2

    def test_open_hands_the_page_to_the_browser(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        browser = folder / "browser"  # the standard library's own way to name one
        browser.write_text('#!/bin/sh\necho "$1" > opened\n')
        browser.chmod(0o755)
        monkeypatch.setattr(report.webbrowser, "_tryorder", None)
        monkeypatch.setattr(report.webbrowser, "_browsers", {})
        monkeypatch.setenv("BROWSER", f"{browser} %s")
        assert run("report", "--open").exit_code == 0
        assert (folder / "opened").read_text().strip() == (folder / "data" / "report.html").as_uri()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0.000"),
        (0.12345, "0.123"),
        (-1e-7, "-1e-07"),
        (123456.0, "1.23e+05"),
        (7, "7"),
        ("[b]", "[b]"),
    ],
)
def test_cells_are_short(value: Any, text: str) -> None:
    assert cell(value) == text


def test_the_module_is_the_command_in_a_process_of_its_own(folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "tsfmscope.stages.cli",
        "new",
        "study",
        "mine",
        "--models",
        "all",
        "--measures",
        "weights",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*command, "--json"], env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["study"] == "mine"
    again = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert again.returncode == 2
    assert again.stderr.startswith("tsfmscope: params.yaml: studies.mine: a study has this name already")
    assert len(again.stderr.splitlines()) == 1


@pytest.mark.slow
def test_the_console_script_of_the_wheel_runs_where_no_checkout_is(folder: Path, tmp_path_factory: Any) -> None:
    """Its dependencies are those of this environment, by a path file; the package itself is the installed one."""
    place = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = place.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        (points,) = [name for name in file.namelist() if name.endswith("entry_points.txt")]
        assert "tsfmscope = tsfmscope.stages.cli.app:main" in file.read(points).decode()
    subprocess.run([sys.executable, "-m", "venv", place / "venv"], check=True)
    python = place / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel], check=True)
    (packages,) = (place / "venv" / "lib").glob("python*/site-packages")
    (packages / "others.pth").write_text(f"{next(p for p in sys.path if p.endswith('site-packages'))}\n")
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def script(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [place / "venv" / "bin" / "tsfmscope", *arguments]
        return subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, timeout=280)

    done = script("inspect", "chronos-bolt:checkpoints/chronos-bolt-nano", "nile", "--json")
    assert done.returncode == 0, done.stderr
    here = json.loads(run("inspect", "chronos-bolt:checkpoints/chronos-bolt-nano", "nile", "--json").stdout)
    assert json.loads(done.stdout) == here
    assert script("inspect", "chronos-bolt-nano", "nille").returncode == 2
