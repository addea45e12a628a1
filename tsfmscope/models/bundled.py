"""Models that come with the package, and the recipes of their checkpoints: bundled.yaml."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import yaml

CATALOG = "tsfmscope/models/bundled.yaml"
# Folder of the bundled checkpoints, by name of their recipe.
CHECKPOINTS = Path(__file__).parents[1] / "checkpoints"
# Prefix of a model's reference to a recipe.
CHECKPOINT = "checkpoint:"


def split_checkpoint(ref: str) -> tuple[str, str]:
    """Return the recipe and the snapshot ("" for the last weights) of a reference checkpoint:RECIPE[/step-N].

    Both are "" for another kind of reference.
    """
    if not ref.startswith(CHECKPOINT):
        return "", ""
    recipe, _, snapshot = ref.removeprefix(CHECKPOINT).partition("/")
    return recipe, snapshot


@functools.cache
def load_catalog() -> dict[str, dict[str, Any]]:
    """Return the models and the recipes of the catalogue, by name."""
    catalog: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
    return catalog
