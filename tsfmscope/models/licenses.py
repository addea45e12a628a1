"""Licence of a checkpoint's weights: stated by its folder, its base model or the hub, or unknown."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from tsfmscope.errors import ModelError
from tsfmscope.files import read_text
from tsfmscope.models import registry
from tsfmscope.models.common.checksums import RECIPE

# Parts of identifiers of licences that forbid commercial use, such as cc-by-nc-4.0.
NON_COMMERCIAL = re.compile(r"\bnc\b|non-?commercial|research", re.IGNORECASE)
# Bytes of a recipe.json that are read.
LARGEST_RECIPE = 2**24
# Compressed models of compressed models are followed this far, so that a circle of recipes ends.
MOST_BASES = 8


@dataclass(frozen=True)
class License:
    """Licence of weights.

    name: identifier as the hub writes it, such as apache-2.0; None: unknown. source: what states it, as text for the
    user.
    """

    name: str | None
    source: str

    @property
    def columns(self) -> dict[str, str | None]:
        """Return the keys of JSON documents."""
        return {"license": self.name, "license_source": self.source}

    def __str__(self) -> str:
        if self.name is None:
            return f"licence of the weights: unknown ({self.source})"
        limit = ", not for commercial use" if NON_COMMERCIAL.search(self.name) else ""
        return f"licence of the weights: {self.name}{limit} ({self.source})"


def license_of(folder: Path, reference: str | None = None) -> License:
    """Return the licence of the weights in a folder.

    The first of these that states one: the model card of the folder, its recipe.json, its base model, the list of
    released checkpoints. Other weights of the same family may have any licence, so theirs is unknown. reference:
    reference that was resolved to the folder; None: the folder. Nothing is downloaded. Raises ModelError for a
    recipe.json that cannot be read.
    """
    unknown = License(None, "no model card of the checkpoint states one; ask who made the weights")
    return _stated(folder, MOST_BASES) or _published(reference or str(folder)) or unknown


def _stated(folder: Path, remaining: int) -> License | None:
    """Return the licence that a folder, or the folder of its base model, states; None without."""
    if name := registry.license_of_card(folder):
        return License(name, "model card of the checkpoint")
    recipe = read_recipe(folder).get("recipe")
    recipe = recipe if isinstance(recipe, dict) else {}
    base = recipe.get("base_model")
    if isinstance(name := recipe.get("license"), str):
        return License(name, f"that of its base model {Path(str(base)).name}")
    if not isinstance(base, str) or not remaining:
        return None
    try:
        checkpoint = registry.resolve(base)
    # The base model is not on this machine any more, or the recipe has a name that only its owner knows.
    except ModelError:
        found = _published(base)
    else:
        found = _stated(checkpoint.folder, remaining - 1) or _published(base)
    return found and License(found.name, f"that of its base model {Path(base).name}")


def _published(reference: str) -> License | None:
    """Return the licence of a released checkpoint of the hub; None for another reference."""
    family = registry.family_of_release(reference)
    released = registry.family_class(family).released if family else None
    return License(released.license, f"as published: {released.source}") if released and released.license else None


def read_recipe(folder: Path) -> dict[str, object]:
    """Return the contents of recipe.json, empty without the file. Raises ModelError if it is not an object."""
    path = folder / RECIPE
    if not path.is_file():
        return {}
    try:
        recipe = json.loads(read_text(path, LARGEST_RECIPE))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path}: expected JSON ({error}); fetch or make the checkpoint again") from error
    if not isinstance(recipe, dict):
        raise ModelError(f"{path}: expected an object, got {type(recipe).__name__}; make the checkpoint again")
    return recipe
