"""LoRA adapters (Hu et al. 2022) in the files of peft: merged into the network of their base model."""

from __future__ import annotations

import math
import os
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsfmscope import hub
from tsfmscope.errors import ModelError
from tsfmscope.models.common.checkpoint_folder import (
    ADAPTER,
    ADAPTER_WEIGHTS,
    LARGEST_CONFIG,
    broken_checkpoint,
    check_inside,
    read_object,
)
from tsfmscope.models.common.low_bits import read_file

if TYPE_CHECKING:
    import torch

# Name of a matrix in the adapter's file (peft 0.20, "PEFT checkpoint format").
NAME = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<part>[AB])\.weight")
# Keys of adapter_config.json that change the merged weights, and the values for which `merge` is written. Other keys
# choose modules, which the tensors show. A start such as PiSSA changes the base model too.
READ_VALUES: Mapping[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none", None),
    "init_lora_weights": (True, False, None, "gaussian", "eva", "orthogonal"),
    **dict.fromkeys(
        ("use_dora", "use_qalora", "use_bdlora", "lora_bias", "modules_to_save", "rank_pattern", "alpha_pattern",
         "layer_replication", "target_parameters", "trainable_token_indices", "alora_invocation_tokens"),
        (None, False, [], {}),
    ),
}  # fmt: skip
# Beyond any adapter; NaN and infinity are not below it.
LARGEST_ALPHA = 1e6


def files_of(folder: Path) -> list[Path]:
    """Return the paths of an adapter's config and weights.

    Raises ModelError if one is missing or is not a file of the folder.
    """
    for name in (ADAPTER, ADAPTER_WEIGHTS):
        if not os.path.lexists(folder / name):
            raise ModelError(
                f"{folder}: a LoRA adapter without {name}, expected both files that peft saves; pickled weights "
                "(adapter_model.bin) are not read, save them as safetensors"
            )
        check_inside(folder / name)
    return [folder / ADAPTER, folder / ADAPTER_WEIGHTS]


def base_of(folder: Path) -> str:
    """Return the reference of the base model that an adapter names: a folder next to it, or hub:ORG/NAME.

    Raises ModelError for anything else, such as a folder elsewhere: no file is read that the caller did not name.
    """
    config = read_object(files_of(folder)[0], LARGEST_CONFIG)
    name, revision = config.get("base_model_name_or_path"), config.get("revision")
    if isinstance(name, str) and name:
        parent = os.path.abspath(folder.parent)
        path = os.path.normpath(os.path.join(parent, name))
        if os.path.dirname(path) == parent and os.path.isdir(path) and not os.path.islink(path):
            return path
        reference = f"{hub.PREFIX}{name}" + (f"@{revision}" if revision else "")
        # A path of the machine of the training is no name of the hub: ORG/NAME is a folder where ORG is one.
        if hub.looks_like_hub(reference) and not os.path.isdir(name.partition("/")[0]):
            return reference
    raise ModelError(
        f"{folder / ADAPTER}: base_model_name_or_path: got {name!r:.200}, expected a folder next to the adapter, or "
        "ORG/NAME of the hub; name the adapter with its base model: ADAPTER+BASE"
    )


def merge(network: torch.nn.Module, folder: Path) -> None:
    """Add the product of an adapter's matrices to the weight of their Linear, in place.

    W + alpha / r · B A, or W + alpha / √r · B A where `use_rslora` is true (Kalajdzievski 2023). These are the weights
    of peft's `merge_and_unload` in float32; as there, `fan_in_fan_out` has no effect on a Linear. Raises ModelError,
    before anything is changed, for other kinds of adapters and for tensors that fit no Linear.
    """
    import torch
    from safetensors import SafetensorError

    settings, path = files_of(folder)
    config = read_object(settings, LARGEST_CONFIG)
    if wrong := {key: config.get(key) for key, allowed in READ_VALUES.items() if config.get(key) not in allowed}:
        raise ModelError(
            f"{settings}: got {wrong!r:.200}, expected plain LoRA of Linears; merge the adapter with peft, and "
            "name the new folder"
        )
    rank: Any = config.get("r")
    alpha: Any = config.get("lora_alpha")
    if type(rank) is not int or rank < 1 or type(alpha) not in (int, float) or not abs(alpha) <= LARGEST_ALPHA:
        raise broken_checkpoint(
            f"{settings}: got r {rank!r:.50} and lora_alpha {alpha!r:.50}, expected a whole number from 1 and a number"
        )
    factor = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    try:
        tensors = read_file(path)
    except (SafetensorError, OSError) as error:
        raise broken_checkpoint(f"{path}: weights cannot be read ({type(error).__name__}: {error})") from error
    linears = {name: part for name, part in network.named_modules() if isinstance(part, torch.nn.Linear)}
    pairs: dict[str, dict[str, torch.Tensor]] = defaultdict(dict)
    for name, tensor in tensors.items():
        match = NAME.fullmatch(name)
        if match is None or match["module"] not in linears:
            raise ModelError(
                f"{path}: got tensor {name!r:.100}, expected lora_A and lora_B of Linears of the base model alone; "
                "merge the adapter with peft, and name the new folder"
            )
        pairs[match["module"]][match["part"]] = tensor.float()
    deltas = {}
    for name, pair in pairs.items():
        shapes = {part: tuple(tensor.shape) for part, tensor in sorted(pair.items())}
        linear = linears[name]
        expected = {"A": (rank, linear.in_features), "B": (linear.out_features, rank)}
        if shapes != expected:
            raise ModelError(
                f"{path}: {name}: got shapes {shapes}, expected {expected} of the base model's Linear; name the base "
                "model that the adapter was trained on: ADAPTER+BASE"
            )
        deltas[name] = factor * (pair["B"] @ pair["A"])
    if not all(bool(delta.isfinite().all()) for delta in deltas.values()) or not deltas:
        raise ModelError(f"{path}: expected finite lora_A and lora_B, got NaN, infinity or no tensor; save it again")
    for name, delta in deltas.items():
        linears[name].weight.data += delta.to(linears[name].weight.device)
