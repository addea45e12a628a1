"""Commands and functions in a folder of another project, with its own params.yaml, stages, tasks and store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tsfmscope as ts

ROOT = Path(__file__).parents[3]
MODEL = "patchtst-mini"
# The file of another DVC project, whose keys are also keys of ours.
PARAMS = """
seed: forty-two
models: [resnet50, vit]
datasets: {train: data/train, sets: 3}
geometry: {k_max: 1, restarts: many}
"""
STRANGER = "raise ImportError('a file of the user')\n"
COMMANDS = "COMMANDS = {'plan': ('stages.commands.runs:plan', 'Plan of a stranger.')}\n"
FILES = {
    "params.yaml": PARAMS, "tasks.py": STRANGER, "store/__init__.py": STRANGER, "stages/__init__.py": "",
    "stages/commands/__init__.py": COMMANDS,
    "stages/commands/runs.py": "def plan() -> None:\n    print('plan of a stranger')\n",
}  # fmt: skip
CALLS = """
import json
import tsfmscope as ts

model = ts.load("patchtst-mini")
layers = ts.inspect(model, "nile", context=64).layers
vectors = ts.embed(model, "nile", context=64)
print(json.dumps([model.name, layers["zeta"].tolist(), vectors.to_numpy().tolist()]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)


@pytest.mark.slow
def test_a_foreign_folder_changes_no_number(folder: Path) -> None:
    report, vectors = ts.inspect(MODEL, "nile", context=64), ts.embed(MODEL, "nile", context=64)
    done = run(folder, "-c", CALLS)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [MODEL, report.layers["zeta"].tolist(), vectors.to_numpy().tolist()]
    done = run(folder, "-m", "tsfmscope", "inspect", MODEL, "nile", "--context", "64", "--json")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal([row["zeta"] for row in json.loads(done.stdout)], report.layers["zeta"])
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} == set(FILES)


def test_the_command_plan_is_that_of_the_checkout(folder: Path) -> None:
    assert "Plan of a stranger" not in run(folder, "-m", "tsfmscope", "--help").stdout
    done = run(folder, "-m", "tsfmscope", "plan")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tsfmscope: params.yaml: ") and "stranger" not in done.stderr
