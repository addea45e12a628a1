"""The licence of weights: of a card, of a recipe, of the base model, of a released checkpoint, or unknown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tsfmscope.errors import ModelError
from tsfmscope.models import registry
from tsfmscope.models.cards import License, license_of


def checkpoint(folder: Path, *, card: str | None = None, recipe: dict[str, Any] | None = None) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    save_file({"weight": np.zeros(1, np.float32)}, folder / "model.safetensors")
    if card is not None:
        (folder / "README.md").write_text(card)
    if recipe is not None:
        (folder / "recipe.json").write_text(json.dumps({"recipe": recipe}))
    return folder


@pytest.mark.parametrize(
    ("card", "name"),
    [
        ("---\nlicense: mit\n---\ntext\n", "mit"),
        ("---\r\ntags: [a]\r\nlicense: 'mit'\r\n---\r\ntext\r\n", "mit"),
        ("---\nlicense: other\nlicense_name: acme-non-commercial\n---\n", "acme-non-commercial"),
        ("---\nlicense: other\n---\n", "other"),
        ("---\nlicense:\ntags: [a]\n---\n", None),
        ("---\ntags: [a]\n---\nlicense: mit\n", None),
        ("license: mit\n", None),
        ("", None),
    ],
)
def test_only_the_header_of_a_card_states_a_license(tmp_path: Path, card: str, name: str | None) -> None:
    assert registry.license_of_card(checkpoint(tmp_path / "model", card=card)) == name


def test_a_compressed_model_has_the_license_of_its_base_even_if_the_base_is_gone(tmp_path: Path) -> None:
    base = checkpoint(tmp_path / "base", card="---\nlicense: cc-by-nc-4.0\n---\n")
    small = checkpoint(tmp_path / "small", recipe={"base_model": str(base)})
    smaller = checkpoint(tmp_path / "smaller", recipe={"base_model": str(small)})
    found = license_of(smaller)
    assert str(found) == ("licence of the weights: cc-by-nc-4.0, not for commercial use (that of its base model small)")
    moved = checkpoint(tmp_path / "moved", recipe={"base_model": "/gone", "license": "mit"})
    assert license_of(moved) == License("mit", "that of its base model gone")


def test_a_circle_of_base_models_ends(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model", recipe={"base_model": str(tmp_path / "model")})
    assert license_of(folder).name is None


def test_a_compressed_release_has_its_license_without_the_hub(tmp_path: Path) -> None:
    base = f"hub:Salesforce/moirai-1.1-R-small@{'0' * 40}"
    assert license_of(checkpoint(tmp_path / "small", recipe={"base_model": base})).name == "cc-by-nc-4.0"


def test_a_folder_that_states_none_is_not_taken_for_released_weights(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "mine")
    for reference in (None, f"moirai:{folder}", "hub:someone/moirai-1.1-R-small"):
        assert str(license_of(folder, reference)).startswith("licence of the weights: unknown (no model card")
    assert license_of(folder, "hub:Salesforce/moirai-1.0-R-small@main").name == "cc-by-nc-4.0"


def test_a_broken_recipe_is_named(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model")
    (folder / "recipe.json").write_text("[1]")
    with pytest.raises(ModelError, match=r"recipe\.json: expected an object, got list"):
        license_of(folder)


@pytest.mark.parametrize("name", registry.FAMILIES)
def test_every_released_license_has_a_source(name: str) -> None:
    released = registry.family_class(name).released
    assert (released.license is None) == (released.source == "") == (released.checkpoints == ())
