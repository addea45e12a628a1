"""`export`: a model as a checkpoint for use elsewhere, or its forecast as an ONNX model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tsfmscope.compression.export import densify, save
from tsfmscope.compression.record import NO_CALIBRATION, base_model
from tsfmscope.errors import ArgumentError
from tsfmscope.files import check_new, new_folder
from tsfmscope.functions.arguments import Bounds, checked
from tsfmscope.functions.load import Model, as_model, load_source
from tsfmscope.hub import PREFIX
from tsfmscope.models import registry
from tsfmscope.models.cards import license_of
from tsfmscope.models.common.checkpoint_folder import write_recipe

if TYPE_CHECKING:
    from tsfmscope.compression.onnx_export import OnnxModel

Steps = Annotated[int | None, Bounds(1)]


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
            package = registry.family_class(self.family).package
            loader = f"tsfmscope.load({str(self.folder)!r})" if package is None else "its own package"
            return f"as any {self.family} checkpoint, with {loader}"
        return f"tsfmscope.compression.export.pipeline({str(self.folder)!r}, {self.family!r})"


@checked
def export(
    model: Model | str | Path,
    folder: str | Path,
    *,
    dense: bool = False,
    onnx: bool = False,
    context: Steps = None,
    horizon: Steps = None,
    bits: Literal[4, 8, 32] = 32,
) -> Exported | OnnxModel:
    """Write a model as a checkpoint for use elsewhere.

    A compressed model gets its original shapes with dense, so that the model's own package loads it. With onnx,
    forecasts of onnxruntime are compared with the model's own before the folder is made; with 8 or 4 bits they differ:
    the result states by how much, and `certify` tests whether that matters.

    Args:
        model: model, as in `inspect`.
        folder: new folder for the checkpoint.
        dense: write matrices of the original shapes, which the model's package loads.
        onnx: write the forecast as an ONNX model, which onnxruntime runs without torch.
        context: with onnx, steps of the input; None: the most that the model reads.
        horizon: with onnx, steps of the forecast; None: the most of one forward pass.
        bits: with onnx, 8: int8 weights and activations; 4: weights of 4 bits, the least memory for wide models, but a
            larger loss; 32: float32.

    Returns:
        Facts of the checkpoint, or of the ONNX model.

    Raises:
        ArgumentError: the folder cannot be used, or arguments do not fit each other. It is a ValueError.
        ModelError: the checkpoint or its family cannot be exported.
        ModuleNotFoundError: packages of the extra onnx are missing.
    """
    target = Path(folder)
    check_new(target)
    if dense and onnx:
        raise ArgumentError("dense and onnx: got both, expected one; an ONNX model runs in any shape")
    if not onnx and (context is not None or horizon is not None):
        raise ArgumentError("context and horizon: got without onnx, expected with it; a checkpoint has all steps")
    if not onnx and bits != 32:
        raise ArgumentError("bits: got without onnx, expected with it; `compress` with 8 bits writes checkpoints")
    model = as_model(model)
    if model.source.folder.is_dir() and model.source.options != model.source.with_stored_options().options:
        # Weights in another precision are loaded as they are stored.
        model = load_source(model.source.with_stored_options(), model.device)
    if onnx:
        return export_onnx(model, target, context, horizon, bits)
    was_compressed = model.family.compression is not None
    save(densify(model.family) if dense else model.family, target)
    if model.calibration != NO_CALIBRATION:
        write_recipe(target, model.calibration.facts)
    facts = registry.facts(target)
    is_compressed = was_compressed and not dense
    return Exported(target, model.source.family, facts["parameters"], facts["bytes"], was_compressed, is_compressed)


def export_onnx(model: Model, target: Path, context: int | None, horizon: int | None, bits: int) -> OnnxModel:
    """Write the model's forecast as an ONNX model; the folder appears when all is checked."""
    from tsfmscope.compression.onnx_export import write_onnx

    source = model.source
    reference = source.reference if source.reference.startswith(PREFIX) else None
    origin = {
        "base_model": reference or base_model(source.folder) or source.name,
        "license": license_of(source.folder).name,
        **model.calibration.facts,
    }
    with new_folder(target) as temporary:
        try:
            written = write_onnx(model.family, temporary, context=context, horizon=horizon, origin=origin, bits=bits)
        except ValueError as error:
            raise ArgumentError(f"export {model.name} with onnx: {error}") from None
    return replace(written, folder=target)
