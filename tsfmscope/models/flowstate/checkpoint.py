"""Checkpoints of FlowState as granite-tsfm saves them (ibm-granite/granite-timeseries-flowstate-r1)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsfmscope.errors import ModelError
from tsfmscope.models.common import attention, checkpoint_folder, own_checkpoint
from tsfmscope.models.common.checkpoint_folder import filled_config

if TYPE_CHECKING:
    from tsfmscope.models.flowstate.network import FlowStateNetwork

NAME, MODEL_TYPE = "flowstate", "flowstate"
# The class that `save` names; the release r1 names the one within it.
ARCHITECTURES = ("FlowStateForPrediction", "FlowStateModel")
# Prefix of the names of all weights in FlowStateForPrediction.
PREFIX = "model."
REQUIRED = (
    *("context_length", "embedding_feature_dim", "encoder_num_layers", "encoder_state_dim"),
    *("encoder_num_hippo_blocks", "decoder_patch_len", "decoder_dim"),
)
# Defaults of FlowStateConfig; `base_season` is ours.
DEFAULTS: dict[str, Any] = {
    "scale_factor": 1.0,
    "base_season": None,
    "mlp_type": "gated",
    "out_gating": False,
    "decoder_type": "legs",
    "quantiles": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9],
}
# As in r1 and r1.1; a config.json without it has this value.
FIXED = {"with_missing": True}
CHOICES = {"mlp_type": ("gated", "transformer"), "decoder_type": ("legs", "hlegs", "four")}


def make_config(config: Mapping[str, Any], location: str) -> dict[str, Any]:
    """Return the config with defaults filled in.

    ValueError names keys that are missing, unknown or of a wrong value.
    """
    full = filled_config(config, REQUIRED, DEFAULTS, location)
    own_checkpoint.check_counts(full, REQUIRED, location)
    own_checkpoint.check_positive(full, ("scale_factor",), location)
    own_checkpoint.check_switches(full, ("out_gating",), location)
    if full["base_season"] is not None:
        own_checkpoint.check_positive(full, ("base_season",), location)
    if wrong := _find_problem(full):
        raise ValueError(f"{location} config: {wrong}")
    return full


def _find_problem(full: Mapping[str, Any]) -> str | None:
    """Return why a config cannot be used, or None."""
    for name, allowed in CHOICES.items():
        if full[name] not in allowed:
            return f"{name}: got {full[name]!r}, expected one of {list(allowed)}"
    if (size := full["encoder_state_dim"]) % (blocks := full["encoder_num_hippo_blocks"]):
        return f"encoder_state_dim: got {size}, expected a multiple of encoder_num_hippo_blocks {blocks}"
    if full["decoder_type"] == "four" and full["decoder_dim"] % 2 == 0:
        return f"decoder_dim: got {full['decoder_dim']}, expected an odd number, since decoder_type is 'four'"
    quantiles = full["quantiles"]
    if not isinstance(quantiles, list) or not quantiles or not all(type(level) is float for level in quantiles):
        return f"quantiles: got {quantiles!r}, expected a list of numbers between 0 and 1"
    if quantiles != sorted(set(quantiles)) or not 0 < quantiles[0] <= quantiles[-1] < 1:
        return f"quantiles: got {quantiles}, expected ascending numbers between 0 and 1"
    # A season has at least two steps, which is the largest factor.
    largest = max(full["scale_factor"], (full["base_season"] or 0) / 2)
    if largest > (limit := min(full["decoder_patch_len"], full["context_length"] / 2)):
        return (
            f"scale_factor and base_season: got a scale factor of {largest:g} for the shortest season, expected at "
            f"most {limit:g}, so that a step is forecast (decoder_patch_len) and two are read (context_length)"
        )
    return None


def make_network(config: Mapping[str, Any]) -> FlowStateNetwork:
    """Return a network with weights drawn as the package draws them, from torch's generator."""
    from tsfmscope.models.flowstate.network import FlowStateNetwork

    return FlowStateNetwork(config).initialize()


def write(folder: Path, network: FlowStateNetwork, config: Mapping[str, Any]) -> None:
    """Write config.json and model.safetensors, which FlowStateForPrediction.from_pretrained reads."""
    named = {"model_type": MODEL_TYPE, "architectures": [ARCHITECTURES[0]], "min_context": config["context_length"]}
    own_checkpoint.write(folder, network, {**named, **FIXED, **config}, network.state_dict(prefix=PREFIX))


def read(folder: Path) -> tuple[FlowStateNetwork, dict[str, Any]]:
    """Read a released or saved checkpoint in float32, with its config; ModelError names what is wrong."""
    from tsfmscope.models.flowstate.network import FlowStateNetwork

    # The releases have a prediction_length of -1, for one patch; it is not read here.
    saved = checkpoint_folder.read_config(folder, NAME, frozenset({"prediction_length"}))
    checkpoint_folder.check_model_type(saved, folder, NAME, MODEL_TYPE)
    if (named := saved.get("architectures") or [ARCHITECTURES[0]])[0] not in ARCHITECTURES:
        raise ModelError(
            f"{folder / 'config.json'}: got architectures {named}, expected one of {list(ARCHITECTURES)}; "
            "other classes are not read"
        )
    own_checkpoint.check_fixed(saved, FIXED, folder, "r1 and r1.1")
    known = {key: value for key, value in saved.items() if key in (*REQUIRED, *DEFAULTS)}
    config = own_checkpoint.check_saved(make_config, known, folder)
    block = saved.get(attention.BLOCK)
    network = own_checkpoint.make_empty(lambda: FlowStateNetwork(config), lambda network: (), block, folder)
    weights = own_checkpoint.without_prefix(checkpoint_folder.read_weights(folder), PREFIX, folder)
    return own_checkpoint.fill(network, weights, folder), config
