"""Licences of weights, and model cards (README.md): the header that the hub reads, sections, tables and code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tsfmscope.errors import ModelError, printable
from tsfmscope.models import registry
from tsfmscope.models.common.checkpoint_folder import RECIPE, read_object

# Parts of identifiers of licences that forbid commercial use, such as cc-by-nc-4.0.
NON_COMMERCIAL = re.compile(r"\bnc\b|non-?commercial|research", re.IGNORECASE)
# Bytes of a recipe.json that are read.
LARGEST_RECIPE = 2**24
# Compressed models of compressed models are followed this far, so that a circle of recipes ends.
MOST_BASES = 8


def make_card(
    name: str, lead: str, sections: Mapping[str, str], *, note: str = "", **header: str | list[str] | None
) -> str:
    """Return the text of a model card.

    lead: text below the title. sections: title -> text that ends with a line break. note: comment above the title.
    header: fields of huggingface_hub's ModelCardData; None leaves one out. Control characters of the header become
    visible escapes.
    """
    # Its import takes longer than that of a command that writes no card.
    from huggingface_hub import ModelCardData

    data = ModelCardData(
        **{
            key: [printable(item) for item in value] if isinstance(value, list) else value and printable(value)
            for key, value in header.items()
        }
    )
    note = f"{note}\n\n" if note else ""
    return f"---\n{data}\n---\n{note}# {name}\n\n{lead}\n\n" + "\n".join(
        f"## {title}\n\n{text}" for title, text in sections.items()
    )


def make_table(titles: str, rows: Iterable[Iterable[object]]) -> str:
    """Return a Markdown table. titles: the cells of the head, separated by " | "."""
    head = [f"| {titles} |", f"|{' --- |' * (titles.count(' | ') + 1)}"]
    return "".join(
        f"{line}\n" for line in [*head, *(f"| {' | '.join(printable(str(cell)) for cell in row)} |" for row in rows)]
    )


def loading_code(imports: str, call: str) -> str:
    """Return a block of Python code that loads a model."""
    return f"```python\n{imports}\n\nmodel = {call}\n```\n"


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
    return read_object(path, LARGEST_RECIPE) if path.is_file() else {}
