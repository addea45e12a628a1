"""The family of a checkpoint is recognised from its config.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tsfmscope.models.families import CHECKPOINTS, change_config, example_model
from tsfmscope.errors import ModelError
from tsfmscope.models.registry import FAMILIES, family_of_config, family_of_folder, load


@pytest.mark.parametrize("folder", sorted(CHECKPOINTS.glob("*/")), ids=lambda one: one.name)
def test_every_committed_checkpoint_is_recognised(folder: Path) -> None:
    recipe = json.loads((folder / "recipe.json").read_text())["recipe"]
    assert family_of_folder(folder) == recipe["family"]


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_what_a_family_saves_is_recognised(family: str, tmp_path: Path) -> None:
    example_model(family).save(tmp_path)
    assert family_of_folder(tmp_path) == family


def test_a_config_may_name_its_family_as_its_model_type() -> None:
    assert family_of_config({"model_type": "lag-llama"}) == "lag-llama"
    assert family_of_config({"model_type": "no-such-family"}) is None


@pytest.mark.parametrize("family", ["chronos-t5", "chronos-bolt", "chronos-2"])
@pytest.mark.parametrize("architectures", [None, ["T5ForConditionalGeneration"], []])
@pytest.mark.parametrize("left_out", ["architectures", "chronos_pipeline_class", "model_type"])
def test_a_chronos_config_is_recognised_by_its_block_whatever_class_it_names(
    family: str, architectures: list[str] | None, left_out: str
) -> None:
    config = json.loads((CHECKPOINTS / f"{family}-mini" / "config.json").read_text()) | {"architectures": architectures}
    del config[left_out]
    assert family_of_config(config) == family
    pipeline = {"chronos_config": {}, "chronos_pipeline_class": config.get("chronos_pipeline_class")}
    assert family_of_config(pipeline) == (None if left_out == "chronos_pipeline_class" else family)


@pytest.mark.parametrize("family", ["chronos-bolt", "chronos-2"])
@pytest.mark.parametrize("architectures", [None, ["T5ForConditionalGeneration"]])
def test_a_chronos_model_that_a_script_saved_is_loaded_as_what_it_is(
    family: str, architectures: list[str] | None, tmp_path: Path
) -> None:
    example_model(family).save(tmp_path)
    change_config(tmp_path, architectures=architectures)
    assert family_of_folder(tmp_path) == family
    assert load(family, tmp_path, options={}).width == example_model(family).width


@pytest.mark.parametrize(
    "config", [{}, {"architectures": None}, {"architectures": ["GPT2LMHeadModel"]}, {"model_type": []}]
)
def test_another_config_is_not_recognised(config: dict[str, object]) -> None:
    assert family_of_config(config) is None


def test_a_folder_without_a_readable_config(tmp_path: Path) -> None:
    assert family_of_folder(tmp_path) is None
    for text in ("{", "[]", "[" * 100_000):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ModelError, match=r"config\.json: expected"):
            family_of_folder(tmp_path)


def test_a_config_of_five_million_bytes_is_read_for_its_family_as_for_its_network(tmp_path: Path) -> None:
    example_model("chronos-bolt").save(tmp_path)
    change_config(tmp_path, vocabulary="x" * 5_000_000)
    assert family_of_folder(tmp_path) == "chronos-bolt"
