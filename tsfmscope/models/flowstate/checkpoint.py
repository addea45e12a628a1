"""Checkpoints of FlowState as granite-tsfm saves them (ibm-granite/granite-timeseries-flowstate-r1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from tsfmscope.errors import ModelError
from tsfmscope.models.common import checkpoint_folder, own_checkpoint
from tsfmscope.models.common.attention import AttentionLayer
from tsfmscope.models.common.own_checkpoint import (
    Count,
    Positive,
    PositiveOrNone,
    Release,
    SavedConfig,
    Switch,
    one_of,
)

if TYPE_CHECKING:
    from tsfmscope.models.flowstate.network import FlowStateNetwork

NAME, MODEL_TYPE = "flowstate", "flowstate"
# The class that `save` names; the release r1 names the one within it.
ARCHITECTURES = ("FlowStateForPrediction", "FlowStateModel")
# Prefix of the names of all weights in FlowStateForPrediction.
PREFIX = "model."
FIXED = {"with_missing": True}


class Config(SavedConfig):
    """Keys of FlowStateConfig with its defaults."""

    context_length: Count
    embedding_feature_dim: Count
    encoder_num_layers: Count
    encoder_state_dim: Count
    encoder_num_hippo_blocks: Count
    decoder_patch_len: Count
    decoder_dim: Count
    scale_factor: Positive = 1.0
    # Our own key.
    base_season: PositiveOrNone = None
    mlp_type: Annotated[str, one_of("gated", "transformer")] = "gated"
    out_gating: Switch = False
    decoder_type: Annotated[str, one_of("legs", "hlegs", "four")] = "legs"
    quantiles: Any = Field([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])

    def find_problem(self) -> str | None:
        """Return why a config cannot be used, or None."""
        if self.encoder_state_dim % self.encoder_num_hippo_blocks:
            return (
                f"encoder_state_dim: got {self.encoder_state_dim}, expected a multiple of encoder_num_hippo_blocks "
                f"{self.encoder_num_hippo_blocks}"
            )
        if self.decoder_type == "four" and self.decoder_dim % 2 == 0:
            return f"decoder_dim: got {self.decoder_dim}, expected an odd number, since decoder_type is 'four'"
        quantiles = self.quantiles
        if not isinstance(quantiles, list) or not quantiles or not all(type(level) is float for level in quantiles):
            return f"quantiles: got {quantiles!r}, expected a list of numbers between 0 and 1"
        if quantiles != sorted(set(quantiles)) or not 0 < quantiles[0] <= quantiles[-1] < 1:
            return f"quantiles: got {quantiles}, expected ascending numbers between 0 and 1"
        # A season has at least two steps, which is the largest factor.
        largest = max(self.scale_factor, (self.base_season or 0) / 2)
        if largest > (limit := min(self.decoder_patch_len, self.context_length / 2)):
            return (
                f"scale_factor and base_season: got a scale factor of {largest:g} for the shortest season, expected at "
                f"most {limit:g}, so that a step is forecast (decoder_patch_len) and two are read (context_length)"
            )
        return None


# As in r1 and r1.1; a config.json without a key has this value.
RELEASE = Release(Config, FIXED, "r1 and r1.1", PREFIX)


def make_network(config: Mapping[str, Any]) -> FlowStateNetwork:
    """Return a network with weights drawn as the package draws them, from torch's generator."""
    from tsfmscope.models.flowstate.network import FlowStateNetwork

    return FlowStateNetwork(config).initialize()


def write(folder: Path, network: FlowStateNetwork, config: Mapping[str, Any]) -> None:
    """Write config.json and model.safetensors, which FlowStateForPrediction.from_pretrained reads."""
    named = {"model_type": MODEL_TYPE, "architectures": [ARCHITECTURES[0]], "min_context": config["context_length"]}
    own_checkpoint.write(folder, network, {**named, **FIXED, **config}, network.state_dict(prefix=PREFIX))


def read(
    folder: Path, attentions: Callable[[Any], Iterable[AttentionLayer]]
) -> tuple[FlowStateNetwork, dict[str, Any]]:
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
    return own_checkpoint.read(folder, saved, RELEASE, FlowStateNetwork, attentions)
