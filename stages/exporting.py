"""`python -m stages export`: a model of params.yaml, or a folder, as a checkpoint for others."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from stages import DATA
from stages.blocks import Model
from stages.params import COMPRESSED, Params, ParamsError
from tasks.compression import export as exported
from tasks.errors import ModelError
from tasks.models import registry

STAGES = {
    "checkpoint": "checkpoints",
    COMPRESSED.rstrip(":"): "compression",
}  # of a reference -> the stage that makes its folder


def export(params: Params, name: str, target: Path, *, dense: bool, family: str | None) -> str:
    """Write the model to a folder that is new or empty; what to tell the user, a line on how to load it last.

    ParamsError for a name, a family or a folder that cannot be used, ModelError where its checkpoint cannot.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ParamsError(f"{target}: is there already, and not empty; name a new folder")
    source, family, options = _source(params, name, family)
    try:
        model = registry.family_class(family).load(source, **options)
    except ValueError as error:
        raise ParamsError(f"export {name}: {error}") from None
    narrow = model.compression is not None
    exported.save(exported.densify(model) if dense else model, target)
    facts = registry.facts(target)
    size = f"{facts['parameters']:,} parameters, {facts['bytes']:,} bytes"
    if narrow and not dense:
        return f"{target}: {size}\nload it: tasks.compression.export.pipeline({str(target)!r}, {family!r})"
    was = "" if narrow else "; it was dense before"
    return f"{target}: {size}{was}\nload it: as any {family} checkpoint, with its own package"


def _source(params: Params, name: str, family: str | None) -> tuple[Path, str, dict[str, Any]]:
    """The folder of a model's checkpoint, its family, and the keywords of its `load`."""
    if (named := _named(params, name)) is not None:
        if family not in (None, named.family):
            raise ParamsError(f"--family {family}: model {name!r} is of family {named.family}; leave the option out")
        return _folder(params, name, named), named.family, dict(named.options)
    if not Path(name).is_dir():
        near = difflib.get_close_matches(name, params.models, 2)
        mend = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(params.models)}"
        raise ParamsError(f"{name}: neither a model of params.yaml nor a folder; {mend}")
    if family is None:
        raise ParamsError(f"{name}: is a folder; say whose with --family, one of {', '.join(registry.families())}")
    return Path(name), family, {}


def _named(params: Params, name: str) -> Model | None:
    """The model of that name; one that is compressed need not be named by a study that is still there."""
    if name in params.models:
        return params.models[name]
    base, _, method = name.rpartition("@")
    if method and base in params.models:
        return params.models[base].model_copy(update={"ref": f"{COMPRESSED}{name}"})
    return None


def _folder(params: Params, name: str, model: Model) -> Path:
    kind, _, made = model.ref.partition(":")
    if kind not in STAGES:
        return registry.resolve(model.ref, allow_hub=True).folder
    folder = Path(DATA, STAGES[kind], "models", made)
    if not folder.is_dir():
        first = "" if name in params.models else "name it in a study, its method under compression.methods, and "
        raise ModelError(f"{name}: no folder {folder}; {first}make it with `dvc repro {STAGES[kind]}`")
    return folder
