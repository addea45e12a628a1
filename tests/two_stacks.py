"""A family of a plug-in whose stacks have unusual names; the output stack is not the last of the alphabet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import nn

from docs.plugin.patch_line import Config, PatchLine
from docs.plugin.patch_line import Network as OneStack
from tsfmscope.models.common import checkpoint_folder
from tsfmscope.models.common.capture import Pass, Stack
from tsfmscope.models.types import Tokens, WeightMatrix
from tsfmscope.series.types import Windows


class Network(OneStack):
    """Network whose first block is the stem, which ends with a norm; the other blocks are the backbone."""

    def __init__(self, **config: int) -> None:
        super().__init__(**config)
        self.stem_norm = nn.LayerNorm(config["width"])

    def encode(self, patches: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        """Return the normed states of the backbone, [B, T, d]."""
        positions = torch.arange(patches.shape[1] - 1, -1, -1, device=patches.device)
        x = self.embed(patches) + self.position(positions)
        mask = ~padding[:, None, None, :] | torch.eye(len(positions), dtype=torch.bool, device=x.device)
        x = self.stem_norm(self.blocks[0](x, mask))
        for block in self.blocks[1:]:
            x = block(x, mask)
        return self.norm(x)


class TwoStacks(PatchLine):
    """Family with the stacks `stem` and `backbone`; the forecast is read from the backbone."""

    name: ClassVar[str] = "two-stacks"
    stacks: ClassVar[tuple[str, ...]] = ("stem", "backbone")
    example: ClassVar[Mapping[str, Any]] = dict(zip(Config.model_fields, (16, 2, 3, 4, 64, 12), strict=True))
    network: Network

    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> TwoStacks:
        """Return a model with random weights."""
        full = Config.fill(config, cls.name)
        return cls(full, checkpoint_folder.build(lambda: Network(**full), seed))

    @property
    def layers(self) -> Mapping[str, int]:
        """Number of blocks by stack."""
        return {"stem": 1, "backbone": len(self.network.blocks) - 1}

    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Return the number of patches, the same in both stacks."""
        (rows,) = super().rows_per_window(context, horizon).values()
        return dict.fromkeys(self.stacks, rows)

    def weights(self) -> Iterator[WeightMatrix]:
        """Yield the matrices of both stacks."""
        for one in super().weights():
            in_stem = one.layer == 1
            yield replace(one, stack=self.stacks[not in_stem], layer=1 if in_stem else one.layer - 1)

    def _tokenize(self, windows: Windows) -> Tokens:
        tokens = super()._tokenize(windows)
        return replace(tokens, kinds=dict.fromkeys(self.stacks, tokens.kinds["encoder"]))

    def _pass(self, tokens: Tokens) -> Pass:
        one_stack = super()._pass(replace(tokens, kinds={"encoder": tokens.kinds["backbone"]}))
        blocks, queries = self.network.blocks, one_stack.queries["encoder"]
        stacks = {"stem": Stack(blocks[:1], self.network.stem_norm), "backbone": Stack(blocks[1:], self.network.norm)}
        return Pass(stacks, one_stack.forward, {"stem": queries[:1], "backbone": queries[1:]})
