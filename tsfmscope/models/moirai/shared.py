"""Parts of all versions of Moirai: checkpoints, facts, and the class that uni2ts forecasts with."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from tsfmscope.models.base import Forecaster
from tsfmscope.models.blocks import BlockFamily
from tsfmscope.models.common.attention import AttentionLayer
from tsfmscope.models.moirai import checkpoint
from tsfmscope.models.moirai.patches import MINIMUM_SCALE
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch


class MoiraiFamily(BlockFamily, Forecaster):
    """A version of Moirai, whose network is one of uni2ts.

    schema: of its config. pipeline: module and class of uni2ts that forecast with the network.
    """

    requires: ClassVar[tuple[str, ...]] = ("uni2ts",)
    mlp: ClassVar[Mapping[str, str]] = {"ffn.fc1": "mlp_in", "ffn.fc_gate": "mlp_gate", "ffn.fc2": "mlp_out"}
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

    def setting(self, key: str) -> Any:
        """Return a value of the config that the network was made of."""
        return self.config[key]

    def save(self, folder: Path) -> None:
        """Write config.json and model.safetensors, which `from_pretrained` of the network's class can read."""
        checkpoint.save_network(self.network, self.config, Path(folder))

    @property
    def blocks(self) -> Mapping[str, Sequence[Any]]:
        """Blocks of the only stack."""
        return {self.schema.stack: self.network.encoder.layers}

    @classmethod
    def attention_layers(cls, network: Any) -> Iterator[AttentionLayer]:
        """Yield the self-attention of every block; queries and keys are normed and rotated."""
        return checkpoint.attentions(network, cls.schema.stack)

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

    def read_package_network(self, network_class: Any, folder: Path) -> Any:
        """Return the network of uni2ts that this project reads a folder with."""
        return checkpoint.load_network(folder, "cpu", self.schema)[0]

    def _package_run(self, network: Any, windows: Windows, **options: Any) -> tuple[Any, dict[str, torch.Tensor]]:
        """Return uni2ts' class around its network, and its inputs; missing steps are 0."""
        import torch

        past, observed = np.nan_to_num(windows.context), ~np.isnan(windows.context)
        steps = {"prediction_length": windows.horizon, "context_length": past.shape[1]}
        inputs = {
            "past_target": past[:, :, None],
            "past_observed_target": observed[:, :, None],
            "past_is_pad": ~np.logical_or.accumulate(observed, axis=1),
        }
        forecaster = self.stock_model_of(network, **steps, **options)
        return forecaster, {name: torch.from_numpy(values) for name, values in inputs.items()}

    @property
    def _device(self) -> torch.device:
        device: torch.device = next(self.network.parameters()).device
        return device
