"""The table of families that shared tests run on, read from the registry."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tsfmscope.conformance.package import load_package_network
from tsfmscope.models.base import Family, Forecaster
from tsfmscope.models.registry import FAMILIES, family_class
from tsfmscope.series.types import Windows

CHECKPOINTS = Path(__file__).parents[3] / "tsfmscope" / "checkpoints"
CLASSES: Mapping[str, type[Family]] = {name: family_class(name) for name in FAMILIES}


@functools.cache
def example_model(name: str) -> Any:
    """Return the small random model that a family's conformance is checked on; tests share it and do not change it."""
    return CLASSES[name].new_example(seed=1)


def change_config(folder: Path, **changes: Any) -> None:
    """Change keys of a saved model's config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def hard_windows(windows: Windows) -> Windows:
    """Put gaps, a constant, nothing, one step, a missing patch, a high level and zeros into the first rows."""
    context = windows.context
    context[0, :11] = np.nan
    context[1] = 3.0
    context[2] = np.nan
    context[3, :-1] = np.nan
    context[4, 16:25] = np.nan
    context[5] += 1000.0
    context[6:7] = 0.0
    windows.future[0, 3] = np.nan
    return windows


def shake(model: Any) -> Any:
    """Add noise to every vector among the weights: norms and biases of a new network are all alike."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for values in model.network.parameters():
            if values.ndim == 1:
                values += 0.3 * torch.randn(values.shape, generator=generator)
        for name, values in model.network.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                values += 0.3 * torch.rand(values.shape, generator=generator)
    return model


def package_network(model: Any, folder: Path) -> Any:
    """Return the network of the family's package with the weights of a model, which is saved to the folder."""
    model.save(folder)
    return load_package_network(model, folder)


def names(condition: Callable[[type[Family]], bool] = lambda cls: True) -> list[str]:
    """Return the names of the families whose class meets a condition, in the order of the registry."""
    return [name for name, cls in CLASSES.items() if condition(cls)]


FORECASTERS = names(lambda cls: issubclass(cls, Forecaster))
# The committed checkpoint of each family that has one.
COMMITTED = {
    name: folder
    for name in FAMILIES
    for size in ("mini", "nano")
    if (folder := CHECKPOINTS / f"{name}-{size}").is_dir()
}
OTHERS = names(lambda cls: not issubclass(cls, Forecaster))
# Families of which each has its own way of reading a folder.
READERS = ("chronos-t5", "lag-llama", "moirai", "tabular", "time-moe")
# Families whose attention layers can be compressed.
COMPRESSED = names(lambda cls: cls.attention_layers.__func__ is not Family.attention_layers.__func__)
