"""Checkpoints of Toto 2.0 as the package toto-2 saves them (Datadog/Toto-2.0-4m and larger)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsfmscope.models.common import compression_block, own_checkpoint
from tsfmscope.models.common.own_checkpoint import (
    Count,
    CountOrNone,
    Positive,
    Release,
    SavedConfig,
    Switch,
    SwitchOrNone,
)

if TYPE_CHECKING:
    import torch

    from tsfmscope.models.toto_2.network import Block, Toto2Network

NAME = "toto-2"
# Values for which the network here is written; the package has no other ones either.
FIXED = {"dropout_p": 0.0, "num_output_patches": 1, "pre_norm": True}
QKV = ("q_proj", "k_proj", "v_proj")
# The package's name of one matrix -> ours of its parts, from top to bottom.
JOINED = {"attn.in_proj": tuple(f"attn.{name}" for name in QKV), "ffn.fc1": ("ffn.fc1_value", "ffn.fc1_gate")}


class Config(SavedConfig):
    """Arguments of the package's Toto2ModelConfig. None stands for a value that other keys decide, as there."""

    patch_size: Count
    d_model: Count
    num_heads: Count
    num_layers: Count
    layer_group_size: Count
    num_variate_layers_per_group: Any
    variate_layer_first: Switch
    residual_attn_ratio: Positive
    d_ff: CountOrNone = None
    qk_dim: CountOrNone = None
    v_dim: CountOrNone = None
    num_groups: CountOrNone = None
    qk_norm_include_weight: SwitchOrNone = None
    attn_bias: Switch = False
    mlp_bias: Switch = False
    qk_norm: Switch = True
    norm_include_weight: Switch = False
    per_dim_scale: Switch = False
    use_xpos: Switch = False
    norm_eps: Positive = 5e-5
    residual_mult: Positive = 1.0

    def find_problem(self) -> str | None:
        """Fill in derived values as Toto2ModelConfig does. Return why a config cannot be used, or None."""
        width, heads, blocks, size = self.d_model, self.num_heads, self.num_layers, self.layer_group_size
        if width % heads:
            return f"d_model: got {width}, expected a multiple of num_heads {heads}"
        self.d_ff = self.d_ff or (8 * width // 3 + 7) // 8 * 8
        self.qk_dim = self.qk_dim or width // heads
        self.v_dim = self.v_dim or self.qk_dim
        self.num_groups = self.num_groups or heads
        if self.qk_norm_include_weight is None:
            self.qk_norm_include_weight = self.norm_include_weight
        count = self.num_variate_layers_per_group
        if type(count) is not int or not 0 <= count <= size:
            return (
                f"num_variate_layers_per_group: got {count!r}, expected a whole number from 0 to "
                f"layer_group_size {size}"
            )
        if blocks % size:
            return f"num_layers: got {blocks}, expected a multiple of layer_group_size {size}"
        if heads % self.num_groups:
            return f"num_groups: got {self.num_groups}, expected a divisor of {heads} heads"
        if self.qk_dim % 4:
            return f"qk_dim: got {self.qk_dim}, expected a multiple of 4: pairs of its half are rotated"
        return None


RELEASE = Release(Config, FIXED, "toto-2 2.0.0")


def write(folder: Path, network: Toto2Network, config: Mapping[str, Any]) -> None:
    """Write config.json and model.safetensors, which Toto2Model.from_pretrained reads.

    A model that lost the block `compression` may have gained biases: the config then has `attn_bias`, and the other
    biases are 0.
    """
    import torch

    config, state = dict(config), _join(network)
    has_bias = any(
        getattr(block.attn, name).bias is not None for block in network.blocks for name in (*QKV, "out_proj")
    )
    if compression_block.block_of(network) is None and has_bias:
        config["attn_bias"] = True
        for path, block in _blocks(network):
            inputs = sum(getattr(block.attn, name).out_features for name in QKV)
            for name, rows in (("in_proj", inputs), ("out_proj", config["d_model"])):
                state.setdefault(f"{path}attn.{name}.bias", torch.zeros(rows))
    own_checkpoint.write(folder, network, {"model_type": NAME, **FIXED, **config}, state)


def _join(network: Toto2Network) -> dict[str, torch.Tensor]:
    """Return the network's weights, with the parts of a matrix as one where all of them are whole."""
    import torch
    from torch import nn

    state = network.state_dict()
    for path, block in _blocks(network):
        for name, parts in JOINED.items():
            modules = [module for part in parts if isinstance(module := block.get_submodule(part), nn.Linear)]
            if len(modules) < len(parts) or not _is_whole(block, name):
                continue
            weights: list[torch.Tensor] = [module.weight for module in modules]
            for part in parts:
                for kind in ("weight", "bias"):
                    state.pop(f"{path}{part}.{kind}", None)
            state[f"{path}{name}.weight"] = torch.cat(weights)
            if any(module.bias is not None for module in modules):
                biases: list[torch.Tensor] = [
                    torch.zeros_like(module.weight[:, 0]) if module.bias is None else module.bias for module in modules
                ]
                # Biases of q, k and v are held times the factor of their input.
                factor = block.attn.in_scale if name == "attn.in_proj" else 1.0
                state[f"{path}{name}.bias"] = torch.cat(biases) / factor
    return state


def split(weights: Mapping[str, torch.Tensor], network: Toto2Network) -> dict[str, torch.Tensor]:
    """Return a file's weights in float32, by the network's names."""
    attn, ffn = network.blocks[0].attn, network.blocks[0].ffn
    keys = [attn.heads * attn.key_width, attn.groups * attn.key_width, attn.groups * attn.value_width]
    sizes = {"attn.in_proj": keys, "ffn.fc1": [ffn.inner] * 2}
    result, own_names = {name: value.float() for name, value in weights.items()}, set(network.state_dict())
    for path, block in _blocks(network):
        for name, parts in JOINED.items():
            for kind in ("weight", "bias"):
                joined = result.get(f"{path}{name}.{kind}")
                if joined is None or len(joined) != sum(sizes[name]):
                    continue
                del result[f"{path}{name}.{kind}"]
                factor = block.attn.in_scale if (name, kind) == ("attn.in_proj", "bias") else 1.0
                for part, rows in zip(parts, joined.split(sizes[name]), strict=True):
                    own = f"{path}{part}.{kind}"
                    # A compressed layer may lack a bias; a joined one then has zeros.
                    if own in own_names or kind == "weight" or bool(rows.any()):
                        result[own] = rows * factor
    return result


def _blocks(network: Toto2Network) -> Iterator[tuple[str, Block]]:
    """Yield the prefix of the names of a block's weights, and the block."""
    for number, block in enumerate(network.blocks):
        yield f"transformer.layers.{number}.", block


def _is_whole(block: Block, name: str) -> bool:
    """Return whether the parts of a matrix have the widths of the release."""
    if name == "attn.in_proj":
        attn = block.attn
        rows = (attn.heads * attn.key_width, attn.groups * attn.key_width, attn.groups * attn.value_width)
        return rows == tuple(getattr(attn, part).out_features for part in QKV)
    return bool(block.ffn.fc1_value.out_features == block.ffn.inner)
