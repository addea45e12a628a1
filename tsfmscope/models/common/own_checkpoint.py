"""Checkpoints of networks that we wrote: safetensors under the released names, and a config.json."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, PlainValidator, ValidationError, model_validator

from tsfmscope.errors import ModelError
from tsfmscope.models.common import checkpoint_folder, compression_block
from tsfmscope.models.common.attention import BLOCK, AttentionLayer

if TYPE_CHECKING:
    import torch

Network = TypeVar("Network", bound="torch.nn.Module")
# Largest whole number in a config: beyond any such model, and small enough to be tried.
LARGEST = 1 << 16


def _field(expected: str, is_valid: Callable[[Any], bool]) -> PlainValidator:
    """Return the validator of a config's value, which keeps its type; the error states what was expected."""

    def check(value: Any) -> Any:
        if not is_valid(value):
            raise ValueError(f"got {value!r}, expected {expected}")
        return value

    return PlainValidator(check)


def one_of(*allowed: str | None) -> PlainValidator:
    """Return the validator of a value that is one of a few."""
    return _field(f"one of {list(allowed)}", lambda value: value in allowed)


def _is_count(value: Any) -> bool:
    return type(value) is int and 1 <= value <= LARGEST


def _is_positive(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value <= LARGEST


COUNT, POSITIVE = f"a whole number from 1 to {LARGEST}", f"a number above 0, at most {LARGEST}"
Count = Annotated[int, _field(COUNT, _is_count)]
# None or 0 stands for a value that other keys decide.
CountOrNone = Annotated[int | None, _field(COUNT, lambda value: value in (None, 0) or _is_count(value))]
Counts = Annotated[list[int], _field(f"{COUNT} each", lambda values: all(map(_is_count, values)))]
Share = Annotated[
    float, _field("a number from 0, below 1", lambda value: type(value) in (int, float) and 0 <= value < 1)
]
Positive = Annotated[float, _field(POSITIVE, _is_positive)]
PositiveOrNone = Annotated[float | None, _field(POSITIVE, lambda value: value is None or _is_positive(value))]
Switch = Annotated[bool, _field("true or false", lambda value: isinstance(value, bool))]
SwitchOrNone = Annotated[bool | None, _field("true or false", lambda value: value is None or isinstance(value, bool))]


class SavedConfig(BaseModel):
    """Config of a network that we wrote: the keys of config.json that it reads, with types and defaults."""

    model_config = ConfigDict(extra="forbid")

    @classmethod
    def fill(cls, config: Mapping[str, Any], location: str) -> dict[str, Any]:
        """Return the config with defaults filled in.

        location: name for the error messages. ValueError names keys that are missing, unknown or of a wrong value.
        """
        fields = cls.model_fields
        required = tuple(name for name, field in fields.items() if field.is_required())
        defaults = {name: field.default for name, field in fields.items() if not field.is_required()}
        full = checkpoint_folder.filled_config(config, required, defaults, location)
        try:
            return dict(cls(**full))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            key = f"{first['loc'][0]}: " if first["loc"] else ""
            raise ValueError(f"{location} config: {key}{first['msg'].removeprefix('Value error, ')}") from None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if problem := self.find_problem():
            raise ValueError(problem)
        return self

    def find_problem(self) -> str | None:
        """Return why values that are valid by themselves cannot be used together, or None."""
        return None


@dataclass(frozen=True)
class Release:
    """Layout of a family's checkpoints.

    config: keys that the network reads. fixed: values of other keys for which the network is written; a key may be
    missing in config.json. name: the release that has them. prefix: of the names of all weights in the files; a file
    may have them without it. model_type: that of config.json; empty: the family's name. is_ours: config.json has no
    keys of others, and unknown ones are refused. head: as `fixed`, of keys that only the decoder and the head read; a
    checkpoint with other values is read as its encoder. encoder: name of the network's module that is the encoder.
    """

    config: type[SavedConfig]
    fixed: Mapping[str, Any]
    name: str
    prefix: str = ""
    model_type: str = ""
    is_ours: bool = False
    head: Mapping[str, Any] = field(default_factory=dict)
    encoder: str = ""

    def find_missing(self, saved: Mapping[str, Any]) -> str | None:
        """Return the keys and values of a decoder or head of another kind; None if there are none."""
        others = {key: saved[key] for key, value in self.head.items() if saved.get(key, value) != value}
        return ", ".join(f"{key} {value!r:.60}" for key, value in others.items()) or None


def read(
    folder: Path,
    saved: Mapping[str, Any],
    release: Release,
    make: Callable[[Mapping[str, Any]], Network],
    attentions: Callable[[Network], Iterable[AttentionLayer]],
    rename: Callable[[dict[str, torch.Tensor], Network], Mapping[str, torch.Tensor]] = lambda weights, network: weights,
) -> tuple[Network, dict[str, Any]]:
    """Return the network in float32 and the config of a checkpoint folder whose config.json contains `saved`.

    Where the release does not have the checkpoint's decoder or head, only the encoder is made and read.
    make: function from a config to its network. attentions: function from the network to its attention layers. rename:
    function from the weights of the files, without the prefix, to those by the network's names. ModelError names the
    file that is wrong.
    """
    if wrong := {key: saved[key] for key, value in release.fixed.items() if saved.get(key, value) != value}:
        expected = {key: release.fixed[key] for key in wrong}
        raise ModelError(
            f"{folder / 'config.json'}: got {wrong}, expected {expected} as in {release.name}; "
            "other versions are not supported"
        )
    keys = set(saved) - {BLOCK, "model_type"} if release.is_ours else set(release.config.model_fields)
    shape = {key: value for key, value in saved.items() if key in keys}
    try:
        config = release.config.fill(shape, str(folder))
    except ValueError as error:
        raise checkpoint_folder.broken_checkpoint(str(error)) from error
    network = make_empty(lambda: make(config), attentions, saved.get(BLOCK), folder)
    weights = checkpoint_folder.read_weights(folder)
    if release.find_missing(saved) is not None:
        for name, _ in list(network.named_children()):
            if name != release.encoder:
                setattr(network, name, None)
        weights = {name: value for name, value in weights.items() if name.startswith(f"{release.encoder}.")}
    if release.prefix:
        weights = without_prefix(weights, release.prefix, folder)
    return fill(network, rename(weights, network), folder), config


def make_empty(
    make: Callable[[], Network], attentions: Callable[[Network], Iterable[AttentionLayer]], block: Any, folder: Path
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
    folder: Path, network: torch.nn.Module, config: Mapping[str, Any], weights: Mapping[str, torch.Tensor] | None = None
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
