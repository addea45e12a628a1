"""Checkpoints of Time-MoE as the authors released them (Maple728/TimeMoE-50M, -200M)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsfmscope.tasks.errors import ModelError
from tsfmscope.tasks.models.common import attention, checkpoint_folder, compression_block

if TYPE_CHECKING:
    from tsfmscope.tasks.models.time_moe.network import TimeMoENetwork

NAME, MODEL_TYPE, ARCHITECTURE = "time-moe", "time_moe", "TimeMoeForPrediction"
REQUIRED = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
# Values in the released 50M checkpoint's config.json.
DEFAULTS = {
    "horizon_lengths": (1, 8, 32, 64),
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 4096,
    "rope_theta": 10000,
    "rms_norm_eps": 1e-6,
    "initializer_range": 0.02,
    "router_aux_loss_factor": 0.02,
}
# Values in every release, for which the network here is written.
FIXED = {
    "input_size": 1,
    "hidden_act": "silu",
    "attention_dropout": 0.0,
    "use_dense": False,
    "apply_aux_loss": True,
    "tie_word_embeddings": False,
}
COUNTS = (*REQUIRED, "num_experts", "num_experts_per_tok", "max_position_embeddings")
# Largest whole number in a config: beyond any such model, and small enough to be tried.
LARGEST = 1 << 16


def make_config(config: Mapping[str, Any], location: str) -> dict[str, Any]:
    """Return the config with defaults filled in.

    ValueError names keys that are missing, unknown or of a wrong value.
    """
    full = checkpoint_folder.filled_config(config, REQUIRED, DEFAULTS, location)
    horizons = full["horizon_lengths"]
    full["horizon_lengths"] = horizons = [horizons] if isinstance(horizons, int) else list(horizons)
    for name, value in [
        *((name, full[name]) for name in COUNTS),
        *(("horizon_lengths", horizon) for horizon in horizons),
    ]:
        if type(value) is not int or not 1 <= value <= LARGEST:
            raise ValueError(f"{location} config: {name}: got {value!r}, expected a whole number from 1 to {LARGEST}")
    if not horizons or horizons != sorted(set(horizons)):
        raise ValueError(f"{location} config: horizon_lengths: got {horizons}, expected ascending numbers of steps")
    width, heads = full["hidden_size"], full["num_attention_heads"]
    if width % (2 * heads):
        raise ValueError(f"{location} config: hidden_size {width} gives {heads} heads no even width, as rotation pairs")
    if full["num_experts_per_tok"] > full["num_experts"]:
        raise ValueError(f"{location} config: num_experts_per_tok: got {full['num_experts_per_tok']} of num_experts")
    return full


def write(folder: Path, network: TimeMoENetwork, config: Mapping[str, Any]) -> None:
    """Write config.json and model.safetensors, under the released names."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    state = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    heads = {"num_key_value_heads": config["num_attention_heads"]}
    named = {"model_type": MODEL_TYPE, "architectures": [ARCHITECTURE]}
    saved = {**named, **FIXED, **heads, **config, **compression_block.config_block(network)}
    (folder / "config.json").write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n")


def read(folder: Path) -> tuple[TimeMoENetwork, dict[str, Any]]:
    """Read a released or saved checkpoint in float32, with its config; ModelError names what is wrong."""
    import torch

    from tsfmscope.tasks.models.time_moe.network import TimeMoENetwork, attentions

    config, block = _config(folder)
    state = checkpoint_folder.read_weights(folder)
    with torch.device("meta"), checkpoint_folder.limit_parameters(folder):
        network = TimeMoENetwork(config)
        compression_block.apply_block(network, attentions(network), block, str(folder / "config.json"))
    shapes = {name: value.shape for name, value in network.state_dict().items()}
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


def _config(folder: Path) -> tuple[dict[str, Any], Any]:
    """Return the shape, and the `compression` block of a compressed model (else None)."""
    saved, path = checkpoint_folder.read_config(folder, NAME), folder / "config.json"
    checkpoint_folder.check_model_type(saved, folder, NAME, MODEL_TYPE)
    fixed = FIXED | {"num_key_value_heads": saved.get("num_attention_heads")}
    if wrong := {key: saved[key] for key, value in fixed.items() if saved.get(key, value) != value}:
        raise ModelError(f"{path}: got {wrong}, expected { ({key: fixed[key] for key in wrong}) } as released")
    try:
        known = {key: value for key, value in saved.items() if key in (*REQUIRED, *DEFAULTS)}
        return make_config(known, str(folder)), saved.get(attention.BLOCK)
    except ValueError as error:
        raise ModelError(f"{error}; fetch or save the checkpoint again") from error
