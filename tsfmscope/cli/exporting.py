"""Export of a model, for `tsfmscope export`. The model is one of params.yaml, or a reference."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.config.params import Params, ParamsError
from stages.planning.model_reference import resolve
from stages.planning.targets import check_new, new_folder
from tsfmscope.cli.provenance import NO_CALIBRATION, base_model, calibration_of, license_of_weights
from tsfmscope.compression.export import densify, save
from tsfmscope.hub import PREFIX
from tsfmscope.models import registry
from tsfmscope.models.common.checksums import write_recipe

if TYPE_CHECKING:
    from stages.planning.model_reference import Source
    from tsfmscope.compression.onnx_export import OnnxModel
    from tsfmscope.models.base import Family


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
        return f"tsfmscope.compression.export.pipeline({str(self.folder)!r}, {self.family!r})"


def export_model(params: Params, name: str, target: Path, *, dense: bool, family: str | None) -> Exported:
    """Write the model to a new or empty folder.

    Raises ParamsError for a name, a family or a folder that cannot be used, ModelError if the checkpoint
    cannot be used.
    """
    check_new(target)
    source, model = _load(params, name, family)
    was_compressed = model.compression is not None
    save(densify(model) if dense else model, target)
    if (calibration := calibration_of(source.folder)) != NO_CALIBRATION:
        write_recipe(target, calibration.facts)
    facts = registry.facts(target)
    is_compressed = was_compressed and not dense
    return Exported(target, source.family, facts["parameters"], facts["bytes"], was_compressed, is_compressed)


def export_onnx(
    params: Params,
    name: str,
    target: Path,
    context: int | None,
    horizon: int | None,
    *,
    family: str | None,
    bits: int = 32,
) -> OnnxModel:
    """Write the model's forecast as an ONNX model to a new or empty folder, which appears when all is checked.

    context, horizon: steps of the input and of the forecast; None: the largest. bits: 32, or 8 for int8.
    Raises ParamsError for a name, a family, a folder, a context or a horizon that cannot be used, ModelError if the
    checkpoint or its family cannot be exported, ModuleNotFoundError without the packages of the extra onnx.
    """
    from tsfmscope.compression.onnx_export import write_onnx

    check_new(target)
    source, model = _load(params, name, family)
    with new_folder(target) as folder:
        try:
            return write_onnx(model, folder, context=context, horizon=horizon, origin=_origin(source), bits=bits)
        except ValueError as error:
            raise ParamsError(f"export {name} --onnx: {error}") from None


def _load(params: Params, name: str, family: str | None) -> tuple[Source, Family]:
    """Return a model as it is stored. Raises ParamsError for options that do not fit."""
    from transformers.utils.logging import disable_progress_bar

    source = resolve(params, name, family).with_stored_options()
    # A checkpoint has one or two files, so a progress bar is only noise.
    disable_progress_bar()
    try:
        return source, registry.load(source.family, source.folder, options=source.options)
    except ValueError as error:
        raise ParamsError(f"export {name}: {error}") from None


def _origin(source: Source) -> dict[str, Any]:
    """Return the base model, as a reference on the hub or a name, the licence, and the series that calibrated."""
    reference = source.reference if source.reference.startswith(PREFIX) else None
    return {
        "base_model": reference or base_model(source.folder) or source.name,
        "license": license_of_weights(source.folder),
        **calibration_of(source.folder).facts,
    }
