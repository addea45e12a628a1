"""Checkpoints of MOMENT as momentfm saves them (AutonLab/MOMENT-1-small, -base, -large)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsfmscope.tasks.errors import ModelError
from tsfmscope.tasks.models.common import attention, checkpoint_folder, compression_block
from tsfmscope.tasks.models.moment.keys import REQUIRED, T5_DEFAULTS, T5_KEYS
from tsfmscope.tasks.models.t5.shared import attentions

if TYPE_CHECKING:
    from tsfmscope.tasks.models.moment.network import MomentNetwork

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
# Tensors of released files that are left out: an embedding of words that nothing reads, and sine positions.
UNUSED = ("encoder.embed_tokens.weight", "patch_embedding.position_embedding.pe")
COUNTS = (*REQUIRED, "relative_attention_max_distance", "relative_attention_num_buckets")
SHARES = ("dropout_rate", "head_dropout", "mask_ratio", "patch_dropout")
SWITCHES = ("add_positional_embedding", "value_embedding_bias")
ACTIVATIONS = ("relu", "gelu", "gated-gelu", "gated-silu")
# Largest whole number in a config: beyond any such model, and small enough to be tried.
LARGEST = 1 << 16


def make_config(config: Mapping[str, Any], location: str) -> dict[str, Any]:
    """Return the config with defaults filled in.

    ValueError names keys that are missing, unknown or of a wrong value.
    """
    full = checkpoint_folder.filled_config(config, REQUIRED, DEFAULTS, location)
    if wrong := _find_problem(full):
        raise ValueError(f"{location} config: {wrong}")
    return full


def _find_problem(full: Mapping[str, Any]) -> str | None:
    """Return why a config cannot be used, or None."""
    for name in COUNTS:
        if type(value := full[name]) is not int or not 1 <= value <= LARGEST:
            return f"got {name} {value!r}, expected a whole number from 1 to {LARGEST}"
    for name in SHARES:
        if type(value := full[name]) not in (int, float) or not 0 <= value < 1:
            return f"got {name} {value!r}, expected a number from 0, below 1"
    for name in SWITCHES:
        if type(full[name]) is not bool:
            return f"got {name} {full[name]!r}, expected true or false"
    for name in ("initializer_factor", "layer_norm_epsilon"):
        if type(value := full[name]) not in (int, float) or not 0 < value <= LARGEST:
            return f"got {name} {value!r}, expected a number above 0, at most {LARGEST}"
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


def write(folder: Path, network: MomentNetwork, config: Mapping[str, Any]) -> None:
    """Write config.json and model.safetensors, under the released names."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    state = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
    save_file(state, folder / checkpoint_folder.STOCK, {"format": "pt"})
    checkpoint_folder.share(folder)
    encoder = {key: config[key] for key in T5_KEYS}
    outer = {key: value for key, value in config.items() if key not in T5_KEYS}
    saved = {
        **FIXED,
        **outer,
        "d_model": config["d_model"],
        "model_name": "MOMENT",
        "patch_stride_len": config["patch_len"],
        # Needed by the package, which writes the first into its log and calls a deprecated method unless the second.
        "transformer_backbone": "t5",
        "enable_gradient_checkpointing": False,
        BLOCK: {**T5_REST, **encoder, "num_decoder_layers": config["num_layers"]},
        **compression_block.config_block(network),
    }
    (folder / "config.json").write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n")


def read(folder: Path) -> tuple[MomentNetwork, dict[str, Any]]:
    """Read a released or saved checkpoint in float32, with its config; ModelError names what is wrong."""
    import torch

    from tsfmscope.tasks.models.moment.network import MomentNetwork

    config, block = _config(folder)
    state = {name: value for name, value in checkpoint_folder.read_weights(folder).items() if name not in UNUSED}
    with torch.device("meta"), checkpoint_folder.limit_parameters(folder):
        network = MomentNetwork(config)
        compression_block.apply_block(network, attentions(network, STACKS), block, str(folder / "config.json"))
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
    if not isinstance(encoder := saved.get(BLOCK), dict):
        problem = f"{path}: got {BLOCK} {encoder!r:.60}, expected an object"
        raise ModelError(checkpoint_folder.of_other_family(problem, NAME))
    if wrong := {key: saved[key] for key, value in FIXED.items() if saved.get(key, value) != value}:
        raise ModelError(
            f"{path}: got {wrong}, expected { ({key: FIXED[key] for key in wrong}) } as in MOMENT-1; "
            "other variants are not supported"
        )
    expected = {"d_model": encoder.get("d_model"), "patch_stride_len": saved.get("patch_len")}
    for key, value in expected.items():
        if saved.get(key) not in (None, value):
            raise ModelError(
                f"{path}: got {key} {saved[key]!r}, expected {value!r} or null; fetch the checkpoint again"
            )
    shape = {key: value for key, value in encoder.items() if key in T5_KEYS}
    shape |= {key: value for key, value in saved.items() if key in (*REQUIRED, *DEFAULTS) and key not in T5_KEYS}
    try:
        return make_config(shape, str(folder)), saved.get(attention.BLOCK)
    except ValueError as error:
        raise ModelError(f"{error}; fetch or save the checkpoint again") from error
