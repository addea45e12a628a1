"""Resolution of a model's name to a checkpoint.

A name is a model of params.yaml, BASE@METHOD, FAMILY:REFERENCE, or a folder.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages import DATA
from stages.config import Model
from stages.config.defaults import committed_folder
from stages.config.params import COMPRESSED, Params, ParamsError
from stages.planning.model_folders import recipe
from stages.planning.training_jobs import checkpoint_path
from tsfmscope import hub
from tsfmscope.defaults import PRECISION
from tsfmscope.errors import ModelError
from tsfmscope.models import registry
from tsfmscope.models.config_family import family_of_folder

if TYPE_CHECKING:
    from tsfmscope.models.base import Family

# Kind of a reference -> the stage that makes its folder.
STAGES = {
    "checkpoint": "checkpoints",
    COMPRESSED.rstrip(":"): "compression",
}


@dataclass(frozen=True)
class Source:
    """Checkpoint on this machine.

    reference: as in the table `checkpoints`. options: keywords of the family's `load`.
    """

    name: str
    family: str
    folder: Path
    reference: str
    options: Mapping[str, Any] = field(default_factory=dict)
    base_model: str | None = None
    size_parameter: float | None = None
    size_rule: str | None = None

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


def resolve(params: Params, name: str, family: str | None = None) -> Source:
    """Return the checkpoint of a name; a name of the hub is looked up there.

    family: the family of a reference or folder that does not name it. Raises ParamsError, with similar names,
    for a name that is not valid; ModelError if the checkpoint is not made yet or cannot be obtained.
    """
    if (model := _params_model(params, name)) is not None:
        if family not in (None, model.family):
            raise ParamsError(f"family {family}: model {name!r} is of family {model.family}; leave the family out")
        folder, reference = _folder(params, name, model)
        options = dict(model.options)
        return Source(name, model.family, folder, reference, options, model.base_model, **model.size)
    family, reference = _split_reference(params, name, family)
    try:
        if family is not None:
            registry.check_name(family)
    except ValueError as error:
        raise ParamsError(f"{name}: {error}") from error
    checkpoint = registry.resolve(reference, allow_hub=True)
    if family is None and (family := family_of_folder(checkpoint.folder)) is None:
        raise ParamsError(_unknown_family(name))
    last = reference.removeprefix(hub.PREFIX).partition("@")[0].rpartition("/")[2]
    short = slug(checkpoint.folder.resolve().name if checkpoint.source == "folder" else last)
    return Source(short or "model", family, checkpoint.folder, checkpoint.pin(reference))


def slug(text: str) -> str:
    """Return the text as a name that is valid for folders and in params.yaml; it may be empty."""
    return re.sub(r"[^A-Za-z0-9._@=+-]", "-", text).lstrip("._@=+-")


def _split_reference(params: Params, name: str, family: str | None) -> tuple[str | None, str]:
    """Return the family and the reference of a name that is not a model of params.yaml.

    The family is None for a model of the hub, whose config.json is not here yet. Raises ParamsError if the
    name is not a reference or a folder, or if its family is not known.
    """
    head, colon, reference = name.partition(":")
    if family is None and colon and head != hub.PREFIX.rstrip(":"):
        return head, reference
    # Unlike Path.is_dir, it is False for a name that is too long for a path.
    if os.path.isdir(name):
        family = family or _folder_family(Path(name))
        if family is None:
            raise ParamsError(_unknown_family(name))
        return family, name
    if hub.looks_like_hub(name) and (family is not None or head == hub.PREFIX.rstrip(":")):
        return family, name
    if os.path.isfile(name):
        registry.check_reference(name)
    near = difflib.get_close_matches(name, params.models, 2)
    if hub.looks_like_hub(name):
        hint = f"for a model of the hub write {hub.PREFIX}{name}"
    elif near:
        hint = f"did you mean {' or '.join(near)}?"
    else:
        originals = [known for known, model in params.models.items() if model.base_model is None]
        hint = f"known: {', '.join(originals)}"
    raise ParamsError(f"{name}: expected a model of params.yaml, a folder, FAMILY:FOLDER or hub:ORG/NAME; {hint}")


def _unknown_family(name: str) -> str:
    known = ", ".join(registry.families())
    return f"{name}: its config.json names no known family; pass one with --family (in Python: family=): {known}"


def _folder_family(folder: Path) -> str | None:
    """Return the family that the recipe file or the config.json of a folder names; None if neither does."""
    block = (recipe(folder) or {}).get("recipe")
    family = block.get("family") if isinstance(block, dict) else None
    return family if isinstance(family, str) else family_of_folder(folder)


def _params_model(params: Params, name: str) -> Model | None:
    """Return the model of params.yaml of that name; None if there is none.

    BASE@METHOD is a model if BASE is a model, even if no study names it any more.
    """
    if name in params.models:
        return params.models[name]
    base, _, method = name.rpartition("@")
    if method and base in params.models:
        return params.models[base].model_copy(update={"ref": f"{COMPRESSED}{name}", "base_model": base})
    return None


def _folder(params: Params, name: str, model: Model) -> tuple[Path, str]:
    """Return the folder of a model's checkpoint and its reference.

    If the stage has not run, the folder is that of the committed checkpoint, which the stage would copy, or that
    of the package.
    Raises ModelError if there is no checkpoint.
    """
    kind, _, folder_name = model.ref.partition(":")
    folder_name = checkpoint_path(model.ref) or folder_name
    if kind not in STAGES:
        checkpoint = registry.resolve(model.ref, allow_hub=True)
        return checkpoint.folder, checkpoint.pin(model.ref)
    folder = Path(DATA, STAGES[kind], "models", folder_name)
    if folder.is_dir():
        return folder, folder.as_posix()
    committed = params.checkpoints.committed
    if kind == "checkpoint" and committed:
        for parent in (Path(committed), committed_folder()):
            if (parent / folder_name).is_dir():
                return parent / folder_name, folder.as_posix()
    first = "" if name in params.models else "name it in a study, its method under compression.methods, and "
    raise ModelError(f"{name}: no folder {folder}; {first}make it with `dvc repro {STAGES[kind]}`")


def load_family(source: Source, device: str) -> Family:
    """Load the model of a checkpoint.

    Raises ModelError if its family cannot read it, ValueError if this machine does not have the device.
    """
    check_device(device)
    registry.check_options(source.family, source.options, f"models.{source.name}.options")
    try:
        return registry.load(source.family, source.folder, device=device, options=source.options)
    except (ValueError, KeyError, OSError) as error:
        raise ModelError(
            f"{source.folder}: expected a checkpoint of family {source.family}, which cannot read it "
            f"({' '.join(str(error).split())[:300]}); name another family, or fetch the checkpoint again"
        ) from error


def check_device(device: str) -> None:
    """Raise ValueError for a torch device that this machine does not have."""
    import torch

    try:
        torch.empty(0, device=device)
    # torch raises AssertionError if it was built without CUDA.
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"device: got {device!r}, expected a device of this machine, such as cpu ({reason}); `tsfmscope doctor` "
            "lists them"
        ) from error
