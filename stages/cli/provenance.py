"""Base model and licence of a checkpoint folder, as its recipe.json and its model card tell."""

from __future__ import annotations

import json
from pathlib import Path

from tsfmscope.stages.config.defaults import params_here
from tsfmscope.stages.pipeline.model_folders import key_of
from tsfmscope.stages.pipeline.model_reference import Source
from tsfmscope.stages.pipeline.training_jobs import MODELS
from tsfmscope.tasks import hub
from tsfmscope.tasks.models.licenses import License, license_of, read_recipe


def base_model(folder: Path) -> str | None:
    """Return the base model of a compressed model: hub:ORG/NAME, or a name; None where none is recorded.

    The path of a folder is left out, since it means nothing on another machine.
    """
    reference = _base_reference(folder)
    if reference is None or reference.startswith(hub.PREFIX):
        return reference
    row = read_recipe(folder).get("row")
    name = row.get("base_model") if isinstance(row, dict) else None
    return Path(name if isinstance(name, str) else reference).name


def recipe_without_paths(folder: Path) -> bytes | None:
    """Return recipe.json with the name of the base model instead of its folder; None without the file."""
    recipe, reference = read_recipe(folder), _base_reference(folder)
    if reference is not None:
        recipe["recipe"] = {**_recipe_block(recipe), "base_model": base_model(folder)}
    return json.dumps(recipe, indent=2).encode() if recipe else None


def license_of_weights(folder: Path) -> str | None:
    """Return the licence that the folder or its base model states; None without."""
    return license_of(folder).name


def license_of_source(source: Source) -> License:
    """Return the licence of the weights of a checkpoint.

    A checkpoint that the pipeline copied from the committed ones has the model card of the committed folder.
    """
    committed = Path(params_here().checkpoints.committed or "", source.folder.name)
    if source.folder.parent == MODELS and key_of(committed) == key_of(source.folder):
        return license_of(committed)
    return license_of(source.folder, source.reference)


def _base_reference(folder: Path) -> str | None:
    reference = _recipe_block(read_recipe(folder)).get("base_model")
    return reference if isinstance(reference, str) else None


def _recipe_block(recipe: dict[str, object]) -> dict[str, object]:
    block = recipe.get("recipe")
    return block if isinstance(block, dict) else {}
