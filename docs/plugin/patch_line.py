"""Example of a family in a package of its own: self-attention over patches, and a linear map to quantiles."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from tsfmscope.models.base import QUANTILES, Forecaster
from tsfmscope.models.common import checkpoint_folder
from tsfmscope.models.common.capture import Pass, Stack
from tsfmscope.models.common.own_checkpoint import Count, SavedConfig
from tsfmscope.models.types import TokenKind, Tokens, WeightMatrix
from tsfmscope.series.types import Windows


class Config(SavedConfig):
    """Keys of config.json. An error names a key that is missing, unknown or of a wrong value."""

    width: Count
    heads: Count
    blocks: Count
    patch: Count
    context: Count
    horizon: Count

    def find_problem(self) -> str | None:
        """Return why values that are valid by themselves cannot be used together, or None."""
        return f"got {self.heads} heads, expected a divisor of width {self.width}" if self.width % self.heads else None


class Block(nn.Module):
    """Block with self-attention and an MLP; each reads the normed states and is added to the states."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.mlp_in, self.mlp_out = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the block's output, [B, T, d].

        x: input states, [B, T, d]. mask: [B, 1, T, T], True where a row may attend to another.
        """
        normed = self.norm_1(x)
        q, k, v = (part(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        x = x + self.o(nn.functional.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2))
        result: torch.Tensor = x + self.mlp_out(nn.functional.gelu(self.mlp_in(self.norm_2(x))))
        return result


class Network(nn.Module):
    """Network from patches to hidden states, and from the last state to quantiles of the horizon.

    A patch contains values, and a flag of each step that tells whether it was observed.
    """

    def __init__(self, width: int, heads: int, blocks: int, patch: int, context: int, horizon: int) -> None:
        super().__init__()
        self.embed, self.position = nn.Linear(2 * patch, width), nn.Embedding(-(-context // patch), width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, len(QUANTILES) * horizon)

    def encode(self, patches: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        """Return the hidden states, [B, T, d], of patches, [B, T, 2 * patch].

        Positions are counted from the last patch. Only a padding row itself attends to that row.
        """
        positions = torch.arange(patches.shape[1] - 1, -1, -1, device=patches.device)
        x = self.embed(patches) + self.position(positions)
        mask = ~padding[:, None, None, :] | torch.eye(len(positions), dtype=torch.bool, device=x.device)
        for block in self.blocks:
            x = block(x, mask)
        result: torch.Tensor = self.norm(x)
        return result

    def forward(self, patches: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        """Return quantiles, [B, Q, H], in scaled units."""
        flat: torch.Tensor = self.head(self.encode(patches, padding)[:, -1])
        result: torch.Tensor = flat.unflatten(-1, (len(QUANTILES), -1)).sort(dim=1).values
        return result


class PatchLine(Forecaster):
    """Family with one encoder, whose rows are patches of the context.

    The last patch ends with the context. A context that is longer than the config's is cut on the left.
    """

    name: ClassVar[str] = "patch-line"
    stacks: ClassVar[tuple[str, ...]] = ("encoder",)
    direct_quantiles: ClassVar[bool] = True
    plain_attention: ClassVar[bool] = True
    example: ClassVar[Mapping[str, Any]] = {
        "width": 16,
        "heads": 2,
        "blocks": 2,
        "patch": 8,
        "context": 48,
        "horizon": 12,
    }
    network: Network

    def __init__(self, config: Mapping[str, Any], network: Network, batch: int = 64) -> None:
        self.config, self.network, self.batch = dict(config), network.eval(), batch

    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Self:
        """Return a model with random weights. The keys of `config` are those of Config."""
        full = Config.fill(config, cls.name)
        return cls(full, checkpoint_folder.build(lambda: Network(**full), seed))

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        """Load a checkpoint that `save` wrote. Raises ModelError for any other folder."""
        folder = Path(folder)
        config = checkpoint_folder.read_config(folder, cls.name)
        checkpoint_folder.check_model_type(config, folder, cls.name)
        del config["model_type"]
        with checkpoint_folder.limit_parameters(folder):
            model = cls.new(config, seed=0)
        model.network.load_state_dict(checkpoint_folder.read_weights(folder))
        model.network.to(device)
        return model

    def save(self, folder: Path) -> None:
        """Write config.json and model.safetensors."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, "config.json").write_text(json.dumps({"model_type": self.name, **self.config}, indent=2) + "\n")
        save_file(self.network.state_dict(), Path(folder, checkpoint_folder.STOCK))

    @property
    def layers(self) -> Mapping[str, int]:
        """Number of blocks by stack."""
        return {"encoder": len(self.network.blocks)}

    @property
    def width(self) -> int:
        """Width of the hidden states."""
        return int(self.config["width"])

    @property
    def max_context(self) -> int:
        """Number of steps that are read; of a longer context these are the last ones."""
        return int(self.config["context"])

    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Return the number of patches; the first one may have fewer steps than the others."""
        return {"encoder": -(-min(context, self.config["context"]) // self.config["patch"])}

    def weights(self) -> Iterator[WeightMatrix]:
        """Yield the matrices q, k, v, o, mlp_in and mlp_out of every block."""
        for layer, block in enumerate(self.network.blocks, start=1):
            for name in ("q", "k", "v", "o"):
                part = getattr(block, name)
                yield WeightMatrix.of(part, "encoder", layer, name, attention="self", heads=self.config["heads"])
            for name in ("mlp_in", "mlp_out"):
                yield WeightMatrix.of(getattr(block, name), "encoder", layer, name)

    def loss(self, context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """Return the mean pinball loss over the observed steps of the future, in scaled units; 0 if there are none."""
        patches, padding, loc, scale = self._patches(context.cpu().numpy())
        found = self.network(*self._to_device(patches, padding))[:, :, : future.shape[1]]
        target = (future.cpu().double().numpy() - loc) / scale
        target = torch.from_numpy(target[:, None, : found.shape[2]]).to(found)
        error, levels = target - found, torch.tensor(QUANTILES).to(found)[:, None]
        # In double precision the sum of huge values is finite.
        pinball = torch.maximum(levels * error, (levels - 1) * error).double()
        return (pinball.nan_to_num().sum() / pinball.isfinite().sum().clamp(min=1)).float()

    def _tokenize(self, windows: Windows) -> Tokens:
        patches, padding, _, _ = self._patches(windows.context)
        kinds = np.where(padding, TokenKind.PADDING, TokenKind.OBSERVATION).astype(np.int8)
        return Tokens({"patches": patches}, {"encoder": kinds}, {}, windows.series, windows.origin)

    def _pass(self, tokens: Tokens) -> Pass:
        network, padding = self.network.eval(), tokens.kinds["encoder"] == TokenKind.PADDING

        def forward(part: slice) -> None:
            network.encode(*self._to_device(tokens.arrays["patches"][part], padding[part]))

        queries = {"encoder": [block.get_submodule("q") for block in network.blocks]}
        return Pass({"encoder": Stack(list(network.blocks), network.norm)}, forward, queries)

    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        history = windows.context.astype(np.float64)
        parts: list[np.ndarray] = []
        # The median is appended to the context until the horizon is reached.
        while sum(part.shape[2] for part in parts) < windows.horizon:
            patches, padding, loc, scale = self._patches(history)
            batches = [slice(n, n + self.batch) for n in range(0, len(patches), self.batch)]
            with torch.inference_mode():
                answers = [self.network(*self._to_device(patches[part], padding[part])) for part in batches]
            found = torch.cat(answers).double().cpu().numpy() * scale[:, None] + loc[:, None]
            parts.append(found)
            history = np.concatenate((history, found[:, QUANTILES.index(0.5)]), axis=1)
        values = np.concatenate(parts, axis=2)[:, :, : windows.horizon]

        def interpolate(quantiles: np.ndarray, level: float) -> Any:
            return np.interp(level, QUANTILES, quantiles)

        return np.stack([np.apply_along_axis(interpolate, 1, values, level) for level in levels], axis=1)

    def _patches(self, context: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the patches, padding, loc and scale of contexts.

        Patches, [W, T, 2 * patch], contain the scaled values, then 1 for each observed step and 0 for the
        others. padding, [W, T], is True for a patch without an observed step. loc and scale, both [W, 1], are
        the mean and the standard deviation, or 1 if that is 0.
        """
        size, values = self.config["patch"], context[:, -self.config["context"] :].astype(np.float64)
        values = np.pad(values, ((0, 0), (-values.shape[1] % size, 0)), constant_values=np.nan)
        observed = ~np.isnan(values)
        count, filled = np.maximum(observed.sum(axis=1, keepdims=True), 1), np.where(observed, values, 0)
        loc = filled.sum(axis=1, keepdims=True) / count
        spread = np.sqrt((np.where(observed, values - loc, 0) ** 2).sum(axis=1, keepdims=True) / count)
        scale = np.where(spread > 0, spread, 1)
        scaled = np.where(observed, (filled - loc) / scale, 0)
        both = np.stack((scaled, observed)).reshape(2, len(values), -1, size).astype(np.float32)
        return np.concatenate(tuple(both), axis=2), ~both[1].any(axis=2), loc, scale

    def _to_device(self, *arrays: np.ndarray) -> tuple[torch.Tensor, ...]:
        device = self.network.head.weight.device
        return tuple(torch.tensor(array, device=device) for array in arrays)
