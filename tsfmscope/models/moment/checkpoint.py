"""Checkpoints of MOMENT as momentfm saves them (AutonLab/MOMENT-1-small, -base, -large)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsfmscope.errors import ModelError
from tsfmscope.models.common import attention, checkpoint_folder, own_checkpoint
from tsfmscope.models.moment.keys import REQUIRED, T5_DEFAULTS, T5_KEYS, UNUSED
from tsfmscope.models.t5.shared import attentions

if TYPE_CHECKING:
    from tsfmscope.models.moment.network import MomentNetwork

NAME = "moment"
STACKS = ("encoder",)
# Key of config.json that contains the shape of the encoder.
BLOCK = "t5_config"
# Defaults of the package; its mask_ratio is 0 outside training, and here that of the pre-training.
DEFAULTS = {
    **T5_DEFAULTS,
    "add_positional_embedding": True,
    "head_dropout": 0.1,
    "mask_ratio": 0.3,
    "patch_dropout": 0.1,
    "value_embedding_bias": False,
}
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
COUNTS = (*REQUIRED, "relative_attention_max_distance", "relative_attention_num_buckets")
SHARES = ("dropout_rate", "head_dropout", "mask_ratio", "patch_dropout")
SWITCHES = ("add_positional_embedding", "value_embedding_bias")
ACTIVATIONS = ("relu", "gelu", "gated-gelu", "gated-silu")


def make_config(config: Mapping[str, Any], location: str) -> dict[str, Any]:
    """Return the config with defaults filled in.

    ValueError names keys that are missing, unknown or of a wrong value.
    """
    full = checkpoint_folder.filled_config(config, REQUIRED, DEFAULTS, location)
    own_checkpoint.check_counts(full, COUNTS, location)
    own_checkpoint.check_shares(full, SHARES, location)
    own_checkpoint.check_switches(full, SWITCHES, location)
    own_checkpoint.check_positive(full, ("initializer_factor", "layer_norm_epsilon"), location)
    if wrong := _find_problem(full):
        raise ValueError(f"{location} config: {wrong}")
    return full


def _find_problem(full: Mapping[str, Any]) -> str | None:
    """Return why a config cannot be used, or None."""
    if full["feed_forward_proj"] not in ACTIVATIONS:
        return f"got feed_forward_proj {full['feed_forward_proj']!r}, expected one of {list(ACTIVATIONS)}"
    steps, size, buckets = (full[name] for name in ("seq_len", "patch_len", "relative_attention_num_buckets"))
    if steps % size or steps < 2 * size:
        return f"got seq_len {steps}, expected a multiple of patch_len {size} from {2 * size}"
    if full["add_positional_embedding"] and full["d_model"] % 2:
        return f"got d_model {full['d_model']}, expected an even number: positions are pairs of sine and cosine"
    # T5 counts half of the buckets in each direction, and half of these one by one.
    if buckets % 4 or full["relative_attention_max_distance"] <= buckets // 4:
        return (
            f"got relative_attention_num_buckets {buckets} and relative_attention_max_distance "
            f"{full['relative_attention_max_distance']}, expected a multiple of 4 and more than a quarter of it"
        )
    return None


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


def read(folder: Path) -> tuple[MomentNetwork, dict[str, Any]]:
    """Read a released or saved checkpoint in float32, with its config; ModelError names what is wrong."""
    config, block = _config(folder)
    network = own_checkpoint.make_empty(
        lambda: make_network(config), lambda network: attentions(network, STACKS), block, folder
    )
    state = {name: value for name, value in checkpoint_folder.read_weights(folder).items() if name not in UNUSED}
    return own_checkpoint.fill(network, state, folder), config


def _config(folder: Path) -> tuple[dict[str, Any], Any]:
    """Return the shape, and the `compression` block of a compressed model (else None)."""
    saved, path = checkpoint_folder.read_config(folder, NAME), folder / "config.json"
    if not isinstance(encoder := saved.get(BLOCK), dict):
        problem = f"{path}: got {BLOCK} {encoder!r:.60}, expected an object"
        raise ModelError(checkpoint_folder.of_other_family(problem, NAME))
    own_checkpoint.check_fixed(saved, FIXED, folder, "MOMENT-1")
    expected = {"d_model": encoder.get("d_model"), "patch_stride_len": saved.get("patch_len")}
    for key, value in expected.items():
        if saved.get(key) not in (None, value):
            raise ModelError(
                f"{path}: got {key} {saved[key]!r}, expected {value!r} or null; fetch the checkpoint again"
            )
    shape = {key: value for key, value in encoder.items() if key in T5_KEYS}
    shape |= {key: value for key, value in saved.items() if key in (*REQUIRED, *DEFAULTS) and key not in T5_KEYS}
    return own_checkpoint.check_saved(make_config, shape, folder), saved.get(attention.BLOCK)
