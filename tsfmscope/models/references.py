"""Resolution of a model's name to a checkpoint on this machine.

A name is that of a bundled model (bundled.yaml), FAMILY:REFERENCE, hub:ORG/NAME or a folder.
"""

from __future__ import annotations

import difflib
import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsfmscope import hub
from tsfmscope.defaults import PRECISION
from tsfmscope.errors import ArgumentError, ModelError
from tsfmscope.files import TABLES, read_packaged, slug
from tsfmscope.models import registry
from tsfmscope.models.cards import read_recipe
from tsfmscope.models.common.checkpoint_folder import is_adapter
from tsfmscope.models.registry import family_of_folder
from tsfmscope.series.catalog import CATALOG as DATA_SETS

if TYPE_CHECKING:
    from tsfmscope.models.base import Family

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
    catalog: dict[str, dict[str, Any]] = read_packaged(Path(__file__).with_name("bundled.yaml"))
    return catalog


@dataclass(frozen=True)
class Source:
    """Checkpoint on this machine.

    reference: name of a bundled model, hub:ORG/NAME@COMMIT, or the folder. options: keywords of the family's `load`.
    base: folder of the base model, where `folder` contains a LoRA adapter.
    """

    name: str
    family: str
    folder: Path
    reference: str
    options: Mapping[str, Any] = field(default_factory=dict)
    base_model: str | None = None
    base: Path | None = None

    @property
    def precision(self) -> str:
        """Type in which products with the model's matrices are computed."""
        return str(self.options.get(PRECISION, "float32"))

    def running_in(self, precision: str | None) -> Source:
        """Return this checkpoint with another precision of matrix products; None keeps that of its options."""
        return self if precision is None else replace(self, options={**self.options, PRECISION: precision})

    def with_stored_options(self) -> Source:
        """Return this checkpoint with the options of its stored weights, to be changed and saved."""
        return replace(self, options=registry.stored_options(self.options))


def resolve(model: object, family: str | None = None) -> Source:
    """Return the checkpoint of a name; a name of the hub is looked up there.

    family: the family of a reference or folder that does not name it. Raises ArgumentError, with similar names, for a
    name that is not valid and for a family or a model in place of a name; ModelError if the checkpoint cannot be
    obtained.
    """
    if not isinstance(model, str | Path):
        if isinstance(model, type):
            raise ArgumentError(f"model: {getattr(model, 'name', model)} is a family; expected FAMILY:FOLDER")
        kind = type(model).__name__
        raise ArgumentError(f"model: got a {kind}, expected a name or a folder; save it and give the folder")
    name = str(model)
    if (block := load_catalog()["models"].get(name)) is not None:
        if family not in (None, block["family"]):
            raise ArgumentError(f"family {family}: model {name!r} is of family {block['family']}; leave the family out")
        folder = CHECKPOINTS / split_checkpoint(block["ref"])[0]
        return Source(name, block["family"], folder, name, block.get("options", {}), block.get("base_model"))
    family, reference = _split_reference(name, family)
    try:
        if family is not None:
            registry.check_name(family)
    except ValueError as error:
        raise ArgumentError(f"{name}: {error}") from error
    checkpoint = registry.resolve(reference, allow_hub=True)
    if family is None and (family := family_of_folder(checkpoint.base or checkpoint.folder)) is None:
        raise ArgumentError(_unknown_family(name))
    last = registry.split_base(reference)[0].removeprefix(hub.PREFIX).partition("@")[0].rpartition("/")[2]
    short = slug(checkpoint.folder.resolve().name if checkpoint.source == "folder" else last)
    return Source(short or "model", family, checkpoint.folder, checkpoint.pin(reference), base=checkpoint.base)


def _split_reference(name: str, family: str | None) -> tuple[str | None, str]:
    """Return the family and the reference of a name that is not a bundled model.

    The family is None for a model of the hub, whose config.json is not here yet. Raises ArgumentError if the name is
    not a reference or a folder, or if its family is not known.
    """
    head, colon, reference = name.partition(":")
    if family is None and colon and "+" not in head and head != hub.PREFIX.rstrip(":"):
        return head, reference
    # Unlike Path.is_dir, it is False for a name that is too long for a path.
    if registry.split_base(name)[1] or (os.path.isdir(name) and is_adapter(Path(name))):
        return family, name
    if os.path.isdir(name):
        family = family or _folder_family(Path(name))
        if family is None:
            raise ArgumentError(_unknown_family(name))
        return family, name
    if hub.looks_like_hub(name) and (family is not None or head == hub.PREFIX.rstrip(":")):
        return family, name
    if os.path.isfile(name) and Path(name).suffix not in TABLES:
        registry.check_reference(name)
    known = load_catalog()["models"]
    near = difflib.get_close_matches(name, known, 3)
    if name in registry.families():
        raise ArgumentError(f"{name}: is a family; expected FAMILY:FOLDER, such as {name}:FOLDER")
    if hub.looks_like_hub(name):
        hint = f"for a model of the hub write {hub.PREFIX}{name}"
    elif near:
        hint = f"did you mean {' or '.join(near)}?"
    elif os.path.isfile(name) or name in DATA_SETS:
        hint = "it is data, and the model comes first"
    else:
        hint = "`tsfmscope models` lists those that are bundled"
    raise ArgumentError(f"{name}: expected a bundled model, a folder, FAMILY:FOLDER or hub:ORG/NAME; {hint}")


def _unknown_family(name: str) -> str:
    known = ", ".join(registry.families())
    return f"{name}: its config.json names no known family; pass one with --family (in Python: family=): {known}"


def _folder_family(folder: Path) -> str | None:
    """Return the family that the recipe file or the config.json of a folder names; None if neither does."""
    block = read_recipe(folder).get("recipe")
    family = block.get("family") if isinstance(block, dict) else None
    return family if isinstance(family, str) else family_of_folder(folder)


def load_family(source: Source, device: str) -> Family:
    """Load the model of a checkpoint.

    Raises ModelError if its family cannot read it, ArgumentError if this machine does not have the device.
    """
    from transformers.utils.logging import disable_progress_bar

    check_device(device)
    # A checkpoint has one or two files, so a progress bar is only noise.
    disable_progress_bar()
    registry.check_options(source.family, source.options, f"options of {source.name}")
    try:
        return registry.load(source.family, source.folder, base=source.base, device=device, options=source.options)
    except (ValueError, KeyError, OSError) as error:
        raise ModelError(
            f"{source.folder}: expected a checkpoint of family {source.family}, which cannot read it "
            f"({' '.join(str(error).split())[:300]}); name another family, or fetch the checkpoint again"
        ) from error


def check_device(device: str) -> None:
    """Raise ArgumentError for a torch device that this machine does not have."""
    import torch

    try:
        torch.empty(0, device=device)
    # torch raises AssertionError if it was built without CUDA.
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ArgumentError(
            f"device: got {device!r}, expected a device of this machine, such as cpu ({reason}); `tsfmscope doctor` "
            "lists them"
        ) from error
