"""Moirai's networks and folders: config.json and safetensors as uni2ts' `MoiraiModule.save_pretrained` writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tasks.errors import ModelError
from tasks.models import attention, folders
from tasks.models.attention import AttentionLayer, any_width

FAMILY = "moirai"
REQUIRED = ("d_model", "num_layers", "patch_sizes")
DISTRIBUTIONS = "uni2ts.distribution."  # prefix of every `_target_`
MIXTURE = {  # Woo et al. 2024, section 3.1.3; uni2ts, cli/conf/pretrain/model/moirai_small.yaml
    "_target_": f"{DISTRIBUTIONS}mixture.MixtureOutput",
    "components": [
        {"_target_": f"{DISTRIBUTIONS}student_t.StudentTOutput"},
        {"_target_": f"{DISTRIBUTIONS}normal.NormalFixedScaleOutput", "scale": 1e-3},
        {"_target_": f"{DISTRIBUTIONS}negative_binomial.NegativeBinomialOutput"},
        {"_target_": f"{DISTRIBUTIONS}log_normal.LogNormalOutput"},
    ],
}
DEFAULTS = {  # uni2ts, cli/conf/pretrain/model/moirai_{small,base,large}.yaml
    "distr_output": MIXTURE,
    "max_seq_len": 512,
    "dropout_p": 0.0,
    "scaling": True,
    "patch_size": None,  # ours: None takes the frequency's
}
LONGEST = 65_536  # patches; the released ones have 512
HEAD = 64  # uni2ts makes d_model // 64 heads, and rotates pairs in half of each


def new_network(config: Mapping[str, Any], seed: int) -> tuple[Any, dict[str, Any]]:
    """A MoiraiModule with random weights and its config, defaults filled in. ValueError naming key and value."""
    full = folders.filled_config(config, REQUIRED, DEFAULTS, FAMILY)
    if wrong := _unusable(full):
        raise ValueError(f"{FAMILY} config: {wrong}")
    network = folders.build(lambda: _module(full), seed)
    return network, full


def load_network(folder: Path, device: str) -> tuple[Any, dict[str, Any]]:
    """A MoiraiModule in float32 and eval mode from safetensors alone, and its config; ModelError where they are off.

    uni2ts' own `from_pretrained` leaves weights that the file lacks at random values, and calls what `_target_` names.
    """
    config = folders.read_config(folder, FAMILY)
    path = folder / "config.json"
    if missing := sorted({*REQUIRED, "distr_output", "max_seq_len"} - set(config)):
        raise ModelError(
            f"{path}: keys {missing} are missing, so this is no {FAMILY} checkpoint; name the family that the "
            "checkpoint belongs to"
        )
    full = {**DEFAULTS, **{key: value for key, value in config.items() if key in DEFAULTS or key in REQUIRED}}
    with folders.bounded(folder):
        if wrong := _unusable(full):
            raise ValueError(wrong)
        network = _module(full)
    attention.fit(network, attentions(network), config.get(attention.BLOCK), str(path))
    _fill(network, folder)
    return network.to(device).eval(), full


def save_network(network: Any, config: Mapping[str, Any], folder: Path) -> None:
    """config.json and model.safetensors, which `MoiraiModule.from_pretrained` reads (it skips `patch_size`).

    Of a compressed model the package cannot read the narrower weights.
    """
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    kept = {key: value for key, value in config.items() if key != "patch_size" or value is not None}
    text = json.dumps({**kept, "attn_dropout_p": 0.0, **attention.told(network)}, sort_keys=True, indent=2)
    (folder / "config.json").write_text(text + "\n")
    tensors = {name: tensor.cpu().contiguous() for name, tensor in network.state_dict().items()}
    save_file(tensors, folder / "model.safetensors")


def attentions(network: Any) -> Iterator[AttentionLayer]:
    """The encoder's self-attention; queries and keys are normed and rotated, heads share the keys of their group."""
    parts = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}
    for layer, block in enumerate(network.encoder.layers, start=1):
        one = block.self_attn
        heads, groups, scale = one.num_heads, one.num_groups, one.softmax_scale
        yield AttentionLayer("encoder", layer, "self", one, heads, groups, scale, False, any_width, parts)


