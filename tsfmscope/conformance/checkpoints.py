"""Checks of checkpoints: files that are complete and read to the last tensor; making, saving and refusing."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from tsfmscope.conformance.subject import SEED, Failed, NotApplicable, Subject, demand, same_bits, states_of
from tsfmscope.errors import ModelError
from tsfmscope.files import read_text
from tsfmscope.models import registry
from tsfmscope.models.base import Forecaster
from tsfmscope.models.common.checkpoint_folder import LARGEST_CONFIG, PICKLED, check_files
from tsfmscope.models.common.low_bits import RECORD, read_file
from tsfmscope.series.catalog import Modality

if TYPE_CHECKING:
    import torch

# List of the shards that transformers writes next to them.
INDEX = "model.safetensors.index.json"
# Name of a shard, as transformers and huggingface_hub write it.
SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<total>\d{5})\.safetensors")
# Types of weights that families load in float32, by safetensors' names.
FLOATS = ("F32", "F16", "BF16")
# Types of tensors that are no weights, such as counters and masks.
NO_WEIGHTS = ("BOOL", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64")
# Names of tensors in a message.
MOST_NAMES = 3
AGAIN = "fetch the checkpoint again, or name another revision (hub:ORG/NAME@COMMIT)"
# Suffixes of pickled files, which run code when they are read.
PICKLED_SUFFIXES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
MISSPELT = "no_such_key_of_a_config"
# Bytes that a damaged file lacks.
CUT = 100


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Checkpoint folder under test; the model is loaded when it is first needed.

    options: keywords of the family's `load`. context, horizon: steps of the windows. scratch: a folder of its own.
    reference: hub:ORG/NAME@COMMIT, or another name. shared: results that several checks read, by name.
    """

    family: str
    folder: Path
    scratch: Path
    context: int
    horizon: int
    options: Mapping[str, Any] = field(default_factory=dict)
    reference: str = ""
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
    counts, expected = Counter[str](), f"expected one of {', '.join(FLOATS)}; convert it first"
    for path, name, dtype in _types(checkpoint):
        demand(dtype in (*FLOATS, *NO_WEIGHTS), f"{path.name}: {name} is stored as {dtype}, {expected}")
        counts[dtype] += 1
    demand(any(dtype in FLOATS for dtype in counts), f"got types {sorted(counts)}, expected {FLOATS}")
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
    # The package itself declares which tensors files may have that it does not read.
    ignored = "|".join(getattr(network, "_keys_to_ignore_on_load_unexpected", None) or ()) or "(?!)"
    surplus = sorted(set(stored) - set(saved))
    unread = [name for name in surplus if not tied.get(name, set()) & set(saved) and not re.search(ignored, name)]
    demand(not unread, f"{_list_names(unread)}: in the files, but not in the model; {_other_version(checkpoint)}")
    absent = [name for name in sorted(set(saved) - set(stored)) if not tied.get(name, set()) & set(stored)]
    demand(not absent, f"{_list_names(absent)}: in the model, but not in the files; {_other_version(checkpoint)}")
    common = sorted(set(stored) & set(saved))
    for name in common:
        before, after = stored[name](), saved[name]()
        shapes = f"got shape {tuple(before.shape)} in the files, {tuple(after.shape)} in the model"
        demand(before.shape == after.shape, f"{name}: {shapes}")
        demand(
            torch.equal(before.to(after.dtype), after),
            f"{name}: the model has other numbers than the files; {_other_version(checkpoint)}",
        )
    others = len(stored) - len(common)
    return f"{len(common)} tensors" + f", {others} tied or unused" * (others > 0)


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


