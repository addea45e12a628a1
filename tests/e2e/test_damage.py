"""Damage to a finished run, through real DVC: `dvc repro` has the undisturbed results, or an error names the file."""

from __future__ import annotations

import hashlib
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.checkout import Checkout

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

FLIPS = int(os.environ.get("TSFMSCOPE_FLIPS", "6"))  # more in a nightly run
FIRST = int(os.environ.get("TSFMSCOPE_FLIP_SEED", "0"))
OF_THIS_MACHINE = {"timings", "runs"}
TABLES = """
    select table_name
    from information_schema.tables
    where table_type = 'BASE TABLE' and table_name not in ('timings', 'runs')
    order by all
"""


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def flip(path: Path, draw: random.Random) -> None:
    """Flip one bit in place, so that whatever is linked to the file gets it too."""
    path.chmod(0o644)
    with path.open("r+b") as file:
        place = draw.randrange(path.stat().st_size)
        file.seek(place)
        byte = file.read(1)[0] ^ 1 << draw.randrange(8)
        file.seek(place)
        file.write(bytes([byte]))


def results(made: Checkout) -> dict[str, list[dict[str, Any]]]:
    """Rows of every table but those of wall-clock times, and the headline metrics."""
    names = [row["table_name"] for row in made.sql(TABLES)]
    found = {name: made.sql(f"select * from {name} order by all") for name in names}
    return found | {"metrics": [json.loads((made.folder / "data/metrics.json").read_text())]}


def test_damage_in_place_does_not_reach_the_cache(smoke: Checkout, tmp_path: Path) -> None:
    made = smoke.copy(tmp_path / "repository")
    made.run("dvc", "checkout", "--relink")
    for name in ("data/results.duckdb", "data/geometry/geometry/00000.parquet"):
        path = made.folder / name
        sound = digest(path)
        assert path.stat().st_nlink == 1
        flip(path, random.Random(name))
        assert digest(path) != sound
        made.run("dvc", "checkout", "--force")
        assert digest(path) == sound


def test_a_damaged_file_of_rows_is_set_aside_and_its_jobs_run_again(smoke: Checkout, tmp_path: Path) -> None:
    made = smoke.copy(tmp_path / "repository")
    made.run("dvc", "checkout", "--relink")
    path = made.folder / "data/geometry/geometry/00000.parquet"
    sound = digest(path)
    flip(path, random.Random(0))
    done = made.run("dvc", "repro", "tables")
    assert "data/geometry/geometry/00000.parquet is damaged; quarantined as" in done.stdout + done.stderr
    assert digest(path) == sound


def test_damage_that_dvc_does_not_see_is_named_by_the_stage_that_reads_it(smoke: Checkout, tmp_path: Path) -> None:
    made = smoke.copy(tmp_path / "repository")
    for name, stage in (
        ("data/geometry/geometry/00000.parquet", "tables"),
        ("data/kernelsynth/datasets.parquet", "statistics"),
        ("data/tokens/dumps/chronos-t5-nano/seasonality-2/context-128.arrow", "embeddings"),
        ("data/embeddings/dumps/chronos-t5-nano/seasonality-2/context-128.arrow", "geometry"),
        ("data/kernelsynth/series/seasonality-2.parquet", "forecasts"),
    ):
        path = made.folder / name
        content = path.read_bytes()
        flip(path, random.Random(name))
        done = made.run("python", "-m", "tsfmscope.stages", stage, ok=False)
        assert f"{name}: damaged: expected" in done.stdout + done.stderr, (stage, name)
        assert "Traceback" not in done.stderr
        path.write_bytes(content)


def kinds(made: Checkout) -> list[Path]:
    """Every file under data/ that is an out: one draw for each folder, so that large ones do not take all."""
    folders: dict[Path, list[Path]] = {}
    for path in sorted((made.folder / "data").rglob("*")):
        parts = path.relative_to(made.folder).parts
        if path.is_file() and path.stat().st_size and not any(part.startswith(".") for part in parts):
            folders.setdefault(path.parent, []).append(path)
    return [random.Random(str(folder)).choice(paths) for folder, paths in folders.items()]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(FIRST, FIRST + FLIPS))
def test_a_flipped_bit_anywhere_under_data_never_gives_other_results(
    smoke: Checkout, tmp_path: Path, seed: int
) -> None:
    draw, made = random.Random(seed), smoke.copy(tmp_path / "repository")
    expected = results(made)
    damaged = draw.choice(kinds(made))
    name = damaged.relative_to(made.folder).as_posix()
    flip(damaged, draw)
    done = made.run("dvc", "repro", ok=False)
    said = done.stdout + done.stderr
    if done.returncode:
        assert name in said, f"seed {seed}: {said[-3000:]}"
    else:
        assert results(made) == expected, f"seed {seed}: {name}"
