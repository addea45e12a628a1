"""The checkpoint that a command means: a model of params.yaml, BASE@METHOD, FAMILY:REFERENCE, or a folder."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stages import DATA
from stages.blocks import Model
from stages.folders import recipe
from stages.params import COMPRESSED, Params, ParamsError
from tasks.errors import ModelError
from tasks.models import hub, registry
from tasks.models.registry import PRECISION

STAGES = {
    "checkpoint": "checkpoints",
    COMPRESSED.rstrip(":"): "compression",
}  # of a reference -> the stage that makes its folder


@dataclass(frozen=True)
class Source:
    """A checkpoint at hand. reference: as the table `checkpoints` has it; options: keywords of the family's `load`."""

    name: str
    family: str
    folder: Path
    reference: str
    options: Mapping[str, Any] = field(default_factory=dict)
    base_model: str | None = None
    rank: float | None = None

    def running_in(self, precision: str | None) -> Source:
        """The same, run in another precision; None: as its options say."""
        return self if precision is None else replace(self, options={**self.options, PRECISION: precision})

    def stored(self) -> Source:
        """The same as it is stored, to be changed and saved."""
        return replace(self, options=registry.stored(self.options))


def find(params: Params, name: str, family: str | None = None) -> Source:
    """The checkpoint of a name; the hub is asked where the name says so.

    family: of a reference or folder that does not say it. ParamsError, with near names, for what cannot be meant;
    ModelError where a checkpoint is not made yet or not to be had.
    """
    if (named := _named(params, name)) is not None:
        if family not in (None, named.family):
            raise ParamsError(f"--family {family}: model {name!r} is of family {named.family}; leave the option out")
        folder, reference = _folder(params, name, named)
        return Source(name, named.family, folder, reference, dict(named.options), named.base_model, named.rank)
    family, reference = _split(params, name, family)
    try:
        registry.check_name(family)
    except ValueError as error:
        raise ParamsError(f"{name}: {error}") from error
    found = registry.resolve(reference, allow_hub=True)
    last = reference.removeprefix(hub.PREFIX).partition("@")[0].rpartition("/")[2]
    short = plain(found.folder.resolve().name if found.source == "folder" else last)
    return Source(short or "model", family, found.folder, found.pinned(reference))


def plain(text: str) -> str:
    """As a name that folders and params.yaml can have; may be empty."""
    return re.sub(r"[^A-Za-z0-9._@=+-]", "-", text).lstrip("._@=+-")


def _split(params: Params, name: str, family: str | None) -> tuple[str, str]:
    """Family and reference of what is no model of params.yaml."""
    head, colon, rest = name.partition(":")
    if family is None and colon and head != hub.PREFIX.rstrip(":"):
        return head, rest
    if Path(name).is_dir():
        made = recipe(Path(name)) if family is None else None
        family = family or (made or {}).get("recipe", {}).get("family")
        if family is None:
            raise ParamsError(f"{name}: is a folder; say whose with --family, one of {', '.join(registry.families())}")
        return family, name
    if family is not None and hub.looks_like_hub(name):
        return family, name
    near = difflib.get_close_matches(name, params.models, 2)
    known = f"known: {', '.join(params.models)}" if params.models else "there is none here: write FAMILY:FOLDER"
    mend = f"did you mean {' or '.join(near)}?" if near else known
    raise ParamsError(
        f"{name}: neither a model of params.yaml nor a folder, nor FAMILY:FOLDER or FAMILY:hub:ORG/NAME; {mend}"
    )


def _named(params: Params, name: str) -> Model | None:
    """The model of that name; one that is compressed need not be named by a study that is still there."""
    if name in params.models:
        return params.models[name]
    base, _, method = name.rpartition("@")
    if method and base in params.models:
        return params.models[base].model_copy(update={"ref": f"{COMPRESSED}{name}", "base_model": base})
    return None


def _folder(params: Params, name: str, model: Model) -> tuple[Path, str]:
    """Where its checkpoint lies, or the committed one that the stage would put there; and its reference."""
    kind, _, made = model.ref.partition(":")
    if kind not in STAGES:
        found = registry.resolve(model.ref, allow_hub=True)
        return found.folder, found.pinned(model.ref)
    folder = Path(DATA, STAGES[kind], "models", made)
    if folder.is_dir():
        return folder, folder.as_posix()
    committed = params.checkpoints.committed
    if kind == "checkpoint" and committed and Path(committed, made).is_dir():
        return Path(committed, made), folder.as_posix()
    first = "" if name in params.models else "name it in a study, its method under compression.methods, and "
    raise ModelError(f"{name}: no folder {folder}; {first}make it with `dvc repro {STAGES[kind]}`")
