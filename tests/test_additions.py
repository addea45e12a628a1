"""The steps of CONTRIBUTING.md for a new family, measure and option, done in copies of the repository."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("docs", "params", "stages", "store", "tasks", "tests", "tsfmscope")
FILES = ("CONTRIBUTING.md", "README.md", "dvc.yaml", "params.yaml", "pyproject.toml")
# Files that a command of CONTRIBUTING.md writes.
GENERATED = {"docs/models.md", "docs/tables.md", "dvc.yaml", "tests/task_versions.json"}
# Modules of tests that run on every family of the registry.
SHARED = (
    "conformance/test_families",
    *(f"models/test_{name}" for name in ("families", "heads", "registry", "spectra")),
)
SECTION = re.compile(r"^## (.+)\n((?:(?!^## ).*\n?)*)", re.MULTILINE)
CODE = re.compile(r"^ {4}```(?:python|yaml)\n(.*?)^ {4}```$", re.MULTILINE | re.DOTALL)
# Measures a layer as the stage geometry does, stores the row, and reads the view `isotropy`.
STORED = """
import json
import sys
from pathlib import Path

import numpy as np

from tests.store.conftest import valid_row
import store
from stages.geometry import TASK
from store import catalogue, files
from tasks.geometry import GeometrySpec, MeasureSpec, entry
from tasks.parts import CellIdentity, LayerPlace
from tasks.job import Job

path = Path(sys.argv[1])
states = np.random.default_rng(0).normal(size=(90, 4))
facts = {"base_model": None, "size_parameter": None, "size_rule": None, **valid_row("geometry")}
spec = GeometrySpec(
    **dict(CellIdentity.part_of(facts)), **dict(LayerPlace.part_of(facts)), weights_dtype="float32", tokens=90, seed=0,
    measure=MeasureSpec(repeats=0, presets=()),
)
data = {"states": states, "types": None, "n_series": 1, "states_dtype": "float32"}
(row,) = entry(Job(TASK, spec.to_dict()), data, None).rows
studies = {"study": "s", "stage": "geometry", "job_key": row["job_key"]}
tables = {"geometry": [row], "checkpoints": [valid_row("checkpoints")], "study_jobs": [studies]}
for name, rows in tables.items():
    files.write_rows(path.with_name(f"{name}.parquet"), name, rows)
catalogue.build(path, {name: [path.with_name(f"{name}.parquet")] for name in tables})
with store.open(path) as connection:
    query = "select measure, value = isotropy and value > 1 from isotropy where measure = 'effective_rank'"
    print(json.dumps(connection.sql(query).fetchall()))
"""

# Prints the columns of a layer at two values of the option, from params.yaml to the row, and what keys contain.
CHOSEN = """
import json
import re
from pathlib import Path

import numpy as np

from docs.building.params import page
from stages.config.params import parse
from tasks.geometry import MeasureSpec
from tsfmscope.geometry.measures import measure_states
from tsfmscope.geometry.options import IsotropyOptions

text = re.sub("^geometry: {", "geometry: {level: 0.999, ", Path("params/smoke.yaml").read_text(), flags=re.MULTILINE)
states = np.random.default_rng(0).normal(size=(200, 20))
specs = [MeasureSpec(presets=()), MeasureSpec(**parse(text).geometry.part(IsotropyOptions), presets=())]
rows = [measure_states(states, options=spec, seed=0)["zeta_adjusted_isotropic"] for spec in specs]
print(json.dumps([rows, ["level" in spec.to_dict() for spec in specs], "| `level` | number | `0.05` |" in page()]))
"""

# Prints the number of layers, and of those with an effective rank between 1 and their width: all but the
# decoder's embedding, whose rows are equal.
INSPECTED = """
import json

import tsfmscope as ts

layers = ts.inspect("chronos-bolt-mini", "nile", context=64, horizon=12, rows=200).layers
print(json.dumps([len(layers), int(layers["effective_rank"].between(1, layers["width"]).sum())]))
"""


@dataclass(frozen=True)
class Copy:
    """A copy of this repository without its history. contents: path -> content, when it was made."""

    folder: Path
    contents: Mapping[str, bytes]

    def run(self, *arguments: str, cwd: Path | None = None) -> str:
        """Run the copy's Python and return what it printed."""
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "COLUMNS": "200", "NO_COLOR": "1"}
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=cwd or self.folder, env=environment, capture_output=True, text=True, timeout=1500,
        )  # fmt: skip
        assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def insert(self, file: str, text: str, before: str) -> None:
        """Insert a text in front of the only line of a file that begins with another."""
        path = self.folder / file
        lines = path.read_text().splitlines(keepends=True)
        (at,) = [n for n, line in enumerate(lines) if line.startswith(before)]
        path.write_text("".join([*lines[:at], text, *lines[at:]]))

    def generate(self) -> None:
        """Run the commands of CONTRIBUTING.md that write files."""
        self.run("-m", "docs.building.tables")
        self.run("-m", "tests.task_versions", "--write")
        self.run("-m", "docs.building.models")
        self.run("-m", "stages.planning.dvc_file")

    def touched(self) -> set[str]:
        """Return the files that were added or changed, the generated ones left out."""
        now = read_files(self.folder)
        return {name for name, content in now.items() if self.contents.get(name) != content} - GENERATED


