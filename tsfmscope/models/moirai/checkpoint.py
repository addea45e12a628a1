"""Moirai's networks and checkpoint folders.

The folders contain config.json and safetensors, as uni2ts' `MoiraiModule.save_pretrained` writes them.
The functions are for all versions of Moirai, each of which has a `Schema`; SCHEMA is that of versions 1.0 and 1.1.
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tsfmscope.errors import ModelError
from tsfmscope.extras import describe_missing
from tsfmscope.models.common import attention, checkpoint_folder, compression_block
from tsfmscope.models.common.attention import PARTS, AttentionLayer, layers_of_blocks

FAMILY = "moirai"
REQUIRED = ("d_model", "num_layers", "patch_sizes")
# Prefix of every `_target_`.
DISTRIBUTIONS = "uni2ts.distribution."
# Woo et al. 2024, section 3.1.3; uni2ts, cli/conf/pretrain/model/moirai_small.yaml.
MIXTURE = {
    "_target_": f"{DISTRIBUTIONS}mixture.MixtureOutput",
    "components": [
        {"_target_": f"{DISTRIBUTIONS}student_t.StudentTOutput"},
        {"_target_": f"{DISTRIBUTIONS}normal.NormalFixedScaleOutput", "scale": 1e-3},
        {"_target_": f"{DISTRIBUTIONS}negative_binomial.NegativeBinomialOutput"},
        {"_target_": f"{DISTRIBUTIONS}log_normal.LogNormalOutput"},
    ],
}
# uni2ts, cli/conf/pretrain/model/moirai_{small,base,large}.yaml.
DEFAULTS = {
    "distr_output": MIXTURE,
    "max_seq_len": 512,
    "dropout_p": 0.0,
    "scaling": True,
    # Our own key. None: the size that belongs to the frequency.
    "patch_size": None,
}
# Largest number of patches, layers or neurons in a config; the released models have up to 512 patches.
LONGEST = 65_536
# Width of a head. uni2ts makes d_model // 64 heads, and rotates pairs in half of each.
HEAD = 64


@dataclass(frozen=True)
class Schema:
    """Config of a version of Moirai.

    required: keys without a default. defaults: values of the other keys. stored: further keys that a checkpoint's
    config.json must have. find_problem: function from a whole config to the reason why it is unusable, or None.
    make: function from a usable config to a network of uni2ts. stack: name of its blocks.
    """

    family: str
    required: tuple[str, ...]
    defaults: Mapping[str, Any]
    stored: tuple[str, ...]
    find_problem: Callable[[Mapping[str, Any]], str | None]
    make: Callable[[Mapping[str, Any]], Any]
    stack: str


def new_network(config: Mapping[str, Any], seed: int, schema: Schema) -> tuple[Any, dict[str, Any]]:
    """Return a network of uni2ts with random weights, and its config filled up with defaults.

    Raises ValueError, which names the key and the value that are wrong.
    """
    full = checkpoint_folder.filled_config(config, schema.required, schema.defaults, schema.family)
    if wrong := schema.find_problem(full):
        raise ValueError(f"{schema.family} config: {wrong}")
    return checkpoint_folder.build(lambda: schema.make(full), seed), full


def load_network(folder: Path, device: str, schema: Schema) -> tuple[Any, dict[str, Any]]:
    """Return a network of uni2ts in float32 and eval mode, loaded from safetensors only, and its config.

    uni2ts' own `from_pretrained` is not used: it leaves weights that the file lacks at random values, and
    calls whatever `_target_` names.
    Raises ModelError if config.json or the weights are unusable, or do not fit each other.
    """
    config = checkpoint_folder.read_config(folder, schema.family)
    path = folder / "config.json"
    if missing := sorted({*schema.required, *schema.stored} - set(config)):
        raise ModelError(checkpoint_folder.of_other_family(f"{path}: keys {missing} are missing", schema.family))
    known = {*schema.required, *schema.defaults}
    full = {**schema.defaults, **{key: value for key, value in config.items() if key in known}}
    with checkpoint_folder.limit_parameters(folder):
        if wrong := schema.find_problem(full):
            raise ValueError(wrong)
        network = schema.make(full)
    layers = attentions(network, schema.stack)
    compression_block.apply_block(network, layers, config.get(attention.BLOCK), str(path))
    _fill(network, folder)
    return network.to(device).eval(), full


def save_network(network: Any, config: Mapping[str, Any], folder: Path) -> None:
    """Write config.json and model.safetensors, which `from_pretrained` of the network's class can read.

    Keys without a value are left out. The package ignores our `patch_size`, and cannot read the narrower weights of a
    compressed model.
    """
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    entries = {key: value for key, value in config.items() if value is not None}
    entries |= {"attn_dropout_p": 0.0, **compression_block.config_block(network)}
    (folder / "config.json").write_text(json.dumps(entries, sort_keys=True, indent=2) + "\n")
    tensors = {name: tensor.cpu().contiguous() for name, tensor in network.state_dict().items()}
    save_file(tensors, folder / "model.safetensors")


def attentions(network: Any, stack: str) -> Iterator[AttentionLayer]:
    """Yield the self-attention of every block.

    Queries and keys are normed and rotated. The heads of a group share keys and values.
    """
    return layers_of_blocks(
        stack, network.encoder.layers, "self_attn", PARTS | {"o": "out_proj"}, heads="num_heads", groups="num_groups",
        scale="softmax_scale", plain=False,
    )  # fmt: skip


def _make(config: Mapping[str, Any]) -> Any:
    return package_class("uni2ts.model.moirai.module", "MoiraiModule", FAMILY)(
        distr_output=_distribution(config["distr_output"]),
        d_model=config["d_model"],
        num_layers=config["num_layers"],
        patch_sizes=tuple(config["patch_sizes"]),
        max_seq_len=config["max_seq_len"],
        # As released. Any other value would act in eval mode too (uni2ts, module/attention.py).
        attn_dropout_p=0.0,
        dropout_p=config["dropout_p"],
        scaling=config["scaling"],
    )


def package_class(module: str, name: str, family: str) -> Any:
    """Return a class of uni2ts. Raises ModelError, which names the extra, if the package is missing."""
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise ModelError(f"family {family}: {describe_missing(error)}") from error


def _distribution(config: Any) -> Any:
    """Return a distribution of uni2ts from its config, whose options are numbers or lists of distributions.

    uni2ts itself checks only the prefix of `_target_` and lets hydra resolve the dotted name, in every object of the
    config. Such a name can lead out of the package, through the imports of its modules.
    Raises ValueError, which names the key, for any other `_target_` or option.
    """
    from uni2ts import distribution

    target = config.get("_target_") if isinstance(config, Mapping) else None
    name = str(target).rpartition(".")[2]
    if not str(target).startswith(DISTRIBUTIONS) or name not in distribution.DISTRIBUTION_OUTPUTS:
        raise ValueError(
            f"distr_output: got _target_ {target!r:.100}, expected {DISTRIBUTIONS}*, one of "
            f"{sorted(distribution.DISTRIBUTION_OUTPUTS)}"
        )
    distribution_class = getattr(distribution, name)
    options = {key: value for key, value in config.items() if key != "_target_"}
    known = inspect.signature(distribution_class).parameters
    for key, value in options.items():
        if key not in known:
            expected = sorted(known) or "none"
            raise ValueError(f"distr_output: {name}: got unknown option {key!r:.100}, expected {expected}")
        if key == "components" and isinstance(value, list | tuple):
            options[key] = [_distribution(part) for part in value]
        elif not isinstance(value, int | float):
            raise ValueError(f"distr_output: {name}: {key}: got {value!r:.100}, expected a number")
    return distribution_class(**options)


def _find_problem(config: Mapping[str, Any]) -> str | None:
    """Return the reason why a config is unusable, or None."""
    sizes = config["patch_sizes"]
    if not isinstance(sizes, list | tuple) or not sizes or any(type(size) is not int or size < 1 for size in sizes):
        return f"got patch_sizes {sizes!r}, expected a list of lengths in steps, such as [8, 16, 32, 64, 128]"
    if config["patch_size"] is not None and config["patch_size"] not in sizes:
        return f"got patch_size {config['patch_size']!r}, expected one of patch_sizes {list(sizes)}, or null"
    return find_common_problem(config, ("num_layers", "max_seq_len"))


def find_common_problem(config: Mapping[str, Any], counts: tuple[str, ...]) -> str | None:
    """Return the reason why keys that all versions have are unusable, or None; counts: keys of whole numbers."""
    for key in counts:
        if type(config[key]) is not int or not 1 <= config[key] <= LONGEST:
            return f"got {key} {config[key]!r}, expected a whole number from 1 to {LONGEST}"
    if type(config["scaling"]) is not bool:
        return f"got scaling {config['scaling']!r}, expected true or false"
    dropout = config["dropout_p"]
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        return f"got dropout_p {dropout!r}, expected a number from 0 to below 1"
    width = config["d_model"]
    heads = width // HEAD if type(width) is int else 0
    if heads < 1 or width % heads or width // heads % 4:
        return f"got d_model {width!r}, expected a multiple of {HEAD}: uni2ts makes a head of each {HEAD}"
    return None


def _fill(network: Any, folder: Path) -> None:
    """Load a folder's weights into the network.

    Raises ModelError if weights are missing, have another shape, or cannot be read.
    """
    tensors = checkpoint_folder.read_weights(folder)
    expected = network.state_dict()
    missing = sorted(set(expected) - set(tensors))
    shapes = [name for name in expected if name in tensors and tensors[name].shape != expected[name].shape]
    if missing or shapes:
        raise ModelError(
            f"{folder}: weights do not fit config.json: missing {missing[:5]}, of another shape {shapes[:5]}; "
            "use the config that they were saved with"
        )
    network.load_state_dict({name: tensors[name] for name in expected})


SCHEMA = Schema(FAMILY, REQUIRED, DEFAULTS, ("distr_output", "max_seq_len"), _find_problem, _make, "encoder")
