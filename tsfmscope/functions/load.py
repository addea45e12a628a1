"""`load`: a model of a name, a folder or the hub."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tsfmscope.compression.record import Calibration, calibration_of
from tsfmscope.defaults import Precision
from tsfmscope.functions.arguments import checked
from tsfmscope.models.base import Family
from tsfmscope.models.references import Source, load_family, resolve


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A loaded model.

    Attributes:
        name: name of the model, without characters that a file name cannot have.
        family: the model itself, with its stacks, width, weights and forecasts.
        source: its checkpoint on this machine.
        device: torch device of the weights.
        calibration: series that calibrated or healed the model.
    """

    name: str
    family: Family
    source: Source
    device: str
    calibration: Calibration

    @property
    def layers(self) -> Mapping[str, int]:
        """Number of blocks of each stack; states exist for layers 0 (the embedding) to this number."""
        return self.family.layers

    @property
    def width(self) -> int:
        """Width of the hidden states."""
        return self.family.width

    def __repr__(self) -> str:
        layers = ", ".join(f"{stack} {n}" for stack, n in self.layers.items())
        return (
            f"{type(self).__name__}({self.name!r}, family {self.source.family}, layers: {layers}, width {self.width})"
        )


@checked
def load(
    name: str | Path, *, family: str | None = None, device: str = "cpu", precision: Precision | None = None
) -> Model:
    """Load a model.

    Args:
        name: bundled model (`chronos-bolt-mini`), folder with config.json and safetensors, `FAMILY:FOLDER`, or
            `hub:ORG/NAME[@REVISION]`.
        family: model family; needed where a config.json does not name it.
        device: torch device that runs the model, such as cpu or cuda:0.
        precision: precision of products with the model's matrices; None: as the model states, or float32.

    Raises:
        ArgumentError: the name is unknown (the message gives similar names), the family is not recognised, the
            precision is unknown, or this machine does not have the device. It is a ValueError.
        ModelError: the checkpoint cannot be read, or a package is missing.
        HubError: the hub cannot be reached, or does not have the model.
    """
    source = resolve(str(name), family).running_in(precision)
    return load_source(source, device)


def load_source(source: Source, device: str) -> Model:
    """Load the model of a checkpoint on this machine. Raises the errors of `load_family`."""
    return Model(source.name, load_family(source, device), source, device, calibration_of(source.folder))


def as_model(model: Model | str | Path) -> Model:
    """Return the model, loaded first if it is a name or a folder."""
    return model if isinstance(model, Model) else load(model)
