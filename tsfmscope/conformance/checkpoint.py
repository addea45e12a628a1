"""Checks of the files of a checkpoint: they are complete, in a float type, and read to the last tensor."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsfmscope.conformance.errors import Failed
from tsfmscope.conformance.subject import Subject
from tsfmscope.conformance.verdict import demand
from tsfmscope.files import read_text
from tsfmscope.models import registry
from tsfmscope.models.common.checkpoint_folder import COMPRESSED, LARGEST_CONFIG, PICKLED, check_files
from tsfmscope.models.common.int8 import SCALE

if TYPE_CHECKING:
    import torch

# List of the shards that transformers writes next to them.
INDEX = "model.safetensors.index.json"
# Name of a shard, as transformers and huggingface_hub write it.
SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<total>\d{5})\.safetensors")
# Types of weights that families load in float32, by safetensors' names. I8 is that of `compress --bits 8`.
FLOATS = ("F32", "F16", "BF16")
PACKED = "I8"
# Types of tensors that are no weights, such as counters and masks.
NO_WEIGHTS = ("BOOL", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64")
# Names of tensors in a message.
MOST_NAMES = 3
AGAIN = "fetch the checkpoint again, or name another revision (hub:ORG/NAME@COMMIT)"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Checkpoint folder under test; the model is loaded when it is first needed.

    options: keywords of the family's `load`. context, horizon: steps of the windows. scratch: a folder of its own.
    shared: results that several checks read, by name.
    """

    family: str
    folder: Path
    scratch: Path
    context: int
    horizon: int
    options: Mapping[str, Any] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict, init=False)

    @cached_property
    def subject(self) -> Subject:
        """The loaded model as the subject of the other checks. Raises what `registry.load` raises."""
        registry.check_packages(self.family)
        model = registry.load(self.family, self.folder, options=registry.stored_options(self.options))
        return Subject(self.family, model, None, self.scratch, self.context, self.horizon)

    @property
    def is_loaded(self) -> bool:
        """Whether the model was needed, and could be loaded."""
        return "subject" in vars(self)

    @property
    def weight_files(self) -> list[Path]:
        """Files of the weights, in the order of their names."""
        found = sorted(self.folder.glob("*.safetensors"))
        pickled = self.folder / PICKLED
        return found or [path for path in (pickled,) if path.is_file()]


def files_are_complete(checkpoint: Checkpoint) -> str:
    """The folder has config.json and safetensors: one file, or every shard and no other weights."""
    folder, files = checkpoint.folder, [path.name for path in checkpoint.weight_files]
    check_files(folder)
    names = sorted(path.name for path in folder.iterdir())
    demand(bool(files), f"{folder}: got {names}, expected *.safetensors; convert pickled weights to safetensors first")
    if files != [PICKLED]:
        demand("config.json" in names, f"{folder}: got {names}, expected config.json; {AGAIN}")
        expected = _expected_shards(folder, files)
        missing, extra = sorted(expected - set(files)), sorted(set(files) - expected)
        demand(not missing, f"{folder}: {_list_names(missing)} absent, got {files}; {AGAIN}")
        demand(not extra, f"{folder}: {_list_names(extra)} belong to no other file of weights; remove them")
    others = [name for name in names if name not in (*files, "config.json")]
    return ", ".join(files) + (f"; also there: {', '.join(others)}" if others else "")


def weights_have_a_float_type(checkpoint: Checkpoint) -> str:
    """Every weight is stored as float32, float16 or bfloat16, which every CPU converts to float32."""
    if checkpoint.weight_files == [checkpoint.folder / PICKLED]:
        return "a pickled file, whose types its reader checks"
    counts: dict[str, int] = {}
    packed = _packed_names(checkpoint)
    for path, name, dtype in _types(checkpoint):
        allowed = dtype in FLOATS or (dtype == PACKED and name in packed) or dtype in NO_WEIGHTS
        demand(
            allowed, f"{path.name}: {name} is stored as {dtype}, expected one of {', '.join(FLOATS)}; convert it first"
        )
        counts[dtype] = counts.get(dtype, 0) + 1
    demand(any(dtype in (*FLOATS, PACKED) for dtype in counts), f"got types {sorted(counts)}, expected {FLOATS}")
    return ", ".join(f"{n} {dtype}" for dtype, n in sorted(counts.items()))


def the_model_loads(checkpoint: Checkpoint) -> str:
    """The family reads config.json and the weights, and refuses neither."""
    model = checkpoint.subject.model
    parameters = sum(part.numel() for part in model.network.parameters())
    layers = ", ".join(f"{stack}: {n} blocks" for stack, n in model.layers.items())
    return f"{type(model).__name__}, {parameters:,} parameters, {layers}, width {model.width}"


