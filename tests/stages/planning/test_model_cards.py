"""Model cards of committed checkpoints: what they state, when they are renewed, and that their code runs."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from stages.config.params import Params, load
from stages.planning.checkpoints import CARD
from stages.planning.model_cards import SKILL, TEXTS, card_text, commit
from stages.planning.model_folders import publish, work_folder
from stages.planning.training import MODELS, training_job
from tasks.job import Result
from tasks.pretraining import pretrain
from tests.tsfmscope.models.toto_2.parity import INTERPRETER
from tsfmscope.errors import ModelError
from tsfmscope.forecasting.skill import COLUMNS
from tsfmscope.models import registry
from tsfmscope.models.common.checkpoint_folder import verify_sums, write_sums
from tsfmscope.series.synthetic.shards import CORPUS_FILE
from tsfmscope.training.options import Recipe
from tsfmscope.training.pretraining import RUN_RECORD, processor_name

ROOT = Path(__file__).parents[3]
COMMITTED = sorted(path.parent.name for path in ROOT.glob("tsfmscope/checkpoints/*/recipe.json"))
NANO = "chronos-bolt-nano"
GROUPS = ("guided", "report")
TINY = {
    "family": "chronos-bolt", "steps": 2, "batch_steps": 320, "learning_rate": 0.01, "contexts": [32, 64],
    "horizon": 16, "min_past": 8, "mixture": {"priors": 0.75, "periodic": 0.25}, "log_every": 1,
    "config": {
        "d_model": 16, "d_ff": 16, "d_kv": 8, "num_heads": 2, "num_layers": 1, "num_decoder_layers": 1,
        "context_length": 64, "prediction_length": 16, "input_patch_size": 16, "input_patch_stride": 16,
    },
}  # fmt: skip


def params_of(folder: Path, name: str, recipes: dict[str, Any]) -> Params:
    block = {"seed": 0, "models": {name: {"family": "chronos-bolt", "ref": f"checkpoint:{name}"}}}
    block |= {"datasets": {"sets": {"nile": {}}}, "conditions": {"c": {"context": 64}}, "checkpoints": {}}
    study = {"title": "s", "models": [name], "datasets": ["nile"], "conditions": ["c"]}
    block |= {"studies": {"s": study}, "checkpoints": {"recipes": recipes}}
    (folder / "params.yaml").write_text(yaml.safe_dump(block))
    return load(folder / "params.yaml")


def facts(card: str) -> dict[str, str]:
    return dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", card, re.MULTILINE))


def header(card: str) -> dict[str, Any]:
    block: dict[str, Any] = yaml.safe_load(card.split("---\n")[1])
    return block


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Params, Result]:
    """A tiny checkpoint that the pipeline has trained, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    params = params_of(tmp_path, "tiny", {"tiny": TINY})
    job = training_job("tiny", params.checkpoints.recipes["tiny"])
    result = pretrain(job, work_folder(job), None)
    assert publish(MODELS / "tiny", job)
    return params, result


def test_a_card_states_data_and_training_and_is_the_same_each_time(trained: tuple[Params, Result]) -> None:
    params, result = trained
    folder = Path("kept/tiny")
    assert commit(params, folder.parent) == ["tiny"]
    card = (folder / CARD).read_text()
    stated, run = facts(card), json.loads((folder / RUN_RECORD).read_text())
    assert stated["training points (observed values)"] == f"{result.tokens:,}"
    assert float(stated["hours of training"]) == pytest.approx(run["seconds"] / 3600, rel=0.01)
    assert stated["processor"] == processor_name("cpu") and stated["steps"] == "2"
    assert stated["parameters"] == f"{registry.facts(folder)['parameters']:,}"
    assert "| 75 % |" in card and "| 25 % |" in card and "No real series." in card
    assert TEXTS["not_measured"].format(name="tiny") in card
    expected = {"library_name": "chronos-forecasting", "pipeline_tag": "time-series-forecasting"}
    assert header(card) == expected | {"tags": ["chronos-bolt", "tsfmscope"]}
    verify_sums(folder)
    registry.family_class("chronos-bolt").load(folder)
    commit(params, folder.parent)
    assert (folder / CARD).read_text() == card


@pytest.mark.parametrize(("text", "identifier"), [((ROOT / "LICENSE").read_text(), "apache-2.0"), ("Mine.", None)])
def test_the_license_is_that_of_the_folder(trained: tuple[Params, Result], text: str, identifier: str | None) -> None:
    Path("LICENSE").write_text(text)
    commit(trained[0], Path("kept"))
    assert header(Path("kept/tiny", CARD).read_text()).get("license") == identifier
    assert registry.facts(Path("kept/tiny"))["license"] == identifier


