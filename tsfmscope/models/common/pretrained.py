"""Families whose network is a PreTrainedModel of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tsfmscope.models.blocks import BlockFamily


class Pretrained(BlockFamily):
    """Family whose network writes its own checkpoints. A subclass states the network's class."""

    network: Any

    def __init__(self, network: Any, *, batch: int = 64) -> None:
        """Wrap a network; batch: windows per forward pass."""
        self.network = network.eval()
        self.batch = batch

    def setting(self, key: str) -> Any:
        """Return a value of the config that the network was made of."""
        return getattr(self.network.config, key)

    def save(self, folder: Path) -> None:
        """Write config.json and model.safetensors, which `from_pretrained` of the network's class reads."""
        self.network.save_pretrained(folder)
