"""Checkpoints that are kept in git are taken over whole or not at all."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

import pytest

from stages import checkpoints
from stages.folders import key_of
from stages.params import load
from store.out import Out

ROOT = Path(__file__).parents[2]
NAME = "chronos-bolt-nano"


@pytest.mark.parametrize("last", ["config.json", "model.safetensors", "recipe.json", "training.json"])
def test_a_copy_that_broke_off_is_no_checkpoint_and_the_next_run_has_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    job = checkpoints.training_job(NAME, load(ROOT / "params.yaml").checkpoints.recipes[NAME])
    kept = ROOT / "checkpoints" / NAME
    monkeypatch.chdir(tmp_path)
    copy, tree, write = shutil.copy2, shutil.copytree, checkpoints.write_text

    def breaks(name: str) -> None:
        if name == last:
            raise OSError(28, "No space left on device")

    def copied(source: str, target: str) -> None:
        breaks(Path(source).name)
        copy(source, target)

    def written(path: Path, text: str) -> None:
        breaks(path.name)
        write(path, text)

    with installing() as out, monkeypatch.context() as patch:
        patch.setattr(shutil, "copytree", functools.partial(tree, copy_function=copied))
        patch.setattr(checkpoints, "write_text", written)
        with pytest.raises(OSError, match="No space left"):
            checkpoints._install(out, NAME, job, str(kept.parent))
        assert not (checkpoints.MODELS / NAME).exists() and key_of(checkpoints.WORK / job.key) is None
    with installing() as out:
        checkpoints._install(out, NAME, job, str(kept.parent))
        assert out.missing([job.key]) == []
    assert contents(checkpoints.MODELS / NAME) == contents(kept)
    assert not (checkpoints.WORK / job.key).exists()


def installing() -> Out:
    return Out(Path("data/checkpoints"), tables=["training"], companion=Path("data/timings"), stage="checkpoints")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}
