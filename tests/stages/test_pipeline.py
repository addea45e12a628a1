"""The pipeline is held to its word: dvc.yaml, the list of stages, the params schema and the code say the same."""

from __future__ import annotations

import ast
import functools
import importlib
from pathlib import Path

import pytest
import yaml

from stages import BY_NAME, PARAMS, STAGES, Stage
from stages.config.params import Params
from stages.planning import dvc_file
from stages.planning.sources import writers
from stages.statistics import READ

ROOT = Path(__file__).parents[2]
DVC = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
BESIDE = {"tsfmscope/series/catalog.yaml": "tsfmscope/series/catalog.py"}  # data that a module reads
# No result depends on these.
NO_DEP = dvc_file.LEFT_OUT


def outs(name: str) -> dict[str, bool]:
    """Out -> whether it persists."""
    found = {}
    for out in [*DVC[name].get("outs", []), *DVC[name].get("metrics", [])]:
        path, how = (out, {}) if isinstance(out, str) else next(iter(out.items()))
        found[path] = bool(how.get("persist"))
    return found


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    """All nodes of a module's syntax tree; most stages import the same modules."""
    return list(ast.walk(ast.parse(path.read_text())))


@functools.cache
def imported(stage: Stage) -> set[str]:
    """Files of stages, tasks and store that a stage's module imports, directly or not, or names as a task's entry."""
    found: set[str] = set()
    waiting = [f"stages.{stage.name}"]
    while waiting:
        base = ROOT.joinpath(*waiting.pop().removeprefix("tsfmscope.").split("."))
        path = next((p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file()), None)
        if path is None or (name := path.relative_to(ROOT).as_posix()) in found:
            continue
        if name == "tsfmscope/__init__.py":
            # It imports a name of the Python API only when somebody uses that name.
            continue
        found.add(name)
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom) and node.module:
                waiting += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                waiting += [alias.name for alias in node.names]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("tasks."):
                waiting.append(node.value.partition(":")[0])
    return {name for name in found if name.split("/")[0] in ("stages", "tasks", "store")}


def test_dvc_yaml_is_up_to_date() -> None:
    text = dvc_file.FILE.read_text()
    assert text == dvc_file.render(text), "run: python -m stages.planning.dvc_file"


def test_the_command_that_writes_dvc_yaml_prints_whether_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = dvc_file.FILE.read_text()
    monkeypatch.setattr(dvc_file, "FILE", tmp_path / "dvc.yaml")
    dvc_file.FILE.write_text(text.replace("desc: ", "desc: former ", 1))
    dvc_file.main()
    dvc_file.main()
    assert capsys.readouterr().out == "dvc.yaml: written anew\ndvc.yaml: unchanged\n"
    assert dvc_file.FILE.read_text() == text


def test_dvc_runs_the_listed_stages_in_their_order() -> None:
    assert list(DVC) == [stage.name for stage in STAGES]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
class TestEachStage:
    def test_is_run_by_its_own_name(self, stage: Stage) -> None:
        assert DVC[stage.name]["cmd"] == f"python -m stages {stage.name}"
        assert callable(importlib.import_module(f"stages.{stage.name}").main)

    def test_declares_what_it_writes(self, stage: Stage) -> None:
        assert set(outs(stage.name)) == set(stage.writes)
        assert all(persists == stage.sweeps for persists in outs(stage.name).values())

    def test_declares_what_it_reads(self, stage: Stage) -> None:
        assert {dep for dep in DVC[stage.name]["deps"] if dep.startswith("data/")} == set(stage.reads)

    def test_tracks_the_params_that_it_lists(self, stage: Stage) -> None:
        params = [{PARAMS: list(stage.params)}] if stage.params else []
        assert DVC[stage.name].get("params", []) == params
        for key in stage.params:
            at: type = Params
            for part in key.split("."):
                field = at.model_fields[part]
                at = field.annotation

    def test_depends_on_all_code_that_it_runs(self, stage: Stage) -> None:
        deps = [dep for dep in DVC[stage.name]["deps"] if not dep.startswith("data/")]
        missing = {
            name
            for name in imported(stage) - NO_DEP
            if not any(name == dep or name.startswith(f"{dep}/") for dep in deps)
        }
        assert not missing

    def test_depends_on_no_code_that_it_does_not_run(self, stage: Stage) -> None:
        names = imported(stage)
        unused = {
            dep
            for dep in DVC[stage.name]["deps"]
            if dep.startswith(("stages/", "tasks/", "store"))
            and not any(name == BESIDE.get(dep, dep) or name.startswith(f"{dep}/") for name in names)
        }
        assert not unused

    def test_reads_only_the_blocks_of_params_that_it_tracks(self, stage: Stage) -> None:
        # It enters no result.
        untracked = {"resources"}
        modules = [name for name in imported(stage) if name.startswith("stages/") and name not in NO_DEP]
        used = set()
        for name in modules:
            if name == "stages/config/params.py":
                continue
            for node in nodes(ROOT / name):
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "params":
                    used.add(node.attr)
        blocks = {key.split(".")[0] for key in stage.params} | untracked
        methods = {"expand", "compressed", "data_root", "model_dump", "report_study", "skill_datasets"}
        shared = {"models", "conditions", "studies", "datasets", "seed"}  # planning's helpers serve several stages
        assert used - blocks - methods - shared == set()


def test_every_stage_that_is_read_from_comes_before() -> None:
    written: set[str] = set()
    for stage in STAGES:
        assert set(stage.reads) <= written, stage.name
        written |= set(stage.writes)


def test_only_external_inputs_always_runs() -> None:
    assert [name for name, stage in DVC.items() if stage.get("always_changed")] == ["external_inputs"]


def test_the_catalogue_is_built_once_and_read_by_the_report_alone() -> None:
    assert [stage.name for stage in STAGES if "data/results.duckdb" in stage.reads] == ["report"]


def test_statistics_depends_on_every_stage_whose_tables_it_reads() -> None:
    held = {f"data/{stage}" for table in READ for stage in writers(table)}
    assert held <= set(BY_NAME["statistics"].reads)


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(STAGES)