def test_a_committed_checkpoint_that_is_not_in_data_gets_its_card_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = load(ROOT / "params" / "smoke.yaml").checkpoints.recipes[NANO].model_dump(exclude_defaults=True)
    params, kept = params_of(tmp_path, NANO, {NANO: recipe}), tmp_path / "kept" / NANO
    with pytest.raises(ModelError, match="run `dvc repro checkpoints`"):
        commit(params, kept.parent)
    shutil.copytree(ROOT / "tests" / "checkpoints" / NANO, kept, ignore=shutil.ignore_patterns(CARD, RUN_RECORD))
    before = {path.name: path.read_bytes() for path in kept.iterdir()}
    commit(params, kept.parent)
    after = {path.name: path.read_bytes() for path in kept.iterdir()}
    card = after.pop(CARD).decode()
    assert after == before
    assert {facts(card)[name] for name in ("hours of training", "processor", "torch")} == {"not recorded"}
    assert "Real series: the first 80 % of sunspots, co2, elnino, nile, macrodata" in card
    assert TEXTS["not_measured"].format(name=NANO) in card


def test_a_card_has_the_measured_skill_of_its_weights_alone(trained: tuple[Params, Result]) -> None:
    commit(trained[0], Path("kept"))
    folder = Path("kept/tiny")
    row = dict.fromkeys(COLUMNS, "") | {"model": "tiny", "weights": registry.resolve(str(folder)).fingerprint[:12]}
    row |= {"season": 7, "horizon": 30, "n_windows": 5, "error": 2.0, "naive_error": 4.0}
    rows = [row | {"group": group, "dataset": f"{group}-{n}", "loss": n} for group in GROUPS for n in (1, 4)]
    SKILL.parent.mkdir(parents=True)
    with SKILL.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows([*rows, rows[0] | {"weights": "others", "loss": 9}, rows[0] | {"model": "other", "loss": 9}])
    card = card_text(folder, trained[0].checkpoints.recipes)
    for group in GROUPS:
        assert f"| {group} | 2 | 0.500 | 0.500 | {group}-4 | 1.00 |" in card
        assert f"| {group}-1 | {group} | 5 | 30 | 7 | 0.250 | 0.500 |" in card
    assert "guided the recipe; the report sets chose nothing" in card and "Not measured" not in card
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    write_sums(folder)
    assert TEXTS["not_measured"].format(name="tiny") in card_text(folder, trained[0].checkpoints.recipes)


@pytest.mark.parametrize(
    ("real", "expected"),
    [([], "No real series."), (["bundled:co2", "/far/taxi.parquet"], "Real series: bundled:co2, taxi.parquet.")],
)
def test_a_card_names_the_real_series_of_a_corpus_and_of_the_source_of_an_embedding(
    trained: tuple[Params, Result], real: list[str], expected: str
) -> None:
    Path("corpus").mkdir()
    Path("corpus", CORPUS_FILE).write_text(json.dumps({"source": "priors", "tsmixup": 0.9, "real": real}))
    recipes = trained[0].checkpoints.recipes
    changes = {"mixture": {"shards": 1.0}, "corpus": "corpus", "embedding_from": "other"}
    other = recipes["tiny"].model_copy(update={"mixture": {"bundled": 1.0}})
    recipes |= {"tiny": recipes["tiny"].model_copy(update=changes), "other": other}
    own, _, embedding = card_text(MODELS / "tiny", recipes).partition("The token embedding is that of `other`")
    assert expected in own and "source priors, 90 % of the series TSMixup" in own
    assert "Real series: the first 80 % of sunspots" in embedding


@pytest.mark.parametrize("name", COMMITTED)
def test_a_committed_card_is_up_to_date_and_its_code_runs(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    folder = ROOT / "tsfmscope" / "checkpoints" / name
    catalogue = yaml.safe_load((ROOT / "tsfmscope" / "models" / "bundled.yaml").read_text())["recipes"]
    recipes = {key: Recipe.model_validate(block) for key, block in catalogue.items()}
    with contextlib.chdir(ROOT):
        card = (folder / CARD).read_text()
        assert card == card_text(folder, recipes), "run: tsfmscope commit-checkpoints"
        blocks = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
        assert blocks
        for block in blocks:
            if "toto2" not in block:
                exec(block, {})
            elif python := os.environ.get(INTERPRETER):
                subprocess.run([python, "-c", block], check=True)
    # transformers names weights that a checkpoint lacks.
    assert "MISSING" not in capfd.readouterr().err
    if name.startswith("toto-2") and INTERPRETER not in os.environ:
        pytest.skip(f"the rest passed; {INTERPRETER} names no Python 3.12 with toto-2: docs/install.md")
