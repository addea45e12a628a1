"""Families of models that forecast and whose network we wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np

from tsfmscope.models.base import Forecaster
from tsfmscope.models.blocks import BlockFamily
from tsfmscope.models.common import checkpoint_folder
from tsfmscope.models.common.attention import AttentionLayer
from tsfmscope.models.common.own_checkpoint import SavedConfig

if TYPE_CHECKING:
    import torch


class CheckpointModule(Protocol):
    """Module of a family that makes, reads and writes its networks."""

    @property
    def Config(self) -> type[SavedConfig]:
        """Keys of config.json that the network reads, with types and defaults."""

    def make_network(self, config: Mapping[str, Any]) -> Any:
        """Return a network with weights that are drawn as the release draws them, from torch's generator."""

    def read(self, folder: Path, attentions: Callable[[Any], Iterable[AttentionLayer]]) -> tuple[Any, dict[str, Any]]:
        """Return network and config of a released or saved checkpoint; ModelError names the file that is wrong.

        attentions: function from the network to its attention layers.
        """

    def write(self, folder: Path, network: Any, config: Mapping[str, Any]) -> None:
        """Write config.json, and model.safetensors under the released names."""


class OwnNetwork(BlockFamily, Forecaster):
    """Family whose network we wrote. A subclass states the module of its checkpoints."""

    checkpoints: ClassVar[CheckpointModule]
    network: Any
    config: dict[str, Any]

    def __init__(self, network: Any, config: dict[str, Any], *, batch: int = 64) -> None:
        """Wrap a network of that config, with all its keys; batch: windows per forward pass."""
        self.network = network.eval()
        self.config = config
        self.batch = batch

    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Self:
        """Return a model with random weights, drawn as the release draws them.

        Keys of the config are those of `Config` in the family's module `checkpoint`, named as in the release.
        ValueError for keys that are missing, unknown or of a wrong value.
        """
        full = cls.checkpoints.Config.fill(config, cls.name)
        return cls(checkpoint_folder.build(lambda: cls.checkpoints.make_network(full), seed), full)

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        """Load a released or saved checkpoint; ModelError names the file that is wrong."""
        network, config = cls.checkpoints.read(Path(folder), cls.attention_layers)
        return cls(network.to(device), config)

    def setting(self, key: str) -> Any:
        """Return a value of the config that the network was made of."""
        return self.config[key]

    def save(self, folder: Path) -> None:
        """Write config.json, and model.safetensors under the released names, which the family's package reads."""
        self.checkpoints.write(Path(folder), self.network, self.config)

    def read_package_network(self, network_class: Any, folder: Path) -> Any:
        """Return the package's network with our whole config: classes of granite-tsfm do not declare all their keys."""
        return checkpoint_folder.load_network(network_class, folder, "cpu", **self.config)

    def _on_device(self, *arrays: np.ndarray) -> list[torch.Tensor]:
        """Return copies of arrays as tensors on the network's device."""
        import torch

        return [torch.from_numpy(np.array(array)).to(self.network.device) for array in arrays]
