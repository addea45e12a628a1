"""Damage in place to an out does not reach DVC's cache, by this project's own DVC configuration."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.e2e.checkout import ROOT, Checkout

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STAGE = """
stages:
  tables:
    cmd: python -c "open('data/results.duckdb', 'wb').write(bytes(range(256)) * 64)"
    outs:
      - data/results.duckdb
"""
SOUND = bytes(range(256)) * 64


def damage(path: Path) -> None:
    """Flip a bit without making a new file; who may, writes to a file that DVC has made read-only too."""
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff")
    assert path.read_bytes() != SOUND


def test_damage_in_place_is_repaired_from_the_cache_and_by_the_stage(tmp_path: Path) -> None:
    made = Checkout(tmp_path)
    made.run("git", "init", "--quiet")
    made.run("dvc", "init", "--quiet")
    shutil.copy(ROOT / ".dvc" / "config", tmp_path / ".dvc" / "config")
    (tmp_path / "dvc.yaml").write_text(STAGE)
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "results.duckdb"
    assert made.repro() == ["tables"]
    assert path.stat().st_nlink == 1
    damage(path)
    made.run("dvc", "checkout", "--force")
    assert path.read_bytes() == SOUND
    damage(path)
    assert made.repro() == ["tables"]
    assert path.read_bytes() == SOUND
