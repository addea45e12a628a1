"""The wheel holds what the packages read beside their code."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_wheel_holds_queries_catalog_and_page(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {"store/sql/answers/correlation.sql", "tasks/series/catalog.yaml", "tasks/report/page.html.j2"}
    assert wanted <= names
    code = {
        path.relative_to(ROOT).as_posix() for top in ("stages", "tasks", "store") for path in (ROOT / top).rglob("*.py")
    }
    assert code <= names
    assert not {name for name in names if name.startswith(("tests/", "data/", "checkpoints/"))}
