"""Checkpoints of PatchTST-FM as granite-tsfm saves them (ibm-granite/granite-timeseries-patchtst-fm-r1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsfmscope.errors import ModelError
from tsfmscope.models.common import checkpoint_folder, own_checkpoint
from tsfmscope.models.common.attention import AttentionLayer
from tsfmscope.models.common.own_checkpoint import Count, Release, SavedConfig, Share

if TYPE_CHECKING:
    import torch

    from tsfmscope.models.patchtst_fm.network import PatchTSTFMNetwork

NAME, MODEL_TYPE, ARCHITECTURE = "patchtst-fm", "patchtst_fm", "PatchTSTFMForPrediction"
# Standard deviations up to this count as 1, as in the package.
LEAST_SCALE = 1e-5
# Largest scaled forecast. The next step, sinh, would overflow float64 above 710; float32 overflows before.
LARGEST_SCALED = 200.0
# Prefix of the names of all weights in the package's classes.
PREFIX = "backbone."
# Values of r1, for which the network here is written; later versions have other ones.
FIXED = {
    "norm_first": True,
    "qkv_bias": True,
    "prehead_norm": False,
    "block_type": "transformer",
    "is_causal": False,
    "mlp_type": "mlp",
    "patch_stride": None,
    "patch_loss_windowing": None,
}
# The package's name of the projections of queries, keys and values, which are one matrix there.
JOINT = "qkv"
JOINED = ("q_proj", "k_proj", "v_proj")


def quantile_levels(count: int) -> tuple[float, ...]:
    """Return the levels of a model with this number of quantiles, as PatchTSTFMConfig computes them."""
    if count % 9 == 0:
        return tuple(n / (count + 1) for n in range(1, count + 1))
    return (0.01, *(n / (count - 1) for n in range(1, count - 1)), 0.99)


class Config(SavedConfig):
    """Keys of PatchTSTFMConfig with its defaults; its blocks have dropout 0.1, which is no key there."""

    context_length: Count
    d_patch: Count
    d_model: Count
    n_head: Count
    n_layer: Count
    prediction_length: Count = 64
    pretrain_mask_ratio: Share = 0.4
    pretrain_mask_cont: Count = 8
    num_quantile: Count = 99
    dropout: Share = 0.1

    def find_problem(self) -> str | None:
        """Return why a config cannot be used, or None."""
        if self.d_model % self.n_head:
            return f"d_model: got {self.d_model}, expected a multiple of n_head {self.n_head}"
        steps, size, shortest = self.context_length, self.d_patch, shortest_forecast(dict(self))
        if steps % size or steps < shortest + size:
            return (
                f"context_length: got {steps}, expected a multiple of d_patch {size} from {shortest + size}, since "
                f"every forecast takes {shortest} of its steps (see pretrain_mask_cont)"
            )
        levels = quantile_levels(self.num_quantile)
        if list(levels) != sorted(set(levels)):
            return f"num_quantile: got {self.num_quantile}, expected 9, 99 or another number whose levels ascend"
        return None


RELEASE = Release(Config, FIXED, "r1", PREFIX)


def shortest_forecast(config: Mapping[str, Any]) -> int:
    """Return the number of steps that the package always forecasts; shorter forecasts are its first steps."""
    return int(config["d_patch"] * max(config["pretrain_mask_cont"], 2))


def make_network(config: Mapping[str, Any]) -> PatchTSTFMNetwork:
    """Return a network with weights drawn as torch draws those of new layers (as in the package)."""
    from tsfmscope.models.patchtst_fm.network import PatchTSTFMNetwork

    return PatchTSTFMNetwork(config)


def write(folder: Path, network: PatchTSTFMNetwork, config: Mapping[str, Any]) -> None:
    """Write config.json and model.safetensors, which PatchTSTFMForPrediction.from_pretrained reads."""
    named = {"model_type": MODEL_TYPE, "architectures": [ARCHITECTURE]}
    weights = {PREFIX + name: value for name, value in _join(network).items()}
    own_checkpoint.write(folder, network, {**named, **FIXED, **config}, weights)


def read(
    folder: Path, attentions: Callable[[Any], Iterable[AttentionLayer]]
) -> tuple[PatchTSTFMNetwork, dict[str, Any]]:
    """Read a released or saved checkpoint in float32, with its config; ModelError names what is wrong."""
    saved = checkpoint_folder.read_config(folder, NAME)
    checkpoint_folder.check_model_type(saved, folder, NAME, MODEL_TYPE)
    network, config = own_checkpoint.read(folder, saved, RELEASE, make_network, attentions, _split)
    levels = list(quantile_levels(config["num_quantile"]))
    if saved.get("quantile_levels", levels) != levels:
        raise ModelError(
            f"{folder / 'config.json'}: got quantile_levels {saved['quantile_levels']!s:.60}, expected those of "
            f"num_quantile {config['num_quantile']}; fetch or save the checkpoint again"
        )
    return network, config


def _join(network: PatchTSTFMNetwork) -> dict[str, torch.Tensor]:
    """Return the network's weights, with queries, keys and values as one matrix where all have their full width."""
    import torch
    from torch import nn

    state = network.state_dict()
    for number, block in enumerate(network.layers):
        parts = [getattr(block.attn, name) for name in JOINED]
        if not all(isinstance(part, nn.Linear) and part.out_features == part.in_features for part in parts):
            continue
        path = f"blocks.{number}.attn."
        for name in JOINED:
            for kind in ("weight", "bias"):
                state.pop(f"{path}{name}.{kind}", None)
        # A compressed layer may have lost a bias, whose effect its other weights then contain.
        biases = [torch.zeros_like(part.weight[:, 0]) if part.bias is None else part.bias for part in parts]
        state[f"{path}{JOINT}.weight"] = torch.cat([part.weight for part in parts])
        state[f"{path}{JOINT}.bias"] = torch.cat(biases)
    return state


def _split(state: Mapping[str, torch.Tensor], network: PatchTSTFMNetwork) -> dict[str, torch.Tensor]:
    """Return a file's weights, without the prefix, by the network's names."""
    found, own_names = {}, set(network.state_dict())
    for name, value in state.items():
        path, _, kind = name.rpartition(f".{JOINT}.")
        if not path or len(value) % len(JOINED):
            found[name] = value
            continue
        for part, rows in zip(JOINED, value.chunk(len(JOINED)), strict=True):
            own = f"{path}.{part}.{kind}"
            if own in own_names or kind != "bias" or bool(rows.any()):
                found[own] = rows
    return found