def read_files(folder: Path) -> dict[str, bytes]:
    """Return path -> content of the files of a copy; links to folders are not followed."""
    paths = [path for name in FOLDERS for path in (folder / name).rglob("*")]
    paths = [path for path in paths if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in [*paths, *map(folder.joinpath, FILES)]}


@pytest.fixture
def repository(tmp_path: Path) -> Copy:
    """A copy of this repository's code; the checkpoints are linked."""
    folder = tmp_path / "repository"
    folder.mkdir()
    for name in FOLDERS:
        shutil.copytree(
            ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "results", "assets")
        )
    for name in FILES:
        shutil.copy2(ROOT / name, folder / name)
    (folder / "checkpoints").symlink_to(ROOT / "tsfmscope" / "checkpoints")
    # With the cache of `make lint`, mypy checks only what differs.
    if (ROOT / ".mypy_cache").is_dir():
        shutil.copytree(ROOT / ".mypy_cache", folder / ".mypy_cache")
    return Copy(folder, read_files(folder))


def snippets(title: str) -> list[str]:
    """Return the Python and YAML of a section of CONTRIBUTING.md, without the indent of its list."""
    (section,) = [text for name, text in SECTION.findall((ROOT / "CONTRIBUTING.md").read_text()) if name == title]
    return [re.sub(r"^ {4}", "", text, flags=re.MULTILINE) for text in CODE.findall(section)]


def indented(text: str, spaces: int) -> str:
    return re.sub(r"^(?=.)", " " * spaces, text, flags=re.MULTILINE)


def add_family(repository: Copy) -> set[str]:
    """Take the steps of "Add a family" and return the files that they name."""
    (line,) = snippets("Add a family")
    shutil.copy2(repository.folder / "docs/plugin/patch_line.py", repository.folder / "tsfmscope/models/patch_line.py")
    repository.insert("tsfmscope/models/registry.py", indented(line, 4), '    "patchtst"')
    return {"tsfmscope/models/patch_line.py", "tsfmscope/models/registry.py"}


def add_measure(repository: Copy) -> set[str]:
    """Take the steps of "Add a measure" and return the files that they name."""
    function, measure, column = snippets("Add a measure")
    file = "tsfmscope/geometry/measures.py"
    repository.insert(file, f"{function}\n\n", "MEASURES: ")
    text = (repository.folder / file).read_text()
    version = re.search(r"^VERSION = (\d+)$", text, re.MULTILINE)
    assert version
    text = text.replace(version[0], f"VERSION = {int(version[1]) + 1}")
    head, tail = text.split("MEASURES: ")
    (repository.folder / file).write_text(
        f"{head}MEASURES: " + tail.replace("\n)\n", f"\n{indented(measure.rstrip(), 4)},\n)\n", 1)
    )
    table = "store/tables/geometry.yaml"
    repository.insert(table, indented(column, 2), "  - {name: cai_rows,")
    return {file, table}


def test_an_option_is_two_files_and_changes_no_key_until_it_is_chosen(repository: Copy) -> None:
    field, line = snippets("Add an option")
    options, measures = (repository.folder / "tsfmscope/geometry" / name for name in ("options.py", "measures.py"))
    options.write_text(options.read_text() + indented(field, 4))
    former = line.strip().replace("options.level", "LEVEL")
    assert measures.read_text().count(former) == 1
    measures.write_text(measures.read_text().replace(former, line.strip()))
    assert json.loads(repository.run("-c", CHOSEN)) == [[True, False], [False, True], True]
    repository.run("-m", "tests.task_versions", "--write")
    assert repository.touched() == {"tsfmscope/geometry/options.py", "tsfmscope/geometry/measures.py"}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_family_and_a_measure_are_the_files_that_contributing_names(repository: Copy, tmp_path: Path) -> None:
    named = add_family(repository) | add_measure(repository)
    repository.generate()
    assert repository.touched() == named
    repository.run("-m", "mypy", "tsfmscope/models/patch_line.py", "tsfmscope/geometry/measures.py")
    # The shared tests of families contain the checks of `tsfmscope check-family`.
    shared = [f"tests/tsfmscope/{name}.py" for name in SHARED]
    own = ["tests/test_task_versions.py", "tests/test_facts.py", "tests/store/test_docs.py"]
    own += ["tests/tsfmscope/geometry/test_measures.py", "tests/store/test_answers.py", "tests/docs/test_models.py"]
    words = " or ".join(["patch-line", *(Path(file).stem for file in own)])
    printed = repository.run("-m", "pytest", "-q", "-p", "no:cacheprovider", *shared, *own, "-k", words)
    passed = re.search(r"(\d+) passed", printed)
    assert passed and int(passed[1]) > 35, printed

    # Rows of the stage, through the schema and the catalogue, to the view that correlations read.
    assert json.loads(repository.run("-c", STORED, str(tmp_path / "results.duckdb"))) == [["effective_rank", True]]
    layers, measured = json.loads(repository.run("-c", INSPECTED))
    assert measured == layers - 1 > 1
