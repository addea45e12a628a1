"""Checkpoints of TTM as IBM released them (ibm-granite/granite-timeseries-ttm-r1, -r2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsfmscope.errors import ModelError
from tsfmscope.models.common import checkpoint_folder, own_checkpoint
from tsfmscope.models.common.attention import AttentionLayer
from tsfmscope.models.common.own_checkpoint import Count, Release, SavedConfig, Share, Switch

if TYPE_CHECKING:
    from tsfmscope.models.ttm.network import TTMNetwork

NAME, MODEL_TYPE, ARCHITECTURE = "ttm", "tinytimemixer", "TinyTimeMixerForPrediction"
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
LEVELS = {"adaptive_patching_levels": "d_model", "decoder_adaptive_patching_levels": "decoder_d_model"}
MOST_LEVELS = 16


class Config(SavedConfig):
    """Keys of granite-tsfm's TinyTimeMixerConfig with its defaults."""

    context_length: Count
    prediction_length: Count
    patch_length: Count
    d_model: Count
    num_layers: Count
    patch_stride: Count = 8
    expansion_factor: Count = 2
    adaptive_patching_levels: Any = 0
    gated_attn: Switch = True
    dropout: Share = 0.2
    norm_eps: Any = 1e-5
    use_decoder: Switch = True
    decoder_d_model: Count = 8
    decoder_num_layers: Count = 8
    decoder_adaptive_patching_levels: Any = 0
    decoder_raw_residual: Switch = False
    head_dropout: Share = 0.2
    resolution_prefix_tuning: Switch = False
    frequency_token_vocab_size: Count = 5
    prediction_filter_length: Any = None
    loss: Any = "mse"
    quantile: Any = 0.5
    huber_delta: Any = 1

    def find_problem(self) -> str | None:
        """Return why a config cannot be used, or None."""
        from tsfmscope.models.ttm.network import level_factor

        for name, key in LEVELS.items():
            value, width = getattr(self, name), getattr(self, key)
            if type(value) is not int or not 0 <= value <= MOST_LEVELS:
                return f"got {name} {value!r}, expected a whole number from 0 to {MOST_LEVELS}"
            if wrong := [level for level in range(value) if width % level_factor(width, level)]:
                return f"got {name} {value} and {key} {width}, expected a multiple of {2 ** wrong[0]}"
        if self.patch_stride != self.patch_length:
            return (
                f"got patch_stride {self.patch_stride}, expected patch_length {self.patch_length}: "
                "patches do not overlap"
            )
        if self.context_length <= self.patch_length:
            return (
                f"got context_length {self.context_length} and patch_length {self.patch_length}, "
                "expected a context longer than a patch"
            )
        kept = self.prediction_filter_length
        if kept is not None and (type(kept) is not int or not 1 <= kept <= self.prediction_length):
            return f"got prediction_filter_length {kept!r}, expected null or 1 to prediction_length"
        if self.loss not in LOSSES:
            return f"got loss {self.loss!r}, expected one of {list(LOSSES)}"
        return None


RELEASE = Release(Config, FIXED, "TTM R1 and R2")


def make_network(config: Mapping[str, Any]) -> TTMNetwork:
    """Return a network with weights drawn as torch draws those of a Linear, from its generator."""
    from tsfmscope.models.ttm.network import TTMNetwork

    return TTMNetwork(config)


def write(folder: Path, network: TTMNetwork, config: Mapping[str, Any]) -> None:
    """Write config.json and model.safetensors, under the released names."""
    named = {"model_type": MODEL_TYPE, "architectures": [ARCHITECTURE], "num_input_channels": 1, "scaling": SCALING[0]}
    own_checkpoint.write(folder, network, {**named, **config})


def read(folder: Path, attentions: Callable[[Any], Iterable[AttentionLayer]]) -> tuple[TTMNetwork, dict[str, Any]]:
    """Read a released or saved checkpoint in float32, with its config; ModelError names what is wrong.

    A checkpoint of several channels that share all weights is read as the model of one channel that it is.
    """
    saved, path = checkpoint_folder.read_config(folder, NAME), folder / "config.json"
    checkpoint_folder.check_model_type(saved, folder, NAME, MODEL_TYPE)
    if (named := saved.get("architectures", [ARCHITECTURE])) != [ARCHITECTURE]:
        raise ModelError(f"{path}: got architectures {named}, expected {[ARCHITECTURE]}; only forecasters are read")
    if (scaling := saved.get("scaling", SCALING[0])) not in SCALING:
        raise ModelError(f"{path}: got scaling {scaling!r}, expected 'std'; other scalers are not supported")
    return own_checkpoint.read(folder, saved, RELEASE, make_network, attentions)
