"""Checkpoints that are kept in git are taken over whole or not at all."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from stages import checkpoints
from stages.config.params import load
from stages.planning.checkpoints import CARD, former_rows, install, print_changed, skill_line
from stages.planning.model_folders import WORK, key_of
from stages.planning.training import MODELS, training_job
from store.files import write_rows, write_text
from store.stage_store import StageStore
from tasks.job import Job
from tsfmscope.errors import ModelError
from tsfmscope.models.common.checkpoint_folder import SUMS

ROOT = Path(__file__).parents[2]
NAME = "chronos-bolt-mini"


@pytest.mark.parametrize(
    "last", ["checksums.sha256", "config.json", "model.safetensors", "recipe.json", "training.json"]
)
def test_a_copy_that_broke_off_is_no_checkpoint_and_the_next_run_has_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    job = training_job(NAME, load(ROOT / "params" / "full.yaml").checkpoints.recipes[NAME])
    kept = ROOT / "tsfmscope" / "checkpoints" / NAME
    monkeypatch.chdir(tmp_path)
    copy, tree, write = shutil.copy2, shutil.copytree, write_text

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
        patch.setattr("stages.planning.checkpoints.write_text", written)
        with pytest.raises(OSError, match="No space left"):
            install(out, NAME, job, str(kept.parent))
        assert not (MODELS / NAME).exists() and key_of(WORK / job.key) is None
    with installing() as out:
        install(out, NAME, job, str(kept.parent))
        assert out.missing([job.key]) == []
    assert contents(MODELS / NAME) == contents(kept)
    assert not (WORK / job.key).exists()


@pytest.mark.parametrize("recipe", ["0" * 64, None])
def test_every_forecaster_of_a_study_has_a_skill_job_whoever_trained_it(recipe: str | None) -> None:
    params = load(ROOT / "params" / "full.yaml")
    place = {"family": "f", "ref": "somewhere", "fingerprint": "0" * 64, "recipe": recipe, "options": None}
    rows = [place | {"model": name, "modality": "series"} for name in (NAME, "lag-llama-mini-rope")]
    rows.append(place | {"model": "t5-text-nano", "modality": "text"})
    jobs = [one.job for one in checkpoints._skill_jobs(params, rows)]
    assert [job.spec["model"] for job in jobs] == [NAME]  # text is not forecast; the other has the base's weights
    assert jobs[0].spec["recipe"] == recipe


def test_a_skill_row_of_a_model_from_elsewhere_is_stored_and_said(tmp_path: Path) -> None:
    sines = {"sine_error": 0.086, "sine_error_max": 0.5, "sine_period_max": 144}
    row = {"model": "theirs", "recipe": None, "seed": 0, **sines, "job_key": "k"}
    write_rows(tmp_path / "skill.parquet", "skill", [row])
    (stored,) = pq.read_table(tmp_path / "skill.parquet").to_pylist()
    held = {name: value for name, value in stored.items() if value is not None}
    assert held == {name: value for name, value in row.items() if value is not None}
    assert skill_line(stored) == "error on a clean sine 0.09 of forecasting 0, at most 0.50 (period 144)"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Job, Path]:
    """The job of a checkpoint, and a copy of the folder that is kept in git, which the stage has taken over."""
    job = training_job(NAME, load(ROOT / "params" / "full.yaml").checkpoints.recipes[NAME])
    kept = tmp_path / "kept" / NAME
    shutil.copytree(ROOT / "tsfmscope" / "checkpoints" / NAME, kept)
    monkeypatch.chdir(tmp_path)
    with installing() as out:
        install(out, NAME, job, str(kept.parent))
    return job, kept


def flip(path: Path, place: int = 100) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "file", ["checksums.sha256", "config.json", "model.safetensors", "recipe.json", "training.json"]
)
def test_a_damaged_checkpoint_under_data_is_named_set_aside_and_installed_again(
    installed: tuple[Job, Path], file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job, kept = installed
    flip(MODELS / NAME / file)
    with installing() as out:
        install(out, NAME, job, str(kept.parent))
        assert out.missing([job.key]) == []
    assert contents(MODELS / NAME) == contents(kept)
    said = capsys.readouterr().out
    assert f"checkpoints: {MODELS / NAME}/" in said
    assert f"set aside as data/.status/damaged/checkpoints/{NAME} and made again" in said
    assert Path("data/.status/damaged/checkpoints", NAME, file).exists()


@pytest.mark.parametrize("file", ["model.safetensors", "recipe.json", "training.json"])
def test_a_damaged_checkpoint_that_is_kept_in_git_ends_the_stage(installed: tuple[Job, Path], file: str) -> None:
    job, kept = installed
    flip(kept / file)
    with installing() as out, pytest.raises(ModelError, match=rf"{kept / file}: damaged: .* restore the folder"):
        install(out, NAME, job, str(kept.parent))


def test_a_checkpoint_of_an_earlier_version_gets_its_checksums(installed: tuple[Job, Path]) -> None:
    job, kept = installed
    (MODELS / NAME / SUMS).unlink()
    with installing() as out:
        install(out, NAME, job, str(kept.parent))
    assert contents(MODELS / NAME) == contents(kept)


def test_a_damaged_table_of_the_last_run_does_not_stop_the_stage_that_writes_it_anew(tmp_path: Path) -> None:
    row = {"model": "m", "family": "f", "modality": "series", "source": "folder", "ref": "r", "fingerprint": "0" * 64}
    path = tmp_path / "checkpoints" / "00000.parquet"
    facts = {"parameters": 1, "bytes": 4, "input_stack": "encoder", "output_stack": "encoder"}
    write_rows(path, "checkpoints", [row | facts])
    assert [one["model"] for one in former_rows(tmp_path)] == ["m"]
    flip(path)
    assert former_rows(tmp_path) == []


def test_models_in_folders_of_the_user_that_have_changed_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"model": "m", "ref": "mine", "source": "folder", "fingerprint": "a" * 64}
    print_changed([], [row])
    print_changed([row], [row, {**row, "model": "new"}])
    assert capsys.readouterr().out == ""
    print_changed([row], [{**row, "fingerprint": "b" * 64}])
    assert capsys.readouterr().out == (
        "checkpoints: m: the files in mine have changed since the last run (fingerprint aaaaaaaaaaaa, now "
        "bbbbbbbbbbbb); its jobs run again\n"
    )


def installing() -> StageStore:
    return StageStore(
        Path("data/checkpoints"), tables=["training"], companion=Path("data/timings"), stage="checkpoints"
    )


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a checkpoint, which has its card in git only."""
    assert (folder / CARD).exists() is not folder.is_relative_to(MODELS)
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != CARD}