def every_tensor_is_read(checkpoint: Checkpoint) -> str:
    """Saved again, the model has every tensor of the files with the same numbers in float32, and no other tensor."""
    import torch

    network = checkpoint.subject.model.network
    stored, saved = _tensors(checkpoint.folder), _tensors(checkpoint.subject.saved_folder)
    state: Mapping[str, Any] = network.state_dict()
    # Tied tensors are one tensor under several names, of which files have one or all.
    tied = _tied(state)
    unread = [
        name
        for name in sorted(set(stored) - set(saved))
        if not (name in state and tied[name] & set(saved)) and not _is_ignored(network, name)
    ]
    demand(not unread, f"{_list_names(unread)}: in the files, but not in the model; {_other_version(checkpoint)}")
    absent = [name for name in sorted(set(saved) - set(stored)) if not tied.get(name, set()) & set(stored)]
    demand(not absent, f"{_list_names(absent)}: in the model, but not in the files; {_other_version(checkpoint)}")
    common = sorted(set(stored) & set(saved))
    for name in common:
        before, after = stored[name](), saved[name]()
        demand(
            before.shape == after.shape,
            f"{name}: got shape {tuple(before.shape)} in the files, {tuple(after.shape)} in the model",
        )
        is_same = before.dtype == torch.int8 or torch.equal(before.to(after.dtype), after)
        demand(is_same, f"{name}: the model has other numbers than the files; {_other_version(checkpoint)}")
    return f"{len(common)} tensors" + (
        f", {len(stored) - len(common)} tied or unused" if len(stored) > len(common) else ""
    )


OF_FILES = (files_are_complete, weights_have_a_float_type, the_model_loads)


def _expected_shards(folder: Path, files: list[str]) -> set[str]:
    """Return the names of the files that belong together. Raises Failed for an index that cannot be read."""
    path = folder / INDEX
    if path.is_file():
        try:
            names = json.loads(read_text(path, LARGEST_CONFIG))["weight_map"].values()
            return {Path(str(name)).name for name in names}
        except (ValueError, LookupError, AttributeError, TypeError, OSError, RecursionError) as error:
            raise Failed(f"{path}: expected an object with weight_map ({error}); {AGAIN}") from error
    if match := SHARD.fullmatch(files[0]):
        total = int(match["total"])
        return {f"{match['stem']}-{number:05d}-of-{total:05d}.safetensors" for number in range(1, total + 1)}
    return set(files[:1])


def _types(checkpoint: Checkpoint) -> Iterator[tuple[Path, str, str]]:
    """Yield file, name and type of every tensor."""
    from safetensors import safe_open

    for path in checkpoint.weight_files:
        with safe_open(path, "numpy") as file:
            for name in file.keys():  # noqa: SIM118
                yield path, name, file.get_slice(name).get_dtype()


def _packed_names(checkpoint: Checkpoint) -> set[str]:
    """Return the names of int8 matrices, each of which has a tensor of scales."""
    if not (checkpoint.folder / COMPRESSED).is_file():
        return set()
    return {name.removesuffix(SCALE) for _, name, _ in _types(checkpoint) if name.endswith(SCALE)}


def _tensors(folder: Path) -> dict[str, Callable[[], torch.Tensor]]:
    """Return name -> a function that reads the tensor, of all weights in a folder."""
    from safetensors import safe_open

    from tsfmscope.models.lag_llama import read_lightning

    found: dict[str, Callable[[], torch.Tensor]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        file = safe_open(path, "pt")
        found |= {name: partial(file.get_tensor, name) for name in file.keys() if not name.endswith(SCALE)}  # noqa: SIM118
    if not found:
        state = read_lightning(folder / PICKLED)[0]
        found = {name: partial(state.__getitem__, name) for name in state}
    return found


def _tied(state: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return name -> names of the same tensor, with itself."""
    by_place: dict[Any, set[str]] = {}
    places = {name: (value.data_ptr(), tuple(value.shape)) for name, value in state.items()}
    for name, place in places.items():
        by_place.setdefault(place, set()).add(name)
    return {name: by_place[place] for name, place in places.items()}


def _is_ignored(network: Any, name: str) -> bool:
    """Return whether the package itself declares that files may have this tensor and that it reads none of it."""
    patterns = getattr(network, "_keys_to_ignore_on_load_unexpected", None) or ()
    return any(re.search(pattern, name) for pattern in patterns)


def _list_names(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def _other_version(checkpoint: Checkpoint) -> str:
    return f"these may be weights of another version of {checkpoint.family}: {AGAIN}, or open an issue"
