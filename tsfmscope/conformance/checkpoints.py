"""Checks of making, saving and loading a model: seeds, files, refusals, weights in half precision."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import numpy as np

from tsfmscope.conformance.errors import NotApplicable
from tsfmscope.conformance.subject import SEED, Subject, same_bits, states_of
from tsfmscope.conformance.verdict import demand
from tsfmscope.errors import ModelError
from tsfmscope.models import registry
from tsfmscope.models.base import Forecaster
from tsfmscope.series.catalog import Modality

# Suffixes of pickled files, which run code when they are read.
PICKLED = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
MISSPELT = "no_such_key_of_a_config"
# Bytes that a damaged file lacks.
CUT = 100


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
    pickled = [name for name in names if name.endswith(PICKLED)]
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
        path.write_bytes(path.read_bytes()[:-CUT])


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
