"""Checkpoints of Time-MoE as the authors released them (Maple728/TimeMoE-50M, -200M)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field

from tsfmscope.models.common import checkpoint_folder, own_checkpoint
from tsfmscope.models.common.attention import AttentionLayer
from tsfmscope.models.common.own_checkpoint import Count, Counts, Release, SavedConfig

if TYPE_CHECKING:
    from tsfmscope.models.time_moe.network import TimeMoENetwork

NAME, MODEL_TYPE, ARCHITECTURE = "time-moe", "time_moe", "TimeMoeForPrediction"
# Values in every release, for which the network here is written.
FIXED = {
    "input_size": 1,
    "hidden_act": "silu",
    "attention_dropout": 0.0,
    "use_dense": False,
    "apply_aux_loss": True,
    "tie_word_embeddings": False,
}


class Config(SavedConfig):
    """Keys of a release, with the values of the 50M checkpoint's config.json as defaults."""

    hidden_size: Count
    intermediate_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    horizon_lengths: Annotated[
        Counts, BeforeValidator(lambda steps: [steps] if isinstance(steps, int) else list(steps))
    ] = Field([1, 8, 32, 64])
    num_experts: Count = 8
    num_experts_per_tok: Count = 2
    max_position_embeddings: Count = 4096
    rope_theta: Any = 10000
    rms_norm_eps: Any = 1e-6
    initializer_range: Any = 0.02
    router_aux_loss_factor: Any = 0.02

    def find_problem(self) -> str | None:
        """Return why a config cannot be used, or None."""
        horizons, width, heads = self.horizon_lengths, self.hidden_size, self.num_attention_heads
        if not horizons or horizons != sorted(set(horizons)):
            return f"horizon_lengths: got {horizons}, expected ascending numbers of steps"
        if width % (2 * heads):
            return f"hidden_size {width} gives {heads} heads no even width, as rotation pairs"
        if self.num_experts_per_tok > self.num_experts:
            return f"num_experts_per_tok: got {self.num_experts_per_tok} of num_experts"
        return None


def make_network(config: Mapping[str, Any]) -> TimeMoENetwork:
    """Return a network with weights drawn as in the release, from torch's generator."""
    from tsfmscope.models.time_moe.network import TimeMoENetwork

    return TimeMoENetwork(config).draw_weights(config["initializer_range"])


def write(folder: Path, network: TimeMoENetwork, config: Mapping[str, Any]) -> None:
    """Write config.json and model.safetensors, under the released names."""
    heads = {"num_key_value_heads": config["num_attention_heads"]}
    named = {"model_type": MODEL_TYPE, "architectures": [ARCHITECTURE]}
    own_checkpoint.write(folder, network, {**named, **FIXED, **heads, **config})


def read(folder: Path, attentions: Callable[[Any], Iterable[AttentionLayer]]) -> tuple[TimeMoENetwork, dict[str, Any]]:
    """Read a released or saved checkpoint in float32, with its config; ModelError names what is wrong."""
    saved = checkpoint_folder.read_config(folder, NAME)
    checkpoint_folder.check_model_type(saved, folder, NAME, MODEL_TYPE)
    fixed = FIXED | {"num_key_value_heads": saved.get("num_attention_heads")}
    return own_checkpoint.read(folder, saved, Release(Config, fixed, "every release"), make_network, attentions)
