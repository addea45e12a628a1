"""Checkpoints of networks that we wrote: safetensors under the released names, and a config.json."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tsfmscope.errors import ModelError
from tsfmscope.models.common import checkpoint_folder, compression_block
from tsfmscope.models.common.attention import AttentionLayer

if TYPE_CHECKING:
    import torch

Network = TypeVar("Network", bound="torch.nn.Module")
Config = TypeVar("Config")
# Largest whole number in a config: beyond any such model, and small enough to be tried.
LARGEST = 1 << 16


def check_counts(config: Mapping[str, Any], names: Iterable[str], location: str) -> None:
    """Raise ValueError for the first of these keys whose value is no whole number from 1 to LARGEST."""
    _check(config, names, location, f"a whole number from 1 to {LARGEST}", _is_count)


def check_shares(config: Mapping[str, Any], names: Iterable[str], location: str) -> None:
    """Raise ValueError for the first of these keys whose value is no number from 0, below 1."""
    _check(config, names, location, "a number from 0, below 1", lambda value: _is_number(value) and 0 <= value < 1)


def check_positive(config: Mapping[str, Any], names: Iterable[str], location: str) -> None:
    """Raise ValueError for the first of these keys whose value is no number above 0, at most LARGEST."""
    expected = f"a number above 0, at most {LARGEST}"
    _check(config, names, location, expected, lambda value: _is_number(value) and 0 < value <= LARGEST)


def check_switches(config: Mapping[str, Any], names: Iterable[str], location: str) -> None:
    """Raise ValueError for the first of these keys whose value is neither true nor false."""
    _check(config, names, location, "true or false", lambda value: isinstance(value, bool))


def check_fixed(saved: Mapping[str, Any], fixed: Mapping[str, Any], folder: Path, release: str) -> None:
    """Raise ModelError if config.json has another value than the one for which the network is written.

    fixed: these values by key; a key may be missing in config.json. release: the release that has them.
    """
    if wrong := {key: saved[key] for key, value in fixed.items() if saved.get(key, value) != value}:
        expected = {key: fixed[key] for key in wrong}
        raise ModelError(
            f"{folder / 'config.json'}: got {wrong}, expected {expected} as in {release}; "
            "other versions are not supported"
        )


def check_saved(
    make_config: Callable[[Mapping[str, Any], str], Config], saved: Mapping[str, Any], folder: Path
) -> Config:
    """Return `make_config` of what config.json contains; ModelError names keys that are missing or of a wrong value."""
    try:
        return make_config(saved, str(folder))
    except ValueError as error:
        raise ModelError(f"{error}; fetch or save the checkpoint again") from error


def make_empty(
    make: Callable[[], Network],
    attentions: Callable[[Network], Iterable[AttentionLayer]],
    block: Any,
    folder: Path,
) -> Network:
    """Return a network without weights, of the widths that the `compression` block requires.

    attentions: function from the network to its attention layers. block: None for a model that is not compressed.
    ModelError if the network has far more numbers than the folder's weight files, or if the block does not fit it.
    """
    import torch

    with torch.device("meta"), checkpoint_folder.limit_parameters(folder):
        network = make()
        compression_block.apply_block(network, attentions(network), block, str(folder / "config.json"))
    return network


def without_prefix(weights: Mapping[str, torch.Tensor], prefix: str, folder: Path) -> dict[str, torch.Tensor]:
    """Return the weights with `prefix` removed from the names that have it.

    ModelError names weights that a file has both with and without it.
    """
    if twice := sorted(name for name in weights if not name.startswith(prefix) and prefix + name in weights):
        raise ModelError(
            f"{folder}: got weights {twice[:5]} both with and without the prefix {prefix!r}, expected one of each; "
            "fetch or save the checkpoint again"
        )
    return {name.removeprefix(prefix): value for name, value in weights.items()}


def fill(
    network: Network,
    weights: Mapping[str, torch.Tensor],
    folder: Path,
    *,
    prefix: str = "",
    source: str = "config.json",
) -> Network:
    """Return the network in eval mode with these weights, in float32.

    weights: by their names in the network, each after `prefix`. source: the file that states the network's shape.
    ModelError names weights that are missing, unknown or of another shape.
    """
    shapes = {name: value.shape for name, value in network.state_dict(prefix=prefix).items()}
    missing, unknown = sorted(set(shapes) - set(weights)), sorted(set(weights) - set(shapes))
    reshaped = sorted(name for name in set(shapes) & set(weights) if weights[name].shape != shapes[name])
    if missing or unknown or reshaped:
        raise ModelError(
            f"{folder}: weights do not fit {source}: missing {missing[:5]}, not known {unknown[:5]}, of another "
            f"shape {reshaped[:5]}; use the config that they were saved with"
        )
    # Copied out of the memory-mapped file, to an alignment that is always the same.
    copies = {name.removeprefix(prefix): value.float().clone() for name, value in weights.items()}
    network.load_state_dict(copies, assign=True)
    return network.eval()


def write(
    folder: Path,
    network: torch.nn.Module,
    config: Mapping[str, Any],
    weights: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """Write model.safetensors, and config.json with the network's `compression` block, if any.

    weights: by their names in the file; by default those of the network.
    """
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    state = network.state_dict() if weights is None else weights
    tensors = {name: value.detach().cpu().contiguous() for name, value in state.items()}
    save_file(tensors, folder / checkpoint_folder.STOCK, {"format": "pt"})
    checkpoint_folder.share(folder)
    saved = {**config, **compression_block.config_block(network)}
    (folder / "config.json").write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n")


def _check(
    config: Mapping[str, Any], names: Iterable[str], location: str, expected: str, is_valid: Callable[[Any], bool]
) -> None:
    for name in names:
        if not is_valid(config[name]):
            raise ValueError(f"{location} config: {name}: got {config[name]!r}, expected {expected}")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_count(value: Any) -> bool:
    return type(value) is int and 1 <= value <= LARGEST
