"""A family under test: a small model of it, and windows that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from tasks.models.base import Family, Forecaster
from tasks.models.conformance.examples import EXAMPLES, ready
from tasks.models.conformance.verdict import Failed, NotApplicable
from tasks.models.registry import family_class, resolve
from tasks.models.types import Tokens
from tasks.series import contrast
from tasks.series.types import Windows

States = dict[tuple[str, int, bool], np.ndarray]  # stack, layer, normed -> [W, T, d]
LONGEST_TEXT, TEXT_FUTURE = 60, 12  # bytes of a window of text
ITEM = (12, 8)  # rows of a table, and what is drawn of it; images are 8 x 8
SEED = 1


@dataclass(frozen=True, eq=False)
class Subject:
    """A model of a family, and where to write.

    name: as it was asked for; config: what made the model, None where it was loaded from a checkpoint; context,
    horizon: steps of the windows that it is given; scratch: a folder of its own.
    """

    name: str
    model: Family
    config: Mapping[str, Any] | None
    scratch: Path
    context: int = 48
    horizon: int = 12

    @classmethod
    def of(
        cls,
        name: str,
        scratch: Path,
        *,
        checkpoint: str | None = None,
        config: Mapping[str, Any] | None = None,
        **steps: int,
    ) -> Self:
        """Of a family by name: its checkpoint where one is named, else a small random model of the config.

        config: by default the family's example. ValueError for an unknown family or config, ModelError for what cannot
        be imported or loaded.
        """
        family = family_class(name)
        if checkpoint is not None:
            return cls(name, family.load(resolve(checkpoint).folder), None, scratch, **steps)
        config = config or EXAMPLES.get(name) or family.example
        return cls(name, ready(family.new(config, seed=SEED)), config, scratch, **steps)

    @property
    def family(self) -> type[Family]:
        """The model's class."""
        return type(self.model)

    @property
    def forecaster(self) -> Forecaster:
        """The model, where it forecasts."""
        if not isinstance(self.model, Forecaster):
            raise NotApplicable("the family forecasts nothing (it is no Forecaster)")
        return self.model

    @property
    def of_series(self) -> Family:
        """The model, where it reads time series: other items are whole or nothing."""
        if self.model.modality != "series":
            raise NotApplicable(f"the family reads items of modality {self.model.modality}, which are whole or nothing")
        return self.model

    @property
    def made_by(self) -> Mapping[str, Any]:
        """The config that made the model."""
        if self.config is None:
            raise NotApplicable("a checkpoint was given, and no config for `new`")
        return self.config

    def windows(self, count: int = 5, *, context: int | None = None, seed: int = 0) -> Windows:
        """Windows of the family's modality; random walks of series, with `context` steps where that is given."""
        rng = np.random.default_rng(seed)
        if self.model.modality == "series":
            steps = context or self.context
            walks = rng.normal(size=(count, steps + self.horizon)).cumsum(axis=1)
            return windows_of(walks[:, :steps], walks[:, steps:])
        if self.model.modality == "text":
            values: np.ndarray = rng.integers(32, 127, (count, LONGEST_TEXT))
            return windows_of(values[:, :-TEXT_FUTURE], values[:, -TEXT_FUTURE:])
        if self.model.modality == "image":
            items = [contrast.item(rng.integers(0, 256, (8, 8, 3))) for _ in range(count)]
        else:
            items = [contrast.item(contrast.draw_table(rng, *ITEM)) for _ in range(count)]
        values = np.stack(items)
        return windows_of(values[:, :-1], values[:, -1:])

    @cached_property
    def tokens(self) -> Tokens:
        """Of five windows."""
        return self.model.tokenize(self.windows())

    @cached_property
    def states(self) -> States:
        """Of `tokens`."""
        return states_of(self.model, self.tokens)

    @cached_property
    def saved(self) -> Path:
        """A folder that the model was saved in."""
        folder = self.scratch / "saved"
        self.model.save(folder)
        return folder

    def copy(self) -> Family:
        """Another model of the same weights, to be changed: from `saved`."""
        return self.family.load(self.saved)


def windows_of(context: np.ndarray, future: np.ndarray) -> Windows:
    """Windows of contexts [W, C] and futures [W, H], daily, of a week's season."""
    names = [f"s{n}" for n in range(len(context))]
    origin = np.full(len(context), context.shape[1], dtype=np.int64)
    return Windows(context.astype(np.float32), future.astype(np.float32), names, origin, "walks", "D", 7)


def states_of(model: Family, tokens: Tokens) -> States:
    """States of every layer."""
    return {(one.stack, one.layer, one.normed): one.states for one in model.hidden_states(tokens)}


def same_bits(found: Mapping[Any, np.ndarray], expected: Mapping[Any, np.ndarray], what: str) -> None:
    """Raises Failed, naming the first that differs."""
    if list(found) != list(expected):
        raise Failed(f"{what}: got {list(found)}, expected {list(expected)}")
    for key, values in expected.items():
        if not np.array_equal(found[key], values, equal_nan=values.dtype.kind == "f"):
            raise Failed(f"{what}: {key} is not the same bit for bit")