def _module(config: Mapping[str, Any]) -> Any:
    module_class = _uni2ts()
    return module_class(
        distr_output=_distribution(config["distr_output"]),
        d_model=config["d_model"],
        num_layers=config["num_layers"],
        patch_sizes=tuple(config["patch_sizes"]),
        max_seq_len=config["max_seq_len"],
        attn_dropout_p=0.0,  # as released; any other would act in eval mode too (uni2ts, module/attention.py)
        dropout_p=config["dropout_p"],
        scaling=config["scaling"],
    )


def _uni2ts() -> Any:
    """uni2ts' MoiraiModule; ModelError naming the extra where the package is missing."""
    from tasks.models.registry import missing_package

    try:
        from uni2ts.model.moirai.module import MoiraiModule
    except ModuleNotFoundError as error:
        raise ModelError(f"family {FAMILY}: {missing_package(error)}") from error
    return MoiraiModule


def _distribution(config: Any) -> Any:
    """A distribution of uni2ts from its config; ValueError for any other `_target_`.

    uni2ts checks a prefix only and lets hydra follow the dots, out of the package through what its modules import.
    """
    from uni2ts import distribution

    target = config.get("_target_") if isinstance(config, Mapping) else None
    name = str(target).rpartition(".")[2]
    if not str(target).startswith(DISTRIBUTIONS) or name not in distribution.DISTRIBUTION_OUTPUTS:
        raise ValueError(
            f"distr_output: got _target_ {target!r}, expected {DISTRIBUTIONS}*, one of "
            f"{sorted(distribution.DISTRIBUTION_OUTPUTS)}"
        )
    options = {key: value for key, value in config.items() if key != "_target_"}
    if "components" in options:
        options["components"] = [_distribution(part) for part in options["components"]]
    return getattr(distribution, name)(**options)


def _unusable(config: Mapping[str, Any]) -> str | None:
    """What keeps a config from being used, or None."""
    sizes = config["patch_sizes"]
    if not isinstance(sizes, list | tuple) or not sizes or any(type(size) is not int or size < 1 for size in sizes):
        return f"got patch_sizes {sizes!r}, expected a list of lengths in steps, such as [8, 16, 32, 64, 128]"
    if config["patch_size"] is not None and config["patch_size"] not in sizes:
        return f"got patch_size {config['patch_size']!r}, expected one of patch_sizes {list(sizes)}, or null"
    if type(config["max_seq_len"]) is not int or not 1 <= config["max_seq_len"] <= LONGEST:
        return f"got max_seq_len {config['max_seq_len']!r}, expected a whole number of patches from 1 to {LONGEST}"
    width = config["d_model"]
    heads = width // HEAD if type(width) is int else 0
    if heads < 1 or width % heads or width // heads % 4:
        return f"got d_model {width!r}, expected a multiple of {HEAD}: uni2ts makes a head of each {HEAD}"
    return None


def _fill(network: Any, folder: Path) -> None:
    """Weights into the network; ModelError where some are missing, of another shape, or cannot be read."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    tensors: dict[str, Any] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            tensors |= load_file(path)
        except (SafetensorError, OSError) as error:
            raise ModelError(f"{path}: weights cannot be read ({error}); fetch or save the checkpoint again") from error
    wanted = network.state_dict()
    missing = sorted(set(wanted) - set(tensors))
    shapes = [name for name in wanted if name in tensors and tensors[name].shape != wanted[name].shape]
    if missing or shapes:
        raise ModelError(
            f"{folder}: weights do not fit config.json: missing {missing[:5]}, of another shape {shapes[:5]}; "
            "use the config that they were saved with"
        )
    network.load_state_dict({name: tensors[name] for name in wanted})
