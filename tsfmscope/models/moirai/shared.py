"""Parts of all versions of Moirai: checkpoints, facts, and the class that uni2ts forecasts with."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tsfmscope.models.base import Forecaster
from tsfmscope.models.common.attention import AttentionLayer
from tsfmscope.models.moirai import checkpoint
from tsfmscope.models.moirai.patches import MINIMUM_SCALE
from tsfmscope.models.types import WeightMatrix

if TYPE_CHECKING:
    import torch


class MoiraiFamily(Forecaster):
    """A version of Moirai, whose network is one of uni2ts.

    schema: of its config. pipeline: module and class of uni2ts that forecast with the network.
    """

    schema: ClassVar[checkpoint.Schema]
    pipeline: ClassVar[tuple[str, str]]
    deviation_floor: ClassVar[float] = math.sqrt(MINIMUM_SCALE)
    network: Any

    def __init__(self, network: Any, config: Mapping[str, Any], *, batch: int = 64) -> None:
        """Wrap a network of uni2ts that was made from `config`; batch: windows per forward pass."""
        self.network = network.eval()
        self.config = dict(config)
        self.batch = batch

    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Self:
        """Return a model with random weights.

        config: the required keys of the schema, and any of its defaults; they are named as the arguments of the
        network's class. Raises ValueError for missing or unknown keys and for unusable values.
        """
        return cls(*checkpoint.new_network(config, seed, cls.schema))

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        """Return the model of a released or saved checkpoint; only safetensors are read.

        Raises ModelError, which names the wrong file.
        """
        return cls(*checkpoint.load_network(Path(folder), device, cls.schema))

    def save(self, folder: Path) -> None:
        """Write config.json and model.safetensors, which `from_pretrained` of the network's class can read."""
        checkpoint.save_network(self.network, self.config, Path(folder))

    @property
    def layers(self) -> Mapping[str, int]:
        """Number of blocks."""
        return {self.schema.stack: len(self.network.encoder.layers)}

    @property
    def width(self) -> int:
        """Width d_model of the hidden states."""
        return int(self.network.d_model)

    def stock_model(self, **options: Any) -> Any:
        """Return the network as the class that uni2ts forecasts with.

        options: its arguments, at least prediction_length and context_length. Raises ValueError for unknown or missing
        options.
        """
        module, name = self.pipeline
        fixed = {"target_dim": 1, "feat_dynamic_real_dim": 0, "past_feat_dynamic_real_dim": 0}
        try:
            return getattr(importlib.import_module(module), name)(module=self.network, **{**fixed, **options}).eval()
        except TypeError as error:
            raise ValueError(f"pipeline of {self.name}: {error}") from error

    def weights(self) -> Iterator[WeightMatrix]:
        """Yield q, k, v, o (self), mlp_in, mlp_gate (the input of the SiLU) and mlp_out of every block.

        `layer` counts blocks from 1.
        """
        stack = self.schema.stack
        for layer, block in enumerate(self.network.encoder.layers, start=1):
            attention, ffn = block.self_attn, block.ffn
            projections = {"q": attention.q_proj, "k": attention.k_proj, "v": attention.v_proj, "o": attention.out_proj}
            for matrix, module in projections.items():
                yield WeightMatrix.of(module, stack, layer, matrix, attention="self", heads=attention.num_heads)
            for matrix, module in (("mlp_in", ffn.fc1), ("mlp_gate", ffn.fc_gate), ("mlp_out", ffn.fc2)):
                yield WeightMatrix.of(module, stack, layer, matrix)

    def attentions(self) -> Iterator[AttentionLayer]:
        """Return the self-attention of every block; queries and keys are normed and rotated."""
        return checkpoint.attentions(self.network, self.schema.stack)

    @property
    def _device(self) -> torch.device:
        device: torch.device = next(self.network.parameters()).device
        return device
