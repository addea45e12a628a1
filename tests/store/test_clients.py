"""results.duckdb in DuckDB's own clients, of today and of 1.4: it opens wherever it lies, and every view answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from store import catalogue, files

OLD = Path(sys.prefix, "duckdb-1.4")  # the Makefile's set-up puts the older client there
ASK = Path(__file__).with_name("ask.py")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory, rows) -> Path:
    """A catalogue with a row in some tables, moved away from where it was made."""
    folder = tmp_path_factory.mktemp("made")
    files.write_rows(folder / "training", "training", [rows["training"] | {"job_key": "k"}])
    files.write_rows(folder / "checkpoints", "checkpoints", [rows["checkpoints"]])
    catalogue.build(folder / "results.duckdb", {name: [folder / name] for name in ("training", "checkpoints")})
    moved = tmp_path_factory.mktemp("elsewhere") / "copy.duckdb"
    shutil.move(folder / "results.duckdb", moved)
    shutil.rmtree(folder)
    return moved


def asked(database: Path, client: Path | None) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if client is not None:
        assert client.is_dir(), f"{client} is not there: `make setup` installs the older DuckDB client"
        environment["PYTHONPATH"] = str(client)
    command = [sys.executable, str(ASK), str(database)]
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(("client", "version"), [(None, "2."), (OLD, "1.4.")])
def test_a_stock_client_opens_a_moved_catalogue_and_every_view_answers(
    database: Path, client: Path | None, version: str
) -> None:
    found = asked(database, client)
    assert found["version"].startswith(version)
    assert {
        name: why for kind in ("tables", "views") for name, why in found[kind].items() if isinstance(why, str)
    } == {}
    assert len(found["views"]) >= 50 and found["tables"]["training"] == 1 and found["views"]["training_runs"] == 1
    assert ["model", "VARCHAR"] in found["summary"]
    assert found["uncommented"] == 0
