"""Damage to a finished run, through real DVC: the same results again, or an error that names the file."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest

from tests.e2e.checkout import Checkout

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def flip(path: Path) -> None:
    """Flip one bit in place, so that every hard link of the file is damaged too."""
    generator = random.Random(path.name)
    path.chmod(0o644)
    with path.open("r+b") as file:
        position = generator.randrange(path.stat().st_size)
        file.seek(position)
        byte = file.read(1)[0] ^ 1 << generator.randrange(8)
        file.seek(position)
        file.write(bytes([byte]))


def test_damage_does_not_reach_the_cache_and_the_jobs_of_a_damaged_file_run_again(
    smoke: Checkout, tmp_path: Path
) -> None:
    made = smoke.copy(tmp_path / "repository")
    made.run("dvc", "checkout", "--relink")
    database, rows = (made.folder / name for name in ("data/results.duckdb", "data/geometry/geometry/00000.parquet"))
    digests = {path: digest(path) for path in (database, rows)}
    for path in digests:
        assert path.stat().st_nlink == 1
        flip(path)
        assert digest(path) != digests[path]
    made.run("dvc", "checkout", "--force")
    assert {path: digest(path) for path in digests} == digests

    flip(rows)
    done = made.run("dvc", "repro", "geometry")
    assert "data/geometry/geometry/00000.parquet is damaged; quarantined as" in done.stdout + done.stderr
    assert digest(rows) == digests[rows]


def test_damage_that_dvc_does_not_see_is_named_by_the_stage_that_reads_it(smoke: Checkout, tmp_path: Path) -> None:
    made = smoke.copy(tmp_path / "repository")
    for name, stage in (
        ("data/geometry/geometry/00000.parquet", "tables"),
        ("data/embeddings/dumps/chronos-t5-nano/seasonality-2/context-128.arrow", "geometry"),
        ("data/kernelsynth/series/seasonality-2.parquet", "forecasts"),
    ):
        flip(made.folder / name)
        done = made.run("python", "-m", "stages", stage, ok=False)
        assert f"{name}: damaged: expected" in done.stdout + done.stderr, (stage, name)
        assert "Traceback" not in done.stderr
