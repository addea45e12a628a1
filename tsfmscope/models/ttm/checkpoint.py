"""Checkpoints of TTM as IBM released them (ibm-granite/granite-timeseries-ttm-r1, -r2)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsfmscope.errors import ModelError
from tsfmscope.models.common import attention, checkpoint_folder, own_checkpoint

if TYPE_CHECKING:
    from tsfmscope.models.ttm.network import TTMNetwork

NAME, MODEL_TYPE, ARCHITECTURE = "ttm", "tinytimemixer", "TinyTimeMixerForPrediction"
REQUIRED = ("context_length", "prediction_length", "patch_length", "d_model", "num_layers")
# Defaults of granite-tsfm's TinyTimeMixerConfig.
DEFAULTS = {
    "patch_stride": 8,
    "expansion_factor": 2,
    "adaptive_patching_levels": 0,
    "gated_attn": True,
    "dropout": 0.2,
    "norm_eps": 1e-5,
    "use_decoder": True,
    "decoder_d_model": 8,
    "decoder_num_layers": 8,
    "decoder_adaptive_patching_levels": 0,
    "decoder_raw_residual": False,
    "head_dropout": 0.2,
    "resolution_prefix_tuning": False,
    "frequency_token_vocab_size": 5,
    "prediction_filter_length": None,
    "loss": "mse",
    "quantile": 0.5,
    "huber_delta": 1,
}
# Settings of R1 and R2, for which the network here is written: channels that share all weights and are not mixed, no
# attention, none of the additions of R3. A config.json that lacks one has this value.
FIXED: dict[str, Any] = {
    "mode": "common_channel",
    "decoder_mode": "common_channel",
    "norm_mlp": "LayerNorm",
    "self_attn": False,
    "use_positional_encoding": False,
    "enable_forecast_channel_mixing": False,
    "prediction_channel_indices": None,
    "exogenous_channel_indices": None,
    "categorical_vocab_size_list": None,
    "masked_context_length": None,
    "multi_scale": False,
    "register_tokens": 0,
    "fft_length": 0,
    "multi_quantile_head": False,
    "decompose": False,
    "light_mode": False,
    "enable_base_norm_always": False,
}
# Values of `scaling` that mean mean and standard deviation in the package.
SCALING = ("std", True)
LOSSES = ("mse", "mae", "huber", "pinball")
COUNTS = (
    *REQUIRED,
    *("patch_stride", "expansion_factor", "decoder_d_model", "decoder_num_layers", "frequency_token_vocab_size"),
)
LEVELS = {"adaptive_patching_levels": "d_model", "decoder_adaptive_patching_levels": "decoder_d_model"}
SWITCHES = ("gated_attn", "use_decoder", "decoder_raw_residual", "resolution_prefix_tuning")
SHARES = ("dropout", "head_dropout")
MOST_LEVELS = 16


def make_config(config: Mapping[str, Any], location: str) -> dict[str, Any]:
    """Return the config with defaults filled in.

    ValueError names keys that are missing, unknown or of a wrong value.
    """
    full = checkpoint_folder.filled_config(config, REQUIRED, DEFAULTS, location)
    own_checkpoint.check_counts(full, COUNTS, location)
    own_checkpoint.check_switches(full, SWITCHES, location)
    own_checkpoint.check_shares(full, SHARES, location)
    if wrong := _find_problem(full):
        raise ValueError(f"{location} config: {wrong}")
    return full


def _find_problem(full: Mapping[str, Any]) -> str | None:
    """Return why a config cannot be used, or None."""
    from tsfmscope.models.ttm.network import level_factor

    for name, key in LEVELS.items():
        if type(value := full[name]) is not int or not 0 <= value <= MOST_LEVELS:
            return f"got {name} {value!r}, expected a whole number from 0 to {MOST_LEVELS}"
        if wrong := [level for level in range(value) if full[key] % level_factor(full[key], level)]:
            return f"got {name} {value} and {key} {full[key]}, expected a multiple of {2 ** wrong[0]}"
    if (stride := full["patch_stride"]) != full["patch_length"]:
        return f"got patch_stride {stride}, expected patch_length {full['patch_length']}: patches do not overlap"
    if full["context_length"] <= full["patch_length"]:
        return (
            f"got context_length {full['context_length']} and patch_length {full['patch_length']}, "
            "expected a context longer than a patch"
        )
    kept = full["prediction_filter_length"]
    if kept is not None and (type(kept) is not int or not 1 <= kept <= full["prediction_length"]):
        return f"got prediction_filter_length {kept!r}, expected null or 1 to prediction_length"
    if full["loss"] not in LOSSES:
        return f"got loss {full['loss']!r}, expected one of {list(LOSSES)}"
    return None


def make_network(config: Mapping[str, Any]) -> TTMNetwork:
    """Return a network with weights drawn as torch draws those of a Linear, from its generator."""
    from tsfmscope.models.ttm.network import TTMNetwork

    return TTMNetwork(config)


def write(folder: Path, network: TTMNetwork, config: Mapping[str, Any]) -> None:
    """Write config.json and model.safetensors, under the released names."""
    named = {"model_type": MODEL_TYPE, "architectures": [ARCHITECTURE], "num_input_channels": 1, "scaling": SCALING[0]}
    own_checkpoint.write(folder, network, {**named, **config})


def read(folder: Path) -> tuple[TTMNetwork, dict[str, Any]]:
    """Read a released or saved checkpoint in float32, with its config; ModelError names what is wrong.

    A checkpoint of several channels that share all weights is read as the model of one channel that it is.
    """
    config, block = _config(folder)
    network = own_checkpoint.make_empty(lambda: make_network(config), lambda network: (), block, folder)
    return own_checkpoint.fill(network, checkpoint_folder.read_weights(folder), folder), config


def _config(folder: Path) -> tuple[dict[str, Any], Any]:
    """Return the shape, and the `compression` block of a compressed model (else None)."""
    saved, path = checkpoint_folder.read_config(folder, NAME), folder / "config.json"
    checkpoint_folder.check_model_type(saved, folder, NAME, MODEL_TYPE)
    if (named := saved.get("architectures", [ARCHITECTURE])) != [ARCHITECTURE]:
        raise ModelError(f"{path}: got architectures {named}, expected {[ARCHITECTURE]}; only forecasters are read")
    own_checkpoint.check_fixed(saved, FIXED, folder, "TTM R1 and R2")
    if (scaling := saved.get("scaling", SCALING[0])) not in SCALING:
        raise ModelError(f"{path}: got scaling {scaling!r}, expected 'std'; other scalers are not supported")
    known = {key: value for key, value in saved.items() if key in (*REQUIRED, *DEFAULTS)}
    return own_checkpoint.check_saved(make_config, known, folder), saved.get(attention.BLOCK)
