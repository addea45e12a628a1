"""The set of commands, their help texts, examples, JSON and exit codes."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import re
import shlex
import subprocess
import sys
import webbrowser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from stages.commands import doctor as pipeline_doctor
from stages.config.params import ParamsError
from store.errors import StoreError
from tests.store.conftest import build_results, valid_row
from tsfmscope.cli.app import all_commands, app, load_command
from tsfmscope.cli.output import cell
from tsfmscope.compression import ways
from tsfmscope.errors import ModelError, QueryError
from tsfmscope.extras import EXTRAS
from tsfmscope.functions import doctor as doctor_checks
from tsfmscope.functions import faster
from tsfmscope.models.bundled_skill import bundled_skill
from tsfmscope.models.references import load_catalog

ROOT = Path(__file__).parents[3]
# In docs/cli.md, in this order.
NAMES = (
    *("forecast", "inspect", "score", "compress", "certify", "embed", "probe", "ablate", "compare", "export", "push"),
    *("verify", "models", "check-family", "doctor"),
    *("sql", "tables", "report"),
    *(
        "save-results",
        "test-results",
        "plan",
        "profile",
        "status",
        "failures",
        "retry",
        "corpus",
        "commit-checkpoints",
        "new study",
    ),
)
# Commands whose examples need a hub, a run of the pipeline, a cluster or minutes.
WITHOUT_EXAMPLES = {
    *("push", "status", "failures", "corpus", "commit-checkpoints", "check-family", "verify", "profile")
}
# Exit codes of the examples: not certified and too few tasks are outcomes, and nobody has a token of the hub here.
OUTCOMES = {"certify": (0, 3, 4), "compress": (0, 3), "push": (1,)}
EXAMPLE = re.compile(r"^\s+tsfmscope (.*?)(\s+#.*)?$", re.MULTILINE)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalogue with one row of `training`."""
    return build_results(tmp_path_factory.mktemp("results"), {"training": [valid_row("training") | {"job_key": "k"}]})


