"""Definitions of models and recipes that a params file leaves out."""

from __future__ import annotations

import difflib
from typing import Any

from tsfmscope.models.references import CATALOG, CHECKPOINT, load_catalog


def complete(block: Any) -> Any:
    """Return the blocks of a params file with the definitions of models and recipes that it leaves out.

    A model that states its own `ref` or `family` takes nothing from the catalogue's model of that name. Values
    of another form than expected stay, for the checks that follow. Raises ValueError for a model without a
    definition whose name the catalogue does not have.
    """
    if not isinstance(block, dict) or not isinstance(block.get("models"), dict):
        return block
    models = {name: _complete_model(name, entry) for name, entry in block["models"].items()}
    checkpoints = block.get("checkpoints") or {}
    recipes = checkpoints.get("recipes") or {} if isinstance(checkpoints, dict) else None
    if not isinstance(recipes, dict):
        return block | {"models": models}
    pretraining = block.get("pretraining")
    named = {str(pretraining.get("recipe"))} if isinstance(pretraining, dict) else set()
    named |= {
        str(model["ref"]).removeprefix(CHECKPOINT)
        for model in models.values()
        if isinstance(model, dict) and str(model.get("ref")).startswith(CHECKPOINT)
    }
    known = {name: recipe for name, recipe in load_catalog()["recipes"].items() if name in named}
    return block | {"models": models, "checkpoints": checkpoints | {"recipes": known | recipes}}


def _complete_model(name: str, entry: Any) -> Any:
    models = load_catalog()["models"]
    if entry and not isinstance(entry, dict):
        return entry
    if not entry and name not in models:
        near = difflib.get_close_matches(str(name), models, 3)
        hint = f"did you mean {', '.join(near)}?" if near else "give family and ref"
        raise ValueError(f"models.{name} is not in {CATALOG}; {hint}")
    entry = entry or {}
    if "ref" in entry or "family" in entry:
        # Options, base model and family belong to the weights that the catalogue names.
        return entry
    return models.get(name, {}) | entry
