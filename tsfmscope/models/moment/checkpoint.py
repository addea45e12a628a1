"""Checkpoints of MOMENT as momentfm saves them (AutonLab/MOMENT-1-small, -base, -large)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsfmscope.errors import ModelError
from tsfmscope.models.common import checkpoint_folder, own_checkpoint
from tsfmscope.models.common.attention import AttentionLayer
from tsfmscope.models.common.own_checkpoint import Count, Positive, Release, SavedConfig, Share, Switch
from tsfmscope.models.moment.keys import T5_KEYS, UNUSED

if TYPE_CHECKING:
    from tsfmscope.models.moment.network import MomentNetwork

NAME = "moment"
# Key of config.json that contains the shape of the encoder.
BLOCK = "t5_config"
# Values for which the network here is written: of the releases, and of none that was fine-tuned with another head.
FIXED = {"task_name": "reconstruction", "transformer_type": "encoder_only", "revin_affine": False}
# The rest of FLAN-T5's config, which the package's encoder does not read or needs for its embedding of words.
T5_REST = {
    "architectures": ["T5ForConditionalGeneration"],
    "decoder_start_token_id": 0,
    "eos_token_id": 1,
    "is_encoder_decoder": True,
    "model_type": "t5",
    "n_positions": 512,
    "output_past": True,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
    "use_cache": True,
    "vocab_size": 32128,
}
ACTIVATIONS = ("relu", "gelu", "gated-gelu", "gated-silu")


class Config(SavedConfig):
    """Keys of a release. Defaults of the encoder are those of the releases (FLAN-T5's), others those of the package."""

    seq_len: Count
    patch_len: Count
    d_model: Count
    d_ff: Count
    d_kv: Count
    num_heads: Count
    num_layers: Count
    dropout_rate: Share = 0.1
    feed_forward_proj: Any = "gated-gelu"
    initializer_factor: Positive = 1.0
    layer_norm_epsilon: Positive = 1e-6
    relative_attention_max_distance: Count = 128
    relative_attention_num_buckets: Count = 32
    add_positional_embedding: Switch = True
    head_dropout: Share = 0.1
    # The package's is 0 outside training; this is that of the pre-training.
    mask_ratio: Share = 0.3
    patch_dropout: Share = 0.1
    value_embedding_bias: Switch = False

    def find_problem(self) -> str | None:
        """Return why a config cannot be used, or None."""
        if self.feed_forward_proj not in ACTIVATIONS:
            return f"got feed_forward_proj {self.feed_forward_proj!r}, expected one of {list(ACTIVATIONS)}"
        steps, size, buckets = self.seq_len, self.patch_len, self.relative_attention_num_buckets
        if steps % size or steps < 2 * size:
            return f"got seq_len {steps}, expected a multiple of patch_len {size} from {2 * size}"
        if self.add_positional_embedding and self.d_model % 2:
            return f"got d_model {self.d_model}, expected an even number: positions are pairs of sine and cosine"
        # T5 counts half of the buckets in each direction, and half of these one by one.
        if buckets % 4 or self.relative_attention_max_distance <= buckets // 4:
            return (
                f"got relative_attention_num_buckets {buckets} and relative_attention_max_distance "
                f"{self.relative_attention_max_distance}, expected a multiple of 4 and more than a quarter of it"
            )
        return None


RELEASE = Release(Config, FIXED, "MOMENT-1")


def make_network(config: Mapping[str, Any]) -> MomentNetwork:
    """Return a network with weights drawn as in the package, from torch's generator."""
    from tsfmscope.models.moment.network import MomentNetwork

    return MomentNetwork(config)


def write(folder: Path, network: MomentNetwork, config: Mapping[str, Any]) -> None:
    """Write config.json and model.safetensors, which MOMENTPipeline.from_pretrained reads."""
    own_checkpoint.write(folder, network, saved_config(config))


def saved_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config.json of a config, with the keys that momentfm reads."""
    encoder = {key: config[key] for key in T5_KEYS}
    outer = {key: value for key, value in config.items() if key not in T5_KEYS}
    return {
        **FIXED,
        **outer,
        "d_model": config["d_model"],
        "model_name": "MOMENT",
        "patch_stride_len": config["patch_len"],
        # Needed by the package, which writes the first into its log and calls a deprecated method unless the second.
        "transformer_backbone": "t5",
        "enable_gradient_checkpointing": False,
        BLOCK: {**T5_REST, **encoder, "num_decoder_layers": config["num_layers"]},
    }


def read(folder: Path, attentions: Callable[[Any], Iterable[AttentionLayer]]) -> tuple[MomentNetwork, dict[str, Any]]:
    """Read a released or saved checkpoint in float32, with its config; ModelError names what is wrong."""
    saved, path = checkpoint_folder.read_config(folder, NAME), folder / "config.json"
    if not isinstance(encoder := saved.get(BLOCK), dict):
        problem = f"{path}: got {BLOCK} {encoder!r:.60}, expected an object"
        raise ModelError(checkpoint_folder.of_other_family(problem, NAME))
    expected = {"d_model": encoder.get("d_model"), "patch_stride_len": saved.get("patch_len")}
    for key, value in expected.items():
        if saved.get(key) not in (None, value):
            raise ModelError(
                f"{path}: got {key} {saved[key]!r}, expected {value!r} or null; fetch the checkpoint again"
            )
    outer = {key: value for key, value in saved.items() if key not in T5_KEYS}
    shape = {**outer, **{key: value for key, value in encoder.items() if key in T5_KEYS}}

    def rename(weights: dict[str, Any], network: Any) -> dict[str, Any]:
        return {name: value for name, value in weights.items() if name not in UNUSED}

    return own_checkpoint.read(folder, shape, RELEASE, make_network, attentions, rename)