@pytest.fixture
def folder(tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout's params and checkpoints, files of one's own, a catalogue and a page."""
    (tmp_path / "params.yaml").write_text((ROOT / "params" / "full.yaml").read_text())
    (tmp_path / "checkpoints").symlink_to(ROOT / "tsfmscope" / "checkpoints")
    (tmp_path / "data" / "figures").mkdir(parents=True)
    (tmp_path / "data" / "results.duckdb").symlink_to(results)
    (tmp_path / "data" / "report.html").write_text("<!doctype html><title>t</title>")
    monkeypatch.chdir(tmp_path)
    values = np.sin(np.arange(180) / 5) + np.arange(180) / 100
    pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=180), "y": values}).to_csv("mine.csv", index=False)
    noisy = values[:, None] + np.random.default_rng(0).normal(size=(180, 24)) * np.linspace(0.1, 1, 24)
    shops = pd.DataFrame(noisy, columns=[f"shop {n}" for n in range(24)])
    shops.assign(ds=pd.date_range("2024-01-01", periods=180)).to_csv("shops.csv", index=False)
    labels = pd.Series(np.where(np.arange(24) < 12, "quiet", "noisy"), shops.columns, name="kind")
    labels.rename_axis("shop").to_csv("labels.csv")
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, prog_name="tsfmscope", catch_exceptions=False)


def examples(text: str) -> list[list[str]]:
    return [shlex.split(found[1]) for found in EXAMPLE.finditer(text)]


def commands() -> dict[str, Any]:
    """Every command by its whole name, as click has it."""
    found: dict[str, Any] = {}
    for name, (location, _) in all_commands().items():
        command = load_command(name, location)
        inner = getattr(command, "commands", None)
        found |= {f"{name} {part}": one for part, one in inner.items()} if inner else {name: command}
    return found


def test_the_commands_are_those_of_the_page() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    listed = re.findall(r"^\| `((?:new )?[a-z-]+)[^`]*` \|", page, re.MULTILINE)
    assert tuple(listed) == NAMES
    assert set(commands()) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_help_text_stands_alone(name: str) -> None:
    command = commands()[name]
    first = command.help.partition("\n")[0] if " " in name else all_commands()[name][1]
    # Longer ones are cut in the list of commands.
    assert re.fullmatch(r"[A-Z].{10,57}\.", first), first
    for parameter in command.params:
        assert re.fullmatch(r"[A-Z](?s:.){8,}[^.]\.", parameter.help or ""), (parameter.name, parameter.help)


def test_the_list_of_commands_is_not_cut_off() -> None:
    assert "..." not in run("--help").stdout.partition("Use a model:")[2]


def test_help_has_three_groups_in_a_checkout_and_one_without(monkeypatch: pytest.MonkeyPatch) -> None:
    assert re.findall(r"^(\S.*):$", run("-h").stdout, re.MULTILINE) == [
        "Options", "Use a model", "Studies, in this checkout", "Developers"
    ]  # fmt: skip
    assert run("score", "-h").stdout == run("score", "--help").stdout
    monkeypatch.setattr("tsfmscope.cli.app.pipeline_commands", dict)
    alone = run("--help").stdout
    assert re.findall(r"^(\S.*):$", alone, re.MULTILINE) == ["Options", "Use a model"] and "check-family" not in alone


def test_an_unknown_command_names_near_ones() -> None:
    assert "No such command 'forcast'. Did you mean forecast?" in run("forcast").stderr
    assert "No such command 'xyz'. `tsfmscope --help` lists all." in run("xyz").stderr


def test_models_lists_the_bundled_ones_with_their_sizes() -> None:
    rows = {row["model"]: row for row in json.loads(run("models", "--json").stdout)}
    assert rows.keys() == load_catalog()["models"].keys()
    weights = ROOT / "tsfmscope" / "checkpoints" / "ttm-mini" / "model.safetensors"
    assert rows["ttm-mini"] == {
        "model": "ttm-mini", "family": "ttm", "reads": "series", "parameters": 458_448, "bytes": weights.stat().st_size,
        "licence": "apache-2.0", "skill": pytest.approx(math.exp(bundled_skill()["ttm-mini"].log_ratio)),
        "seconds": bundled_skill()["ttm-mini"].seconds,
    }  # fmt: skip
    assert rows["vit-nano"]["skill"] is None
    assert "chronos-bolt-mini" in run("models").stdout


def test_every_command_that_prints_results_has_json() -> None:
    without = {name for name, one in commands().items() if "--json" not in {o for p in one.params for o in p.opts}}
    assert without == {"profile", "commit-checkpoints"}


@pytest.mark.parametrize(("arguments", "keys"), [
    (("inspect", "chronos-bolt-mini", "nile", "--context", "64"), {"layer", "zeta", "numerical_rank"}),
    (("embed", "chronos-bolt-mini", "nile", "--context", "64"), {"series", "vector"}),
    (("forecast", "chronos-bolt-mini", "mine.csv", "--horizon", "3"), {"title", "forecasts", "skipped", "license"}),
    (("score", "nile", "--models", "ttm-mini", "--horizon", "6"), {"candidates", "best", "choice"}),
    (("export", "chronos-bolt-mini", "out"), {"folder", "family", "parameters", "bytes", "loader"}),
    (("sql", "select 1 as a, 'x' as b"), {"a", "b"}),
    (("tables", "geometry"), {"name", "meaning", "columns"}),
    (("report",), {"results", "page", "bytes", "figures", "built", "stale"}),
    (("plan",), {"studies", "contexts", "absent", "models", "work"}),
    (("retry",), {"stages"}),
    (("new", "study", "mine", "--models", "all", "--measures", "weights"), {"study", "file", "line"}),
], ids=lambda value: value[0] if isinstance(value, tuple) else "")  # fmt: skip
def test_json_is_one_document(folder: Path, arguments: tuple[str, ...], keys: set[str]) -> None:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    assert keys <= (document[0] if isinstance(document, list) else document).keys()


@pytest.mark.parametrize(("error", "code", "line"), [
    (ParamsError("params.yaml: wrong"), 2, "tsfmscope: params.yaml: wrong\n"),
    (QueryError("no such column"), 2, "tsfmscope: no such column\n"),
    (StoreError("damaged"), 1, "tsfmscope: damaged\n"),
    (ModelError("not a checkpoint"), 1, "tsfmscope: not a checkpoint\n"),
    (FileNotFoundError(2, "No such file", "a.csv"), 1, "tsfmscope: a.csv: No such file; check the path"),
    (KeyboardInterrupt(), 130, "tsfmscope: interrupted\n"),
    (KeyboardInterrupt("stopped by SIGINT, and reported"), 130, ""),
], ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None)  # fmt: skip
def test_errors_decide_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, line: str
) -> None:
    def fail() -> list[str]:
        raise error

    monkeypatch.setattr("stages.planning.sweeping.stages_with_failures", fail)
    done = run("retry")
    assert (done.exit_code, done.stdout) == (code, "")
    assert done.stderr.startswith(line) and done.stderr.count("\n") == bool(line)


def test_a_fault_of_the_program_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stages.planning.sweeping.stages_with_failures", lambda: {}["none"])
    with pytest.raises(KeyError):
        run("retry")


# Examples with models take half a minute each.
SLOW_EXAMPLES = ("ablate", "compare", "compress", "export", "inspect", "probe")


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.slow] if name in SLOW_EXAMPLES else [])
    for name in ("", *NAMES)
    if name not in WITHOUT_EXAMPLES
])  # fmt: skip
def test_the_examples_of_help_run(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Two ways in one setting: test_faster.py measures all of them.
    make = faster._Writer.ways
    monkeypatch.setattr(faster._Writer, "ways", lambda self: {way: make(self)[way] for way in ("torch", "ONNX")})
    for setting, value in (("BATCHES", (1,)), ("THREADS", (1,)), ("ROUNDS", 6)):
        monkeypatch.setattr(ways, setting, value)
    if name == "test-results":
        assert run("save-results", "docs/results/mine").exit_code == 0
    command = tuple(name.split())
    said = run(*command, "--help")
    assert said.exit_code == 0
    found = examples(said.stdout)
    assert found and all(tuple(one[: len(command)]) == command for one in found)
    if not name:
        # The others are examples of their own commands too, and run there.
        own = [examples(run(*one.split(), "--help").stdout) for one in NAMES if one not in WITHOUT_EXAMPLES]
        found = [one for one in found if not any(one in those for those in own)]
    for arguments in found:
        done = run(*arguments)
        assert done.exit_code in OUTCOMES.get(arguments[0], (0,)), (arguments, done.stderr)
        assert done.stdout


@pytest.mark.slow
def test_the_commands_of_the_docs_run_one_after_another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(folder / "no-token"))
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    (folder / "tsfmscope").mkdir()
    (folder / "tsfmscope" / "checkpoints").symlink_to(ROOT / "tsfmscope" / "checkpoints")
    text = (ROOT / "docs" / "cli.md").read_text()
    lines = [line.removeprefix("$ tsfmscope ") for line in text.splitlines() if line.startswith("$ ")]
    for one in lines:
        arguments = shlex.split(one)
        done = run(*arguments)
        assert done.exit_code in OUTCOMES.get(arguments[0], (0,)), (one, done.stderr)
        assert ("no token of the hub" in done.stderr) == (arguments[0] == "push")
    assert Path("look.html").stat().st_size > 5_000
    assert "  rivers:\n" in Path("params.yaml").read_text()
    assert list(pd.read_parquet("vectors.parquet").columns) == ["series", *map(str, range(64))]


class TestDoctor:
    def test_json_has_a_check_of_every_kind_and_every_family(self, folder: Path) -> None:
        done = run("doctor", "--json")
        found: list[dict[str, Any]] = json.loads(done.stdout)
        by_name = {one["name"]: one for one in found}
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
        project.write_text(
            f"[project]\ndependencies = {wanted}\n[project.optional-dependencies]\nreport = ['altair>=999']\n"
        )
        monkeypatch.setattr(doctor_checks, "PROJECT", project)
        found = {one.name: one for one in doctor_checks.check_packages()}
        extras = {name: found.pop(f"extra {name}") for name in set(EXTRAS.values())}
        assert extras["report"].value == f"lacks altair {importlib.metadata.version('altair')}"
        assert extras["report"].fix == "pip install 'tsfmscope[report]'"
        assert {one.state for name, one in extras.items() if name != "report"} == {"ok"}
        assert set(found) == {"package no-such-package-anywhere", "package duckdb"}
        assert found["package duckdb"].value == importlib.metadata.version("duckdb")
        assert found["package duckdb"].fix == "uv pip install 'duckdb>=9999'"
        assert {one.state for one in found.values()} == {"missing"}

    def test_a_family_whose_package_is_missing_is_a_note_with_what_to_install(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            doctor_checks.registry, "FAMILIES", {"theirs": "no_such_module:Model", "broken": "json:Nothing"}
        )
        found = {one.name: one for one in doctor_checks.check_families()}
        assert found["family theirs"].state == "note" and found["family theirs"].fix.startswith("install the package")
        assert found["family broken"].fix == "fix or uninstall its package"

    def test_it_says_whether_the_cpu_multiplies_bfloat16(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for able, state, words in (
            ({"amx_bf16": True, "avx2": True}, "ok", "amx_bf16"),
            ({"amx_bf16": False, "avx2": True}, "note", "the CPU has no instructions for it"),
        ):
            monkeypatch.setattr("torch.cpu.get_capabilities", lambda able=able: able)
            (found,) = [one for one in doctor_checks.check_devices() if one.name == "bfloat16"]
            assert (found.state, found.value) == (state, words)
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
        (ray,) = [one for one in pipeline_doctor.check_tools() if one.name == "ray"]
        assert ray.state == "note" and "unset RAY_ADDRESS" in ray.fix


class TestReport:
    def test_json_says_where_how_large_and_whether_the_results_are_newer(self, folder: Path) -> None:
        found = json.loads(run("report", "--json").stdout)
        os.utime("data/report.html", (1, 1))
        facts = {"page": "data/report.html", "bytes": 31, "figures": 0, "built": False, "stale": False}
        assert found == {"results": "data/results.duckdb"} | facts
        assert json.loads(run("report", "--json").stdout)["stale"] is True
        assert "--build makes the page anew" in run("report").stdout

    @pytest.mark.slow
    def test_a_page_that_is_not_there_is_built_and_json_alone_is_on_stdout(self, folder: Path) -> None:
        Path("data/report.html").unlink()
        done = run("report", "--json")
        found = json.loads(done.stdout)
        assert found["built"] is True and found["bytes"] == Path("data/report.html").stat().st_size > 5_000

    def test_out_is_a_copy_of_both_pages(self, folder: Path) -> None:
        Path("data/run.html").write_text("how it ran")
        Path("shared").mkdir()
        assert run("report", "--out", "shared/copy.html").exit_code == 0
        assert Path("shared/copy.html").read_bytes() == Path("data/report.html").read_bytes()
        assert Path("shared/run.html").read_text() == "how it ran"
        assert run("report", "--out", "nowhere/copy.html").exit_code == 2

    def test_open_hands_the_page_to_the_browser(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        browser = folder / "browser"  # the standard library's own way to name one
        browser.write_text('#!/bin/sh\necho "$1" > opened\n')
        browser.chmod(0o755)
        monkeypatch.setattr(webbrowser, "_tryorder", None)
        monkeypatch.setattr(webbrowser, "_browsers", {})
        monkeypatch.setenv("BROWSER", f"{browser} %s")
        assert run("report", "--open").exit_code == 0
        assert (folder / "opened").read_text().strip() == (folder / "data" / "report.html").as_uri()


@pytest.mark.parametrize(("value", "text"), [
    (None, "–"),
    (0.0, "0.000"),
    (0.12345, "0.123"),
    (-1e-7, "-1e-07"),
    (123456.0, "1.23e+05"),
    (7, "7"),
    ("[b]", "[b]"),
])  # fmt: skip
def test_cells_are_short(value: Any, text: str) -> None:
    assert cell(value) == text


def test_the_module_is_the_command_in_a_process_of_its_own(folder: Path) -> None:
    command = [sys.executable, "-m", "tsfmscope", "new", "study", "mine", "--models", "all", "--measures", "weights"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*command, "--json"], env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["study"] == "mine"
    again = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert again.returncode == 2
    assert again.stderr.startswith("tsfmscope: params.yaml: studies.mine: a study has this name already")
    assert len(again.stderr.splitlines()) == 1
