"""Export of a model as a checkpoint, for `python -m tsfmscope.stages export`.

The model is one of params.yaml, or a folder.
"""

from __future__ import annotations

from pathlib import Path

from tsfmscope.stages.config.params import Params, ParamsError
from tsfmscope.stages.pipeline.model_reference import resolve
from tsfmscope.stages.pipeline.targets import check_new
from tsfmscope.tasks.compression import export as exported
from tsfmscope.tasks.models import registry


def export(params: Params, name: str, target: Path, *, dense: bool, family: str | None) -> str:
    """Write the model to a new or empty folder and return a text for the user.

    The last line of the text states how to load the model.

    Raises ParamsError for a name, a family or a folder that cannot be used, ModelError if the checkpoint
    cannot be used.
    """
    check_new(target)
    source = resolve(params, name, family).with_stored_options()
    from transformers.utils.logging import disable_progress_bar

    # A checkpoint has one or two files, so a progress bar is only noise.
    disable_progress_bar()
    try:
        model = registry.load(source.family, source.folder, options=source.options)
    except ValueError as error:
        raise ParamsError(f"export {name}: {error}") from None
    narrow = model.compression is not None
    exported.save(exported.densify(model) if dense else model, target)
    facts = registry.facts(target)
    size = f"{facts['parameters']:,} parameters, {facts['bytes']:,} bytes"
    if narrow and not dense:
        loader = "tsfmscope.tasks.compression.export.pipeline"
        return f"{target}: {size}\nload it: {loader}({str(target)!r}, {source.family!r})"
    was = "" if narrow else "; it was dense before"
    return f"{target}: {size}{was}\nload it: as any {source.family} checkpoint, with its own package"