def _tensors(folder: Path) -> dict[str, Callable[[], torch.Tensor]]:
    """Return name -> a function that reads the tensor, of all weights in a folder."""
    from safetensors import safe_open

    from tsfmscope.models.lag_llama import read_lightning

    found: dict[str, Callable[[], torch.Tensor]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        file = safe_open(path, "pt")
        if RECORD in (file.metadata() or {}):
            tensors = read_file(path)
            found |= {name: partial(tensors.__getitem__, name) for name in tensors}
        else:
            found |= {name: partial(file.get_tensor, name) for name in file.keys()}  # noqa: SIM118
    if not found:
        state = read_lightning(folder / PICKLED)[0]
        found = {name: partial(state.__getitem__, name) for name in state}
    return found


def _tied(state: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return name -> names of the same tensor, with itself."""
    by_place: dict[Any, set[str]] = defaultdict(set)
    for name, value in state.items():
        by_place[value.data_ptr(), tuple(value.shape)].add(name)
    return {name: names for names in by_place.values() for name in names}


def _list_names(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def _other_version(checkpoint: Checkpoint) -> str:
    return f"these may be weights of another version of {checkpoint.family}: {AGAIN}, or open an issue"


def class_variables_are_valid(subject: Subject) -> str:
    """`name` is the name of its entry point; stacks, modality and batch are declared; `load` takes a device."""
    model = subject.model
    demand(model.name == subject.name, f"got name {model.name!r}, the family was requested as {subject.name!r}")
    demand(bool(model.stacks) and len(set(model.stacks)) == len(model.stacks), f"stacks {model.stacks} are no names")
    demand(model.output_stack in model.stacks, f"output_stack {model.output_stack!r} is none of {model.stacks}")
    demand(model.modality in get_args(Modality), f"modality {model.modality!r}, expected one of {get_args(Modality)}")
    demand(type(model.batch) is int and model.batch > 0, f"batch {model.batch!r}, expected windows of a forward pass")
    demand(model.width > 0, f"width {model.width}, expected a positive one")
    demand("device" in inspect.signature(subject.family.load).parameters, "`load` takes no keyword `device`")
    return f"{model.name}, {model.modality}, stacks {', '.join(model.stacks)}, width {model.width}"


def a_seed_decides_the_weights(subject: Subject) -> str:
    """`new` draws the same weights of the same seed, others of another, and leaves torch's own generator alone."""
    import torch

    config, before = subject.made_by, torch.random.get_rng_state()
    first, again, reseeded = (_weights(subject.family.new(config, seed=seed)) for seed in (SEED, SEED, SEED + 1))
    demand(
        torch.equal(torch.random.get_rng_state(), before), "torch's global generator moved; see checkpoint_folder.build"
    )
    same_bits(again, first, f"weights of seed {SEED} made twice")
    changed = [name for name, values in first.items() if not np.array_equal(reseeded[name], values)]
    demand(bool(changed), "another seed draws the same weights")
    return f"{len(changed)} of {len(first)} tensors are drawn"


def a_wrong_config_is_named(subject: Subject) -> str:
    """`new` refuses a key that it does not know with a ValueError that names it."""
    try:
        subject.family.new({**subject.made_by, MISSPELT: 1}, seed=SEED)
    except ValueError as error:
        demand(MISSPELT in str(error), f"the error names no key: {error}")
        return str(error)[:80]
    raise AssertionError("a key that is not known was taken without a word; see checkpoint_folder.filled_config")


def a_saved_model_loads_as_it_was(subject: Subject) -> str:
    """Saved and loaded, a model has the same tokens, states and forecasts, bit for bit."""
    loaded, windows = subject.copy(), subject.windows()
    tokens = loaded.tokenize(windows)
    same_bits(tokens.arrays, subject.tokens.arrays, "tokens of the loaded model")
    same_bits(states_of(loaded, tokens), subject.states, "states of the loaded model")
    demand(dict(loaded.layers) == dict(subject.model.layers), f"layers {loaded.layers} of {subject.model.layers}")
    if isinstance(loaded, Forecaster):
        seeds = list(range(len(windows)))
        before, after = (model.forecast(windows, seeds=seeds).values for model in (subject.forecaster, loaded))
        same_bits({"values": after}, {"values": before}, "forecasts of the loaded model")
    return f"{len(subject.states)} layers"


def a_checkpoint_is_safe_and_whole(subject: Subject) -> str:
    """A saved folder has config.json and safetensors, nothing pickled, the same bytes when saved again."""
    folder, again = subject.saved_folder, subject.scratch / "again"
    names = sorted(path.name for path in folder.iterdir())
    demand("config.json" in names, f"got {names}, expected config.json")
    demand(any(name.endswith(".safetensors") for name in names), f"got {names}, expected *.safetensors")
    pickled = [name for name in names if name.endswith(PICKLED_SUFFIXES)]
    demand(not pickled, f"{pickled} are pickled: reading them runs code")
    subject.model.save(again)
    for name in names:
        demand((again / name).read_bytes() == (folder / name).read_bytes(), f"{name} has other bytes when saved again")
    facts = registry.facts(folder)
    return f"{facts['parameters']} parameters, {facts['bytes']} bytes"


def a_broken_checkpoint_is_refused(subject: Subject) -> str:
    """A folder that is missing, has no config, a broken one, no weights or cut ones, ends in a ModelError."""
    for name, damage in _DAMAGES.items():
        folder = subject.scratch / name.replace(" ", "-")
        shutil.copytree(subject.saved_folder, folder)
        damage(folder)
        try:
            subject.family.load(folder)
        except ModelError:
            continue
        except Exception as error:
            demand(False, f"{name}: got {type(error).__name__} ({error}), expected a ModelError")
        demand(False, f"{name}: loads without a word")
    return ", ".join(_DAMAGES)


def half_precision_loads_in_float32(subject: Subject) -> str:
    """Weights stored as float16 or bfloat16 load in float32, as the numbers that they were rounded to."""
    import torch

    weights, results = _weights(subject.copy()), []
    for dtype in (torch.float16, torch.bfloat16):
        folder = subject.scratch / str(dtype).removeprefix("torch.")
        shutil.copytree(subject.saved_folder, folder)
        _store_as(folder, dtype)
        try:
            loaded = subject.family.load(folder)
        except ModelError as error:
            raise NotApplicable(f"weights in {folder.name} are refused: {error}") from error
        parts = {part.dtype for part in loaded.network.parameters() if part.dtype.is_floating_point}
        demand(parts <= {torch.float32}, f"{folder.name}: parameters are {parts}, expected float32")
        rounded = {name: torch.from_numpy(values).to(dtype).float().numpy() for name, values in weights.items()}
        loaded_weights, changed = _weights(loaded), 0
        # Tensors that are computed and not stored keep their values.
        for name, values in weights.items():
            is_rounded = np.array_equal(loaded_weights[name], rounded[name])
            demand(
                is_rounded or np.array_equal(loaded_weights[name], values), f"{folder.name}: {name} is another number"
            )
            changed += is_rounded and not np.array_equal(values, rounded[name])
        demand(changed > 0, f"{folder.name}: no weight is the rounded one; were the files read?")
        results.append(f"{folder.name}: {changed} tensors")
    return ", ".join(results)


def _weights(model: Any) -> dict[str, np.ndarray]:
    """Return the floating-point tensors of a network's state dict, by name."""
    state: Mapping[str, Any] = model.network.state_dict()
    return {name: value.detach().cpu().numpy().copy() for name, value in state.items() if value.is_floating_point()}


def _store_as(folder: Path, dtype: Any) -> None:
    """Round the weights in a folder's files, in place."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
        cast = {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
        save_file(cast, path, metadata)


def _cut(folder: Path) -> None:
    for path in folder.glob("*.safetensors"):
        os.truncate(path, path.stat().st_size - CUT)


def _weightless(folder: Path) -> None:
    for path in folder.glob("*.safetensors"):
        path.unlink()


_DAMAGES: Mapping[str, Callable[[Path], object]] = {
    "no folder": shutil.rmtree,
    "no config": lambda folder: (folder / "config.json").unlink(),
    "broken config": lambda folder: (folder / "config.json").write_text("{"),
    "no weights": _weightless,
    "cut weights": _cut,
}
