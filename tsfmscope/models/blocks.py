"""Families whose matrices are those of Linears in the blocks of a network."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tsfmscope.models.base import Family
from tsfmscope.models.common.attention import NAMES, AttentionLayer
from tsfmscope.models.types import WeightMatrix


class BlockFamily(Family):
    """Family that names the modules of its blocks; numbers of layers and weight matrices follow from these."""

    # Path of a Linear in a block -> name of its matrix, as in WeightMatrix; blocks that lack a path lack the matrix.
    mlp: ClassVar[Mapping[str, str]] = {}
    # Key of the config whose value is the width of the hidden states.
    width_key: ClassVar[str] = "d_model"
    network: Any

    @abstractmethod
    def setting(self, key: str) -> Any:
        """Return a value of the config that the network was made of."""

    @property
    def width(self) -> int:
        """Width of the hidden states."""
        return int(self.setting(self.width_key))

    @property
    @abstractmethod
    def blocks(self) -> Mapping[str, Sequence[Any]]:
        """Blocks of each of the `stacks`, and of further stacks whose matrices are measured, first to last."""

    def mlp_paths(self) -> Mapping[str, str]:
        """Return `mlp`; a family whose MLPs have any number of parts overrides this method."""
        return self.mlp

    @property
    def layers(self) -> Mapping[str, int]:
        """Number of blocks of each stack."""
        return {stack: len(self.blocks[stack]) for stack in self.stacks}

    def weights(self) -> Iterator[WeightMatrix]:
        """Yield q, k, v and o of every attention of a block, then its MLP, block by block.

        `layer` counts blocks from 1, as the states that the blocks return do.
        """
        attentions: dict[tuple[str, int], list[AttentionLayer]] = defaultdict(list)
        for attention in self.attentions():
            attentions[attention.stack, attention.layer].append(attention)
        for stack, blocks in self.blocks.items():
            for layer, block in enumerate(blocks, start=1):
                for attention in attentions[stack, layer]:
                    kind, heads = attention.kind, int(attention.heads)
                    for name in NAMES:
                        yield WeightMatrix.of(attention.linear(name), stack, layer, name, attention=kind, heads=heads)
                modules = dict(block.named_modules())
                for path, name in self.mlp_paths().items():
                    if path in modules:
                        yield WeightMatrix.of(modules[path], stack, layer, name)


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
