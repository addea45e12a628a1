"""A loaded model of the public Python API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from transformers.utils.logging import disable_progress_bar

from stages.config.defaults import params_here
from stages.planning.model_reference import Source, load_family, resolve
from tsfmscope.compression.export import save
from tsfmscope.models.base import Family
from tsfmscope.models.common.checksums import write_recipe
from tsfmscope.series.content import CALIBRATION_SERIES

if TYPE_CHECKING:
    from tsfmscope.cli.certifying import CertifyResult


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A loaded model.

    Attributes:
        name: name of the model, without characters that a file name cannot have.
        family: the model itself, with its stacks, width, weights and forecasts.
        source: its checkpoint on this machine.
        device: torch device of the weights.
    """

    name: str
    family: Family
    source: Source
    device: str = "cpu"

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


@dataclass(frozen=True, eq=False, repr=False)
class CompressedModel(Model):
    """A compressed model, in memory.

    Attributes:
        costs: DataFrame with the columns quantity, before, after and ratio, and for the seconds the interval of their
            ratio, ratio_low to ratio_high.
        parts: DataFrame with the rank and relative error of every compressed part of every layer.
        judged: ratios of WQL by data set and the certificate; None for a family that does not forecast.
        calibration_series: digests of the series that calibrated or healed the model.
    """

    costs: pd.DataFrame = field(default_factory=pd.DataFrame)
    parts: pd.DataFrame = field(default_factory=pd.DataFrame)
    judged: CertifyResult | None = None
    calibration_series: Sequence[str] = ()

    def save(self, folder: str | Path) -> Path:
        """Write the checkpoint to a new or empty folder, which `load` reads; return the folder.

        Raises FileExistsError if the folder contains files.
        """
        target = Path(folder)
        if target.exists() and any(target.iterdir()):
            raise FileExistsError(f"{target}: expected a new or empty folder, found files in it; name another")
        target.mkdir(parents=True, exist_ok=True)
        save(self.family, target)
        write_recipe(target, {CALIBRATION_SERIES: list(self.calibration_series)})
        return target


def load(name: str | Path, *, family: str | None = None, device: str = "cpu", precision: str | None = None) -> Model:
    """Load a model.

    Args:
        name: a model of params.yaml or of the package (`chronos-bolt-mini`), a folder with config.json and
            safetensors, `FAMILY:FOLDER`, or `hub:ORG/NAME[@REVISION]`.
        family: family of a folder or hub model whose config.json does not show it.
        device: torch device, such as cpu or cuda:0.
        precision: float32 or bfloat16, for products with the model's matrices; None: as the model states.

    Raises:
        ParamsError: the name is unknown (the message gives similar names), or the family is not recognised.
        ModelError: the checkpoint cannot be read, a package is missing, or the precision is unknown.
        HubError: the hub cannot be reached, or does not have the model.
        ValueError: this machine does not have the device.
    """
    return load_source(resolve(params_here(), str(name), family).running_in(precision), device)


def load_source(source: Source, device: str) -> Model:
    """Load the model of a checkpoint on this machine. Raises the errors of `load_family`."""
    disable_progress_bar()
    return Model(source.name, load_family(source, device), source, device)


def as_model(model: Model | str | Path) -> Model:
    """Return the model, loaded first if it is a name or a folder."""
    return model if isinstance(model, Model) else load(model)
