"""Networks of VisionTS: transformers' ViTMAEForPreTraining, read from a folder or made anew.

A new network has the authors' fixed positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from tsfmscope.errors import ModelError
from tsfmscope.models.common import checkpoint_folder
from tsfmscope.models.common.attention import AttentionLayer
from tsfmscope.models.common.compression_block import with_compression_block

NAME, MODEL_TYPE, ARCHITECTURE = "visionts", "vit_mae", "ViTMAEForPreTraining"
REQUIRED = (
    *("image_size", "patch_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("decoder_hidden_size", "decoder_intermediate_size", "decoder_num_hidden_layers", "decoder_num_attention_heads"),
)
# layer_norm_eps is that of He et al. 2022's code.
DEFAULTS = {"layer_norm_eps": 1e-6, "initializer_range": 0.02, "periodicity": None}
# Added to a context's variance in the release, in the data's units.
VARIANCE = 1e-5
# Base of the frequencies of the position encodings.
BASE = 10_000.0


def read(folder: Path, device: str, periodicity: int | None) -> Any:
    """Read a released or saved network; set its `periodicity`; ModelError names the file that is wrong."""
    from transformers import ViTMAEForPreTraining

    saved = checkpoint_folder.read_config(folder, NAME)
    if periodicity is not None:
        saved["periodicity"] = periodicity
    with checkpoint_folder.limit_parameters(folder):
        wrong = find_problem(saved)
    if saved.get("model_type") != MODEL_TYPE or ARCHITECTURE not in (saved.get("architectures") or []):
        problem = f"got model_type {saved.get('model_type')!r}, architectures {saved.get('architectures')}"
        wrong = checkpoint_folder.of_other_family(f"{problem}, expected {MODEL_TYPE!r}, {[ARCHITECTURE]}", NAME)
    if wrong:
        raise ModelError(f"{folder / 'config.json'}: {wrong}")
    network = checkpoint_folder.load_network(with_compression_block(ViTMAEForPreTraining, attentions), folder, device)
    network.config.periodicity = saved.get("periodicity")
    return network


def make_network(config: Mapping[str, Any]) -> Any:
    """Return a new network with random CLS and mask tokens.

    Positions are the fixed sines and cosines, which transformers 5 leaves at 0.
    """
    import torch
    from transformers import ViTMAEConfig, ViTMAEForPreTraining

    network = ViTMAEForPreTraining(ViTMAEConfig(**config))
    embeddings, decoder, std = network.vit.embeddings, network.decoder, config["initializer_range"]
    with torch.no_grad():
        for fixed in (embeddings.position_embeddings, decoder.decoder_pos_embed):
            grid = config["image_size"] // config["patch_size"]
            fixed.copy_(torch.from_numpy(positions_2d(grid, fixed.shape[-1])))
        for parameter in (embeddings.cls_token, decoder.mask_token):
            parameter.normal_(std=std)
    return network


def attentions(network: Any) -> Iterator[AttentionLayer]:
    """Yield the attention layers of a ViTMAEForPreTraining, those of the encoder first."""
    from tsfmscope.models.vit import vit_attentions

    yield from vit_attentions("encoder", network.vit.layers)
    yield from vit_attentions("decoder", network.decoder.decoder_layers)


def positions_2d(grid: int, width: int) -> Float32[np.ndarray, "1 token width"]:
    """Return fixed positions of CLS (0) and of the patches, row by row.

    They are sines and cosines of the column, then of the row, as in He et al. 2022's code, whose variable
    names suggest the opposite order.
    """
    frequencies = BASE ** -(np.arange(width // 4) / (width // 4))
    rows, columns = np.divmod(np.arange(grid**2), grid)
    angles = [np.outer(places, frequencies) for places in (columns, rows)]
    patches = np.concatenate([part for angle in angles for part in (np.sin(angle), np.cos(angle))], axis=1)
    return np.concatenate((np.zeros((1, width)), patches))[None].astype(np.float32)


def find_problem(config: Mapping[str, Any]) -> str | None:
    """Return why a config cannot be used, or None."""
    size, patch, period = config.get("image_size", 224), config.get("patch_size", 16), config.get("periodicity")
    if config.get("norm_pix_loss"):
        return "got norm_pix_loss true, expected a model that reconstructs pixels, as patches have no scale otherwise"
    if not (isinstance(size, int) and isinstance(patch, int)) or size % patch or size < 2 * patch:
        return f"got image_size {size!r}, patch_size {patch!r}, expected a square of 2 x 2 whole patches or more"
    if period is not None and (type(period) is not int or period < 1):
        return f"got periodicity {period!r}, expected steps or null"
    if wrong := [name for name in ("hidden_size", "decoder_hidden_size") if config.get(name, 4) % 4]:
        return f"got {wrong[0]} {config[wrong[0]]}, expected a multiple of 4, for sines and cosines of two axes"
    return None
