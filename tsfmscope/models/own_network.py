"""Families of models that forecast and whose network we wrote."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from tsfmscope.models.base import BlockFamily, Forecaster
from tsfmscope.models.common import checkpoint_folder, own_checkpoint
from tsfmscope.models.common.own_checkpoint import Release

if TYPE_CHECKING:
    import torch


class OwnNetwork(BlockFamily, Forecaster):
    """Family whose network we wrote.

    A subclass states the release whose checkpoints it reads, and overrides `read_saved_config`, `to_own_weights`,
    `saved_config` and `released_weights` where their defaults do not hold.
    """

    release: ClassVar[Release]
    config: dict[str, Any]

    def __init__(self, network: Any, config: dict[str, Any], *, batch: int = 64) -> None:
        """Wrap a network of that config, with all its keys; batch: windows per forward pass."""
        self.network = network.eval()
        self.config = config
        self.batch = batch

    @classmethod
    @abstractmethod
    def make_network(cls, config: Mapping[str, Any]) -> Any:
        """Return a network with weights that are drawn as the release draws them, from torch's generator."""

    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Self:
        """Return a model with random weights, drawn as the release draws them.

        Keys of the config are those of `release.config`, named as in the release.
        ValueError for keys that are missing, unknown or of a wrong value.
        """
        full = cls.release.config.fill(config, cls.name)
        return cls(checkpoint_folder.build(lambda: cls.make_network(full), seed), full)

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        """Load a released or saved checkpoint; ModelError names the file that is wrong."""
        folder = Path(folder)
        saved, release = cls.read_saved_config(folder)
        network, config = own_checkpoint.read(
            folder, saved, release, cls.make_network, cls.attention_layers, cls.to_own_weights
        )
        model = cls(network.to(device), config)
        model.missing = release.find_missing(saved)
        return model

    @classmethod
    def read_saved_config(cls, folder: Path) -> tuple[dict[str, Any], Release]:
        """Return config.json of a folder, and the release that it must fit; ModelError if it is of another family."""
        saved = checkpoint_folder.read_config(folder, cls.name)
        checkpoint_folder.check_model_type(saved, folder, cls.name, cls.release.model_type)
        return saved, cls.release

    @staticmethod
    def to_own_weights(weights: dict[str, torch.Tensor], network: Any) -> dict[str, torch.Tensor]:
        """Return the weights of a file, without the release's prefix, by the network's names."""
        return weights

    def setting(self, key: str) -> Any:
        """Return a value of the config that the network was made of."""
        return self.config[key]

    def save(self, folder: Path) -> None:
        """Write config.json, and model.safetensors under the released names, which the family's package reads."""
        self.check_complete()
        prefix = self.release.prefix
        weights = {prefix + name: value for name, value in self.released_weights().items()}
        own_checkpoint.write(Path(folder), self.network, self.saved_config(), weights)

    def saved_config(self) -> dict[str, Any]:
        """Return config.json: model_type, the class of the release, the values it must have, and the config."""
        named: dict[str, Any] = {"model_type": self.release.model_type or self.name}
        if self.architectures:
            named["architectures"] = [self.architectures[0]]
        return {**named, **self.release.fixed, **self.config}

    def released_weights(self) -> dict[str, torch.Tensor]:
        """Return the network's weights under the released names, without the prefix."""
        weights: dict[str, torch.Tensor] = self.network.state_dict()
        return weights

    def read_package_network(self, network_class: Any, folder: Path) -> Any:
        """Return the package's network with our whole config: classes of granite-tsfm do not declare all their keys."""
        return checkpoint_folder.load_network(network_class, folder, "cpu", **self.config)

    def _on_device(self, *arrays: np.ndarray) -> list[torch.Tensor]:
        """Return copies of arrays as tensors on the network's device."""
        import torch

        return [torch.from_numpy(np.array(array)).to(self.network.device) for array in arrays]
