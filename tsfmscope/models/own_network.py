"""Families of models that forecast and whose network we wrote."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np

from tsfmscope.models.base import Forecaster
from tsfmscope.models.common import checkpoint_folder

if TYPE_CHECKING:
    import torch


class CheckpointModule(Protocol):
    """Module of a family that makes, reads and writes its networks."""

    def make_config(self, config: Mapping[str, Any], location: str) -> Any:
        """Return the config with defaults filled in; ValueError names keys that are missing, unknown or wrong."""

    def make_network(self, config: Any) -> Any:
        """Return a network with weights that are drawn as the release draws them, from torch's generator."""

    def read(self, folder: Path) -> tuple[Any, Any]:
        """Return network and config of a released or saved checkpoint; ModelError names the file that is wrong."""

    def write(self, folder: Path, network: Any, config: Any) -> None:
        """Write config.json, and model.safetensors under the released names."""


class OwnNetwork(Forecaster):
    """Family whose network we wrote. A subclass states the module of its checkpoints."""

    checkpoints: ClassVar[CheckpointModule]
    network: Any
    config: Any

    def __init__(self, network: Any, config: Any, *, batch: int = 64) -> None:
        """Wrap a network of that config, which `make_config` returned; batch: windows per forward pass."""
        self.network = network.eval()
        self.config = config
        self.batch = batch

    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Self:
        """Return a model with random weights, drawn as the release draws them.

        Keys of the config are named as in the release: all of REQUIRED of the family's module `checkpoint`, and those
        of its DEFAULTS where they differ. ValueError for keys that are missing, unknown or of a wrong value.
        """
        full = cls.checkpoints.make_config(config, cls.name)
        return cls(checkpoint_folder.build(lambda: cls.checkpoints.make_network(full), seed), full)

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        """Load a released or saved checkpoint; ModelError names the file that is wrong."""
        network, config = cls.checkpoints.read(Path(folder))
        return cls(network.to(device), config)

    def save(self, folder: Path) -> None:
        """Write config.json, and model.safetensors under the released names, which the family's package reads."""
        self.checkpoints.write(Path(folder), self.network, self.config)

    def _on_device(self, *arrays: np.ndarray) -> list[torch.Tensor]:
        """Return copies of arrays as tensors on the network's device."""
        import torch

        return [torch.from_numpy(np.array(array)).to(self.network.device) for array in arrays]
