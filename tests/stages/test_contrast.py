"""Data sets of other modalities through the stages that make them, and the keys of recipes that are not theirs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from stages import datasets, external_inputs
from stages.config.params import Params, load
from stages.planning import planning
from stages.planning.training import training_job
from store.files import fingerprint
from tsfmscope.training.options import Recipe

ROOT = Path(__file__).parents[2]
SETS: dict[str, Any] = {
    "english": {},
    "photographs": {},
    "tables": {},
    "mine": {"source": "text", "file": "mine.txt", "horizon": 8},
    "cifar10": {},
    "novel": {},
}


def params_of(tmp_path: Path, **changes: Any) -> Params:
    block = yaml.safe_load((ROOT / "params" / "smoke.yaml").read_text())
    block["datasets"] = {"max_series": 4, "min_length": 32, "sets": SETS, **changes}
    block["conditions"]["image"] = {"context": 3072}
    for study in block["studies"].values():
        study |= {"datasets": "all"}
    block["compression"]["calibration"]["datasets"] = ["english"]
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(block))
    return load(tmp_path / "params.yaml")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data root with a text and an images file, and a working folder of its own."""
    folder = tmp_path / "root"
    folder.mkdir()
    (folder / "mine.txt").write_text("call me ishmael. " * 300)
    images = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 3)).astype(np.uint8)
    np.savez(folder / "cifar10_1000.npz", images=images)
    monkeypatch.setenv("TSFMSCOPE_DATA", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def test_every_modality_is_written_as_series_and_what_is_missing_is_counted(data: Path, tmp_path: Path) -> None:
    datasets.main(params_of(tmp_path))
    written = {path.stem: pq.read_table(path).num_rows for path in Path("data/datasets/series").glob("*.parquet")}
    assert written == {name: 4 for name in SETS if name != "novel"}
    rows = {row["dataset"]: row for row in pq.read_table("data/datasets/datasets.parquet").to_pylist()}
    assert {name: (row["source"], row["season"], row["freq"]) for name, row in rows.items()} == {
        "english": ("text", 1, ""),
        "mine": ("text", 1, ""),
        "photographs": ("images", 1, ""),
        "cifar10": ("images", 1, ""),
        "tables": ("tables", 1, ""),
    }
    assert (rows["photographs"]["n_available"], rows["tables"]["n_available"]) == (1000, 1000)
    skipped = pq.read_table("data/datasets/skipped.parquet").to_pylist()
    assert [(row["dataset"], row["n"]) for row in skipped] == [("novel", 1)]
    assert "no text in" in skipped[0]["reason"]


def test_the_same_seed_writes_the_same_bytes(data: Path, tmp_path: Path) -> None:
    prints = []
    for _ in range(2):
        datasets.main(params_of(tmp_path))
        prints.append({p.stem: fingerprint(p) for p in Path("data/datasets/series").glob("*.parquet")})
    assert prints[0] == prints[1]


def test_files_of_text_and_images_are_seen_by_dvc(data: Path, tmp_path: Path) -> None:
    external_inputs.main(params_of(tmp_path))
    files = json.loads(Path("data/external_inputs.json").read_text())["files"]
    assert files == {name: fingerprint(data / name) for name in ("cifar10_1000.npz", "mine.txt")}


def test_a_change_of_one_file_in_a_folder_of_series_is_seen_by_dvc(data: Path, tmp_path: Path) -> None:
    values = "\n".join(map(str, range(40)))
    for name in ("a.csv", "b.csv"):
        (data / "mine.csv").mkdir(exist_ok=True)
        (data / "mine.csv" / name).write_text(f"y\n{values}\n")
    (data / "outside.csv").write_text(f"y\n{values}\n")
    (data / "mine.csv" / "linked.csv").symlink_to(data / "outside.csv")
    # Not read, so that DVC does not have to see it.
    (data / "mine.csv" / "notes.txt").write_text("none")
    sets = {"english": {}, "mine": {"source": "folder", "file": "mine.csv", "horizon": 4}}

    def inputs() -> dict[str, str]:
        external_inputs.main(params_of(tmp_path, sets=sets))
        return dict(json.loads(Path("data/external_inputs.json").read_text())["files"])

    before = inputs()
    assert list(before) == ["mine.csv/a.csv", "mine.csv/b.csv", "mine.csv/linked.csv"]
    for name in ("mine.csv/b.csv", "outside.csv"):
        (data / name).write_text(f"y\n{values}\n7\n")
        assert inputs() != before
        before = inputs()
    (data / "mine.csv" / "c.csv").write_text(f"y\n{values}\n")
    assert inputs() != before
    (data / "mine.csv" / "a.csv").unlink()
    assert "mine.csv/a.csv" not in inputs()


def test_without_a_root_a_file_is_asked_for_and_the_built_in_sets_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TSFMSCOPE_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    datasets.main(params_of(tmp_path, sets={"english": {}, "cifar10": {}}))
    assert Path("data/datasets/series/english.parquet").exists()
    skipped = pq.read_table("data/datasets/skipped.parquet").to_pylist()
    assert [row["dataset"] for row in skipped] == ["cifar10"]
    assert "no data root; set TSFMSCOPE_DATA" in skipped[0]["reason"]


@pytest.mark.parametrize(("dataset", "expected"), [("photographs", 3072), ("tables", 3072), ("english", 16)])
def test_the_context_of_an_image_or_a_table_must_be_whole(tmp_path: Path, dataset: str, expected: int) -> None:
    params = params_of(tmp_path)
    options = planning.window_options(params, planning.Cell("chronos-t5-nano", dataset, "image"), 16)
    assert options.min_context == expected


def test_every_committed_checkpoint_is_the_one_that_its_recipe_makes() -> None:
    """The fields of a recipe enter its key: none that is added may change those of the checkpoints that there are."""
    catalogue = yaml.safe_load((ROOT / "tsfmscope" / "models" / "bundled.yaml").read_text())["recipes"]
    kept = {path.parent.name: json.loads(path.read_text()) for path in ROOT.glob("tsfmscope/checkpoints/*/recipe.json")}
    assert kept and set(kept) == set(catalogue)
    for name, found in kept.items():
        job = training_job(name, Recipe.model_validate(catalogue[name]))
        assert found == {"key": job.key, "recipe": job.spec["recipe"]}, name
