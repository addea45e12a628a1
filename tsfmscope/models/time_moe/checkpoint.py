"""Checkpoints of Time-MoE as the authors released them (Maple728/TimeMoE-50M, -200M)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsfmscope.models.common import attention, checkpoint_folder, own_checkpoint

if TYPE_CHECKING:
    from tsfmscope.models.time_moe.network import TimeMoENetwork

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


def make_config(config: Mapping[str, Any], location: str) -> dict[str, Any]:
    """Return the config with defaults filled in.

    ValueError names keys that are missing, unknown or of a wrong value.
    """
    full = checkpoint_folder.filled_config(config, REQUIRED, DEFAULTS, location)
    horizons = full["horizon_lengths"]
    full["horizon_lengths"] = horizons = [horizons] if isinstance(horizons, int) else list(horizons)
    own_checkpoint.check_counts(full, COUNTS, location)
    for steps in horizons:
        own_checkpoint.check_counts({"horizon_lengths": steps}, ("horizon_lengths",), location)
    if not horizons or horizons != sorted(set(horizons)):
        raise ValueError(f"{location} config: horizon_lengths: got {horizons}, expected ascending numbers of steps")
    width, heads = full["hidden_size"], full["num_attention_heads"]
    if width % (2 * heads):
        raise ValueError(f"{location} config: hidden_size {width} gives {heads} heads no even width, as rotation pairs")
    if full["num_experts_per_tok"] > full["num_experts"]:
        raise ValueError(f"{location} config: num_experts_per_tok: got {full['num_experts_per_tok']} of num_experts")
    return full


def make_network(config: Mapping[str, Any]) -> TimeMoENetwork:
    """Return a network with weights drawn as in the release, from torch's generator."""
    from tsfmscope.models.time_moe.network import TimeMoENetwork

    return TimeMoENetwork(config).draw_weights(config["initializer_range"])


def write(folder: Path, network: TimeMoENetwork, config: Mapping[str, Any]) -> None:
    """Write config.json and model.safetensors, under the released names."""
    heads = {"num_key_value_heads": config["num_attention_heads"]}
    named = {"model_type": MODEL_TYPE, "architectures": [ARCHITECTURE]}
    own_checkpoint.write(folder, network, {**named, **FIXED, **heads, **config})


def read(folder: Path) -> tuple[TimeMoENetwork, dict[str, Any]]:
    """Read a released or saved checkpoint in float32, with its config; ModelError names what is wrong."""
    from tsfmscope.models.time_moe.network import attentions

    config, block = _config(folder)
    network = own_checkpoint.make_empty(lambda: make_network(config), attentions, block, folder)
    return own_checkpoint.fill(network, checkpoint_folder.read_weights(folder), folder), config


def _config(folder: Path) -> tuple[dict[str, Any], Any]:
    """Return the shape, and the `compression` block of a compressed model (else None)."""
    saved = checkpoint_folder.read_config(folder, NAME)
    checkpoint_folder.check_model_type(saved, folder, NAME, MODEL_TYPE)
    fixed = FIXED | {"num_key_value_heads": saved.get("num_attention_heads")}
    own_checkpoint.check_fixed(saved, fixed, folder, "every release")
    known = {key: value for key, value in saved.items() if key in (*REQUIRED, *DEFAULTS)}
    return own_checkpoint.check_saved(make_config, known, folder), saved.get(attention.BLOCK)
