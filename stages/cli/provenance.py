"""Base model and licence of a checkpoint folder, as its recipe.json and its model card tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tsfmscope.tasks import hub
from tsfmscope.tasks.errors import ModelError
from tsfmscope.tasks.models import registry
from tsfmscope.tasks.models.common.checksums import RECIPE


def base_model(folder: Path) -> str | None:
    """Return the base model of a compressed model: hub:ORG/NAME, or a name; None where none is recorded.

    The path of a folder is left out, since it means nothing on another machine.
    """
    reference = _base_reference(folder)
    if reference is None or reference.startswith(hub.PREFIX):
        return reference
    name = (_read_recipe(folder).get("row") or {}).get("base_model")
    return Path(name if isinstance(name, str) else reference).name


def recipe_without_paths(folder: Path) -> bytes | None:
    """Return recipe.json with the name of the base model instead of its folder; None without the file."""
    recipe, reference = _read_recipe(folder), _base_reference(folder)
    if reference is not None:
        recipe["recipe"]["base_model"] = base_model(folder)
    return json.dumps(recipe, indent=2).encode() if recipe else None


def license_of_weights(folder: Path) -> str | None:
    """Return the licence that the folder's model card states, or that of its base model's folder; None without."""
    license = registry.facts(folder)["license"]
    reference = _base_reference(folder)
    if license is None and reference is not None and Path(reference).is_dir():
        license = registry.facts(Path(reference))["license"]
    return license if isinstance(license, str) else None


def _base_reference(folder: Path) -> str | None:
    recipe = _read_recipe(folder).get("recipe")
    reference = recipe.get("base_model") if isinstance(recipe, dict) else None
    return reference if isinstance(reference, str) else None


def _read_recipe(folder: Path) -> dict[str, Any]:
    """Return the contents of recipe.json, empty without the file. Raises ModelError if it is not an object."""
    path = folder / RECIPE
    if not path.is_file():
        return {}
    try:
        recipe = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path}: expected JSON ({error}); fetch or make the checkpoint again") from error
    if not isinstance(recipe, dict):
        raise ModelError(f"{path}: expected an object, got {type(recipe).__name__}; make the checkpoint again")
    return recipe
