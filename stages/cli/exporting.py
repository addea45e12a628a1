"""Export of a model as a checkpoint, for `tsfmscope export`. The model is one of params.yaml, or a reference."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tsfmscope.stages.config.params import Params, ParamsError
from tsfmscope.stages.pipeline.model_reference import resolve
from tsfmscope.stages.pipeline.targets import check_new
from tsfmscope.tasks.compression.export import densify, save
from tsfmscope.tasks.models import registry


@dataclass(frozen=True)
class Exported:
    """Checkpoint that was written.

    bytes: size of the weights. was_compressed: whether the source model is compressed. is_compressed: whether
    the checkpoint is, so that only this package loads it.
    """

    folder: Path
    family: str
    parameters: int
    bytes: int
    was_compressed: bool
    is_compressed: bool

    @property
    def loader(self) -> str:
        """Function or package that loads the checkpoint, as text for the user."""
        if not self.is_compressed:
            return f"as any {self.family} checkpoint, with its own package"
        return f"tsfmscope.tasks.compression.export.pipeline({str(self.folder)!r}, {self.family!r})"


def export_model(params: Params, name: str, target: Path, *, dense: bool, family: str | None) -> Exported:
    """Write the model to a new or empty folder.

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
    was_compressed = model.compression is not None
    save(densify(model) if dense else model, target)
    facts = registry.facts(target)
    is_compressed = was_compressed and not dense
    return Exported(target, source.family, facts["parameters"], facts["bytes"], was_compressed, is_compressed)
