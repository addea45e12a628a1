"""Families whose network is a PreTrainedModel of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tsfmscope.models.base import Family


class Pretrained(Family):
    """Family whose network writes its own checkpoints. A subclass states the network's class."""

    network: Any

    def __init__(self, network: Any, *, batch: int = 64) -> None:
        """Wrap a network; batch: windows per forward pass."""
        self.network = network.eval()
        self.batch = batch

    def save(self, folder: Path) -> None:
        """Write config.json and model.safetensors, which `from_pretrained` of the network's class reads."""
        self.network.save_pretrained(folder)
