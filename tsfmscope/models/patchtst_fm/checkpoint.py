"""Checkpoints of PatchTST-FM as granite-tsfm saves them (ibm-granite/granite-timeseries-patchtst-fm-r1)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsfmscope.errors import ModelError
from tsfmscope.models.common import attention, checkpoint_folder, own_checkpoint

if TYPE_CHECKING:
    import torch

    from tsfmscope.models.patchtst_fm.network import PatchTSTFMNetwork

NAME, MODEL_TYPE, ARCHITECTURE = "patchtst-fm", "patchtst_fm", "PatchTSTFMForPrediction"
# Prefix of the names of all weights in the package's classes.
PREFIX = "backbone."
REQUIRED = ("context_length", "d_patch", "d_model", "n_head", "n_layer")
# Defaults of PatchTSTFMConfig; its blocks have dropout 0.1, which is no key there.
DEFAULTS = {
    "prediction_length": 64,
    "pretrain_mask_ratio": 0.4,
    "pretrain_mask_cont": 8,
    "num_quantile": 99,
    "dropout": 0.1,
}
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
COUNTS = (*REQUIRED, "prediction_length", "pretrain_mask_cont", "num_quantile")
# The package's name of the projections of queries, keys and values, which are one matrix there.
JOINT = "qkv"
JOINED = ("q_proj", "k_proj", "v_proj")


def quantile_levels(count: int) -> tuple[float, ...]:
    """Return the levels of a model with this number of quantiles, as PatchTSTFMConfig computes them."""
    if count % 9 == 0:
        return tuple(n / (count + 1) for n in range(1, count + 1))
    return (0.01, *(n / (count - 1) for n in range(1, count - 1)), 0.99)


def make_config(config: Mapping[str, Any], location: str) -> dict[str, Any]:
    """Return the config with defaults filled in.

    ValueError names keys that are missing, unknown or of a wrong value.
    """
    full = checkpoint_folder.filled_config(config, REQUIRED, DEFAULTS, location)
    own_checkpoint.check_counts(full, COUNTS, location)
    own_checkpoint.check_shares(full, ("dropout", "pretrain_mask_ratio"), location)
    steps, size, width, heads = (full[name] for name in ("context_length", "d_patch", "d_model", "n_head"))
    if width % heads:
        raise ValueError(f"{location} config: d_model: got {width}, expected a multiple of n_head {heads}")
    shortest = shortest_forecast(full)
    if steps % size or steps < shortest + size:
        raise ValueError(
            f"{location} config: context_length: got {steps}, expected a multiple of d_patch {size} from "
            f"{shortest + size}, since every forecast takes {shortest} of its steps (see pretrain_mask_cont)"
        )
    levels = quantile_levels(full["num_quantile"])
    if list(levels) != sorted(set(levels)):
        raise ValueError(
            f"{location} config: num_quantile: got {full['num_quantile']}, expected 9, 99 or another number whose "
            "levels ascend"
        )
    return full


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


def read(folder: Path) -> tuple[PatchTSTFMNetwork, dict[str, Any]]:
    """Read a released or saved checkpoint in float32, with its config; ModelError names what is wrong."""
    from tsfmscope.models.patchtst_fm.network import attentions

    config, block = _config(folder)
    network = own_checkpoint.make_empty(lambda: make_network(config), attentions, block, folder)
    saved_weights = own_checkpoint.without_prefix(checkpoint_folder.read_weights(folder), PREFIX, folder)
    weights = _split(saved_weights, set(network.state_dict()))
    return own_checkpoint.fill(network, weights, folder), config


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


def _split(state: Mapping[str, torch.Tensor], own_names: set[str]) -> dict[str, torch.Tensor]:
    """Return a file's weights, without the prefix, by the network's names, which are `own_names`."""
    found = {}
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


def _config(folder: Path) -> tuple[dict[str, Any], Any]:
    """Return the shape, and the `compression` block of a compressed model (else None)."""
    saved = checkpoint_folder.read_config(folder, NAME)
    checkpoint_folder.check_model_type(saved, folder, NAME, MODEL_TYPE)
    own_checkpoint.check_fixed(saved, FIXED, folder, "r1")
    known = {key: value for key, value in saved.items() if key in (*REQUIRED, *DEFAULTS)}
    config = own_checkpoint.check_saved(make_config, known, folder)
    levels = list(quantile_levels(config["num_quantile"]))
    if saved.get("quantile_levels", levels) != levels:
        raise ModelError(
            f"{folder / 'config.json'}: got quantile_levels {saved['quantile_levels']!s:.60}, expected those of "
            f"num_quantile {config['num_quantile']}; fetch or save the checkpoint again"
        )
    return config, saved.get(attention.BLOCK)
