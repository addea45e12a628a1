"""The example package of docs/plugin, built and installed for real, found through its entry point alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "docs" / "plugin"
JOBS = """
import sys
from pathlib import Path

import numpy as np

from tsfmscope.models import registry
from tasks.embeddings import embed
from tasks.parts import load_model
from tasks.job import IDENTITY
from tasks.tokens import tokenize
from tsfmscope.series.tables import series_table
from tsfmscope.series.types import Series
from tasks.job import Job, Task

assert "patch_line" not in sys.modules
folder = sys.argv[1]
cell = dict(zip(IDENTITY, ("m", None, None, None, "d", "c", 48, 0.0), strict=True))
spec = cell | {"family": "patch-line", "ref": folder, "seed": 0, "rows": 20, "format": "arrow"}
windows = {"horizon": 12, "min_context": 16, "held_out": None}
planned = registry.with_code("patch-line", registry.resolve(folder).fingerprint)
job = Job(Task("t", 1, "m:f"), spec | windows, {f"model:{folder}": planned})
model = load_model(job)
walks = np.random.default_rng(0).normal(size=(4, 90)).cumsum(axis=1).astype(np.float32)
data = series_table([Series("d", f"s{n}", walk, freq="D") for n, walk in enumerate(walks)])
(tokens,) = tokenize(job, data, model).dump
found = embed(Job(job.task, spec | {"batch": None, "store_dtype": "float16"}), tokens, model)
print([(len(one), one["layer"][0].as_py(), one["normed"][0].as_py()) for one in found.dump])
"""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the package is installed in, offline, by uv, which `make setup` puts beside .venv if need be."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(PACKAGE, folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
    options = ["--quiet", "--offline", "--no-deps", "--no-build-isolation", "--python", sys.executable]
    command = [uv(), "pip", "install", *options, "--target", str(folder / "site"), str(folder / "source")]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return folder / "site"


def uv() -> str:
    """The uv of the path, or the one that `make setup` puts beside .venv."""
    return shutil.which("uv") or str(Path(sys.prefix).parent / ".uv" / "bin" / "uv")


def run(target: Path | None, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(str(one) for one in (target, ROOT) if one)
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "120"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)


def profile(folder: Path, family: str) -> Path:
    """The smoke profile, with one model more."""
    block = yaml.safe_load((ROOT / "params" / "smoke.yaml").read_text())
    block["models"]["mine"] = {"family": family, "ref": "some/folder"}
    block["studies"]["isotropy-states"]["models"] = ["mine"]
    (folder / "params.yaml").write_text(yaml.safe_dump(block))
    return folder


def test_the_install_command_of_the_page_adds_the_package_to_this_environment(tmp_path: Path) -> None:
    """A dry run of it: uv resolves the package against what is installed here, without an index."""
    source = shutil.copytree(PACKAGE, tmp_path / "source", ignore=shutil.ignore_patterns("__pycache__"))
    page = (ROOT / "docs" / "plugins.md").read_text()
    (line,) = (line.strip() for line in page.splitlines() if line.strip().startswith("$ uv "))
    given = {"uv": uv(), ".venv/bin/python": sys.executable, "../my-package": str(source)}
    command = [given.get(word, word) for word in line.removeprefix("$ ").split()]
    offline = ["--dry-run", "--offline", "--no-build-isolation"]
    done = subprocess.run([*command, *offline], check=True, capture_output=True, text=True, timeout=120)
    assert "Would install 1 package" in done.stderr
    assert " + patch-line @ file://" in done.stderr


def test_the_page_names_every_matrix_kind_and_field_that_a_plug_in_may_use() -> None:
    from tsfmscope.conformance.matrices import MATRIX_NAMES
    from tsfmscope.models.base import Forecaster
    from tsfmscope.models.common.capture import Pass
    from tsfmscope.models.types import TokenKind, Tokens

    page = (ROOT / "docs" / "plugins.md").read_text()
    cells = {cell.strip() for line in page.splitlines() if line.startswith("| ") for cell in line.split("|")}
    words = {word.strip() for cell in cells for word in cell.split(",")}
    assert {*MATRIX_NAMES, *Tokens.__dataclass_fields__, *Pass._fields, *TokenKind.__members__} <= words
    checked = (
        "equivariant", "in_time_order", "unnamed", "inert_projections", "direct_quantiles", "plain_attention",
        "softmax_head",
    )  # fmt: skip
    assert set(checked) <= words
    assert all(hasattr(Forecaster, name) for name in checked)


@pytest.mark.slow
def test_params_may_name_its_family_and_a_plan_counts_its_cells(target: Path, tmp_path: Path) -> None:
    done = run(target, profile(tmp_path, "patch-line"), "-m", "tsfmscope", "plan")
    assert done.returncode == 0, done.stderr
    assert "4 models, 4 data sets, 2 conditions" in done.stdout  # one is a compressed model
    done = run(target, profile(tmp_path, "patch-lime"), "-m", "tsfmscope", "plan")
    assert done.returncode == 2
    assert "models.mine.family: unknown family 'patch-lime'; did you mean patch-line or patchtst-fm?" in done.stderr
    done = run(target, profile(tmp_path, "patch-line"), "-m", "stages", "external_inputs")
    assert done.returncode == 0, done.stderr
    (code,) = json.loads((tmp_path / "data" / "plugins.json").read_text())["patch-line"]
    assert code.startswith("patch-line 0.1.0 ")
    done = run(None, profile(tmp_path, "patch-line"), "-m", "tsfmscope", "plan")
    assert done.returncode == 2
    assert "unknown family 'patch-line'" in done.stderr
    assert done.stderr.endswith("install the package that adds another\n")


@pytest.mark.slow
def test_it_passes_the_conformance_suite(target: Path, tmp_path: Path) -> None:
    done = run(target, tmp_path, "-m", "tsfmscope", "check-family", "patch-line")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "37 pass, 0 fail, 1 not applicable" in done.stdout


@pytest.mark.slow
def test_jobs_load_it_and_embed_what_it_tokenises(target: Path, tmp_path: Path) -> None:
    make = "from patch_line import PatchLine; PatchLine.new(PatchLine.example, seed=0).save('checkpoint')"
    assert run(target, tmp_path, "-c", make).returncode == 0
    assert set(json.loads((tmp_path / "checkpoint" / "config.json").read_text())) >= {"width", "blocks"}
    done = run(target, tmp_path, "-c", JOBS, "checkpoint")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[(20, 0, False), (20, 1, False), (20, 2, False), (20, 2, True)]"


def test_the_page_on_plugins_lists_every_check_as_it_is() -> None:
    from tsfmscope.conformance import CHECKS
    from tsfmscope.conformance.subject import demand_of, name_of

    page = (ROOT / "docs" / "plugins.md").read_text()
    listed = [line for line in page.splitlines() if line.startswith("| `")]
    assert listed == [f"| `{name_of(check)}` | {demand_of(check)} |" for check in CHECKS]
