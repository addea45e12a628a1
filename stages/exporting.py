"""`python -m stages export`: a model of params.yaml, or a folder, as a checkpoint for others."""

from __future__ import annotations

from pathlib import Path

from stages.naming import find
from stages.params import Params, ParamsError
from tasks.compression import export as exported
from tasks.models import registry


def export(params: Params, name: str, target: Path, *, dense: bool, family: str | None) -> str:
    """Write the model to a folder that is new or empty; what to tell the user, a line on how to load it last.

    ParamsError for a name, a family or a folder that cannot be used, ModelError where its checkpoint cannot.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ParamsError(f"{target}: is there already, and not empty; name a new folder")
    source = find(params, name, family).stored()
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # of a file or two
    try:
        model = registry.load(source.family, source.folder, options=source.options)
    except ValueError as error:
        raise ParamsError(f"export {name}: {error}") from None
    narrow = model.compression is not None
    exported.save(exported.densify(model) if dense else model, target)
    facts = registry.facts(target)
    size = f"{facts['parameters']:,} parameters, {facts['bytes']:,} bytes"
    if narrow and not dense:
        return f"{target}: {size}\nload it: tasks.compression.export.pipeline({str(target)!r}, {source.family!r})"
    was = "" if narrow else "; it was dense before"
    return f"{target}: {size}{was}\nload it: as any {source.family} checkpoint, with its own package"
