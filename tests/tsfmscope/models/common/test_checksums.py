"""Checksums of checkpoint folders: damage to any file is named before the model is loaded."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from stages.planning.checkpoints import CARD
from tsfmscope.errors import ModelError
from tsfmscope.models import registry
from tsfmscope.models.common.checkpoint_folder import SUMS, verify_sums, write_recipe, write_sums

ROOT = Path(__file__).parents[4] / "tsfmscope" / "checkpoints"
COMMITTED = sorted(path.name for path in ROOT.iterdir() if path.is_dir())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint with a snapshot of its training."""
    shutil.copytree(ROOT / "chronos-bolt-mini", tmp_path / "m", ignore=shutil.ignore_patterns(SUMS))
    shutil.copytree(ROOT / "chronos-bolt-mini", tmp_path / "m/snapshots/step-1", ignore=shutil.ignore_patterns(SUMS))
    write_sums(tmp_path / "m")
    return tmp_path / "m"


@pytest.mark.parametrize("name", COMMITTED)
def test_every_file_of_a_committed_checkpoint_but_its_card_is_recorded_and_as_recorded(name: str) -> None:
    verify_sums(ROOT / name)
    recorded = {line.split("  ")[1] for line in (ROOT / name / SUMS).read_text().splitlines()}
    assert recorded == {path.name for path in (ROOT / name).iterdir()} - {SUMS, CARD}


@pytest.mark.parametrize("seed", range(6))
def test_a_flipped_bit_of_any_file_is_named_when_the_model_is_resolved(folder: Path, seed: int) -> None:
    registry.resolve(str(folder))
    draw = random.Random(seed)
    path = draw.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)
    try:
        registry.resolve(str(folder))
    except ModelError as error:
        said = str(error)
        assert said.startswith(f"{folder}/") and "expected" in said and "found" in said and "restore the folder" in said
    else:
        assert path.name == SUMS  # a line break for another, say
        verify_sums(folder)


def test_the_error_names_file_expected_found_and_what_to_do(folder: Path) -> None:
    (folder / "config.json").write_text("{}")
    with pytest.raises(ModelError) as raised:
        verify_sums(folder)
    digest = "[0-9a-f]{64}"
    assert re.fullmatch(
        rf"{folder}/config\.json: damaged: expected SHA-256 {digest}, found {digest}; restore the folder \(`git "
        rf"checkout` or `dvc checkout`\), or delete its {SUMS} where the change is meant",
        str(raised.value),
    )


def test_a_snapshot_is_held_to_the_checksums_of_its_checkpoint(folder: Path) -> None:
    snapshot = folder / "snapshots" / "step-1"
    registry.resolve(str(snapshot))
    (folder / "config.json").write_text("{}")  # not of the snapshot
    registry.resolve(str(snapshot))
    (snapshot / "config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"step-1/config\.json: damaged"):
        registry.resolve(str(snapshot))


def test_a_file_that_is_gone_is_named(folder: Path) -> None:
    (folder / "training.json").unlink()
    with pytest.raises(ModelError, match=r"training\.json: damaged: .* found no such file"):
        verify_sums(folder)


@pytest.mark.parametrize("line", ["no checksum", "00  /etc/passwd", "00  ../config.json", "00  "])
def test_a_record_that_is_none_is_named(folder: Path, line: str) -> None:
    (folder / SUMS).write_text(f"{line}\n")
    with pytest.raises(ModelError, match=f"{SUMS}: damaged: expected lines of a SHA-256"):
        verify_sums(folder)


def test_a_folder_without_a_record_is_taken_as_it_is(folder: Path) -> None:
    (folder / SUMS).unlink()
    (folder / "config.json").write_text("{}")
    verify_sums(folder)


def test_the_record_covers_the_recipe_and_is_what_sha256sum_checks(folder: Path) -> None:
    write_recipe(folder, {"key": "k"})
    verify_sums(folder)
    subprocess.run(["sha256sum", "--check", "--quiet", SUMS], cwd=folder, check=True)
    (folder / "recipe.json").write_text("{}")
    with pytest.raises(ModelError, match=r"recipe\.json: damaged"):
        verify_sums(folder)


@pytest.mark.parametrize("kept", [0, 1])
def test_a_file_of_checksums_that_was_cut_short_is_damage(folder: Path, kept: int) -> None:
    lines = (folder / SUMS).read_text().splitlines(keepends=True)
    (folder / SUMS).write_text("".join(lines[:kept]))
    with pytest.raises(ModelError, match=rf"{SUMS}: damaged: expected a line for .*model\.safetensors, found none"):
        registry.resolve(str(folder))
