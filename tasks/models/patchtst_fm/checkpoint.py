"""Checkpoints of PatchTST-FM as granite-tsfm saves them (ibm-granite/granite-timeseries-patchtst-fm-r1)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsfmscope.tasks.errors import ModelError
from tsfmscope.tasks.models.common import attention, checkpoint_folder, compression_block

if TYPE_CHECKING:
    import torch

    from tsfmscope.tasks.models.patchtst_fm.network import PatchTSTFMNetwork

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
# Largest whole number in a config: beyond any such model, and small enough to be tried.
LARGEST = 1 << 16
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
    for name in COUNTS:
        if type(full[name]) is not int or not 1 <= full[name] <= LARGEST:
            raise ValueError(
                f"{location} config: {name}: got {full[name]!r}, expected a whole number from 1 to {LARGEST}"
            )
    for name in ("dropout", "pretrain_mask_ratio"):
        if not isinstance(full[name], int | float) or not 0 <= full[name] < 1:
            raise ValueError(f"{location} config: {name}: got {full[name]!r}, expected a number from 0, below 1")
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


def write(folder: Path, network: PatchTSTFMNetwork, config: Mapping[str, Any]) -> None:
    """Write config.json and model.safetensors, under the released names."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    state = {PREFIX + name: value.detach().cpu() for name, value in _join(network).items()}
    save_file(
        {name: value.contiguous() for name, value in state.items()}, folder / "model.safetensors", {"format": "pt"}
    )
    named = {"model_type": MODEL_TYPE, "architectures": [ARCHITECTURE]}
    saved = {**named, **FIXED, **config, **compression_block.config_block(network)}
    (folder / "config.json").write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n")


def read(folder: Path) -> tuple[PatchTSTFMNetwork, dict[str, Any]]:
    """Read a released or saved checkpoint in float32, with its config; ModelError names what is wrong."""
    import torch

    from tsfmscope.tasks.models.patchtst_fm.network import PatchTSTFMNetwork, attentions

    config, block = _config(folder)
    with torch.device("meta"), checkpoint_folder.limit_parameters(folder):
        network = PatchTSTFMNetwork(config)
        compression_block.apply_block(network, attentions(network), block, str(folder / "config.json"))
    shapes = {name: value.shape for name, value in network.state_dict().items()}
    state = _split(checkpoint_folder.read_weights(folder), shapes)
    missing, unknown = sorted(set(shapes) - set(state)), sorted(set(state) - set(shapes))
    reshaped = sorted(name for name in set(shapes) & set(state) if state[name].shape != shapes[name])
    if missing or unknown or reshaped:
        raise ModelError(
            f"{folder}: weights do not fit config.json: missing {missing[:5]}, not known {unknown[:5]}, of another "
            f"shape {reshaped[:5]}; use the config that they were saved with"
        )
    # Copied out of the mapped file, to an alignment that is always the same.
    network.load_state_dict({name: value.float().clone() for name, value in state.items()}, assign=True)
    return network.eval(), config


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


def _split(state: Mapping[str, torch.Tensor], shapes: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return a file's weights by the network's names; shapes: those of the network."""
    found = {}
    for name, value in state.items():
        name = name.removeprefix(PREFIX)
        path, _, kind = name.rpartition(f".{JOINT}.")
        if not path or len(value) % len(JOINED):
            found[name] = value
            continue
        for part, rows in zip(JOINED, value.chunk(len(JOINED)), strict=True):
            own = f"{path}.{part}.{kind}"
            if own in shapes or kind != "bias" or bool(rows.any()):
                found[own] = rows
    return found


def _config(folder: Path) -> tuple[dict[str, Any], Any]:
    """Return the shape, and the `compression` block of a compressed model (else None)."""
    saved, path = checkpoint_folder.read_config(folder, NAME), folder / "config.json"
    checkpoint_folder.check_model_type(saved, folder, NAME, MODEL_TYPE)
    if wrong := {key: saved[key] for key, value in FIXED.items() if saved.get(key, value) != value}:
        expected = {key: FIXED[key] for key in wrong}
        raise ModelError(f"{path}: got {wrong}, expected {expected} as in r1; later versions are not supported")
    try:
        known = {key: value for key, value in saved.items() if key in (*REQUIRED, *DEFAULTS)}
        config = make_config(known, str(folder))
    except ValueError as error:
        raise ModelError(f"{error}; fetch or save the checkpoint again") from error
    levels = list(quantile_levels(config["num_quantile"]))
    if saved.get("quantile_levels", levels) != levels:
        raise ModelError(
            f"{path}: got quantile_levels {saved['quantile_levels']!s:.60}, expected those of num_quantile "
            f"{config['num_quantile']}; fetch or save the checkpoint again"
        )
    return config, saved.get(attention.BLOCK)
