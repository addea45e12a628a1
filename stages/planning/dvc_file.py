"""dvc.yaml, made from the list of stages and from what their modules import.

    python -m stages.planning.dvc_file

writes the file again; a test fails where it is not up to date.
"""

from __future__ import annotations

import ast
import functools
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from stages import PARAMS, STAGES, Stage

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "dvc.yaml"
PACKAGES = ("stages", "tasks", "store", "tsfmscope")
HEADER = """# Made by `python -m stages.planning.dvc_file` from stages/stages.yaml and the stages' imports.
# The text after the stages is written by hand.
"""
BY_HAND = "\nparams:\n- params.yaml"
# Data that a module reads: a stage that runs the module depends on it.
DATA_FILES = {
    "tsfmscope/models/references.py": "tsfmscope/models/bundled.yaml",
    "tsfmscope/series/catalog.py": "tsfmscope/series/catalog.yaml",
}
# Modules that no result depends on. The last one gives the names of plots, which params.yaml is checked with.
LEFT_OUT = {
    "stages/__init__.py",
    "stages/__main__.py",
    "stages/planning/__init__.py",
    "tasks/__init__.py",
    "tsfmscope/__init__.py",
    "tsfmscope/report/plots/__init__.py",
}
# A stage that uses fewer files of a folder depends on these files, not on the folder.
FEWEST_FOR_FOLDER = 3


def imported_files(stage: Stage) -> set[str]:
    """Return our files that a stage imports, directly or not; a name "tasks.module:function" counts as import."""
    files: set[str] = set()
    waiting = [f"stages.{stage.name}"]
    while waiting:
        path = _module_path(waiting.pop())
        if path is None or (name := path.relative_to(ROOT).as_posix()) in files:
            continue
        files.add(name)
        waiting += _imports(path.read_text("utf-8"))
    return files


def code_dependencies(stage: Stage) -> list[str]:
    """Return the files and folders whose change makes DVC run a stage again, sorted.

    A folder of which the stage uses at least FEWEST_FOR_FOLDER files stands for them. Files of
    stages/planning and tasks are always listed, because most stages use few of them. `store` counts
    as one folder.
    """
    files = imported_files(stage) - LEFT_OUT
    files |= {data for module, data in DATA_FILES.items() if module in files}
    sizes = Counter(_folder(name) for name in files)
    return sorted({name if sizes[_folder(name)] < FEWEST_FOR_FOLDER else _folder(name) for name in files})


def render(existing: str) -> str:
    """Return the text of dvc.yaml; what follows the stages is taken from the text that exists."""
    stages = {stage.name: _block(stage) for stage in STAGES}
    text = yaml.safe_dump({"stages": stages}, sort_keys=False, width=120, allow_unicode=True)
    return HEADER + text + existing[existing.index(BY_HAND) :]


def _block(stage: Stage) -> dict[str, Any]:
    metrics = [out for out in stage.writes if out in stage.metrics]
    outs = [out for out in stage.writes if out not in stage.metrics]
    block: dict[str, Any] = {"desc": stage.description, "cmd": f"python -m stages {stage.name}"}
    if stage.always_runs:
        block["always_changed"] = True
    block["deps"] = [*code_dependencies(stage), *stage.folders, *stage.reads]
    if stage.params:
        block["params"] = [{PARAMS: list(stage.params)}]
    block["outs"] = [{out: {"persist": True}} if stage.sweeps else out for out in outs]
    if metrics:
        block["metrics"] = metrics
    return block


def _folder(name: str) -> str:
    """Return the folder that may stand for a file, or the file itself."""
    top, *inner = name.split("/")
    if top == "store":
        return top
    if len(inner) == 1 or inner[0] == "planning":
        return name
    return f"{top}/{inner[0]}"


def _module_path(module: str) -> Path | None:
    """Return the file of one of our modules; None for other packages and for names in a module."""
    if module.partition(".")[0] not in PACKAGES:
        return None
    base = ROOT.joinpath(*module.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


@functools.cache
def _imports(text: str) -> tuple[str, ...]:
    """Return the modules that a module's text imports or names; cached, because most stages import the same modules."""
    modules: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            modules += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and str(node.value).startswith("tasks."):
            modules.append(str(node.value).partition(":")[0])
    return tuple(modules)


def main() -> None:
    """Write dvc.yaml, and print whether it changed."""
    former = FILE.read_text("utf-8")
    text = render(former)
    FILE.write_text(text, "utf-8")
    print(f"{FILE.name}: {'unchanged' if text == former else 'written anew'}")


if __name__ == "__main__":
    main()
