"""The table of families that shared tests run on, read from the registry and the conformance examples."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tsfmscope.tasks.conformance.examples import EXAMPLES, prepare_model
from tsfmscope.tasks.models.base import Family, Forecaster
from tsfmscope.tasks.models.registry import FAMILIES, family_class

CHECKPOINTS = Path(__file__).parents[3] / "checkpoints"
CLASSES: Mapping[str, type[Family]] = {name: family_class(name) for name in FAMILIES}


@functools.cache
def example_model(name: str) -> Any:
    """Return the small random model that a family's conformance is checked on; tests share it and do not change it."""
    return prepare_model(CLASSES[name].new(EXAMPLES.get(name) or CLASSES[name].example, seed=1))


def names(condition: Callable[[type[Family]], bool] = lambda cls: True) -> list[str]:
    """Return the names of the families whose class meets a condition, in the order of the registry."""
    return [name for name, cls in CLASSES.items() if condition(cls)]


def has_checkpoint(name: str) -> bool:
    """Return whether a pretrained checkpoint of the family is committed."""
    return (CHECKPOINTS / f"{name}-nano").is_dir()


FORECASTERS = names(lambda cls: issubclass(cls, Forecaster))
OTHERS = names(lambda cls: not issubclass(cls, Forecaster))
# Families whose attention layers can be compressed.
COMPRESSED = names(lambda cls: cls.attentions is not Family.attentions)
