"""One model on the windows of one data set, which `inspect`, `states` and `certify` share."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tsfmscope import layer_states
from tsfmscope.defaults import CONTEXT, HELD_OUT, MIN_CONTEXT
from tsfmscope.errors import ArgumentError, DataError
from tsfmscope.functions.load import Model
from tsfmscope.models.base import NEAR, Family
from tsfmscope.models.types import Tokens
from tsfmscope.series.catalog import modality
from tsfmscope.series.types import count_reasons, describe_reasons
from tsfmscope.series.user_data import NamedSeries
from tsfmscope.series.windows import Observed, longest_context

logger = logging.getLogger("tsfmscope")

# Steps of context by modality, as in the studies of both papers: bytes of text, the values of a picture of 32 x 32
# pixels in three colours, and the cells of a table.
CONTEXTS = {"series": CONTEXT, "text": 512, "image": 3072, "table": 576}


class Tokenized(NamedTuple):
    """Tokens of a case's windows, and the steps of context that were observed.

    skipped: reason -> number of series without a window. notes: sentences on steps that the model does not read, and
    on contexts whose results depend on the unit of the data.
    """

    tokens: Tokens
    skipped: Mapping[str, int]
    observed: Observed
    notes: list[str]


@dataclass(frozen=True)
class Case:
    """One model on one data set.

    context, horizon: steps. noise: standard deviation of the noise on the context, in standard deviations of the
    series.
    """

    model: Model
    data: NamedSeries
    context: int
    horizon: int
    seed: int
    noise: float = 0.0

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Columns that name the model, the data set and the condition."""
        noise = f"-noise-{self.noise:g}" if self.noise else ""
        return {
            "model": self.model.source.name,
            "base_model": self.model.source.base_model,
            "dataset": self.data.name,
            "condition": f"context-{self.context}{noise}",
            "context": self.context,
            "noise": self.noise,
        }

    @property
    def min_context(self) -> int:
        """Fewest observed steps of a window's context."""
        # The one window of an image or a table is the whole item; a part of an image is no input.
        return self.context if self.model.family.modality in ("image", "table") else MIN_CONTEXT

    def tokenize(self, rows: int) -> Tokenized:
        """Tokenise windows until every stack has `rows` tokens, and log the notes.

        Futures of a bundled data set lie in the last HELD_OUT of its series. Raises DataError if no series gives a
        window.
        """
        family = self.model.family
        sample = layer_states.tokenize(
            family,
            self.data.loaded.series,
            context=self.context,
            horizon=self.horizon,
            rows=rows,
            seed=self.seed,
            min_context=self.min_context,
            held_out=HELD_OUT if self.data.dataset.source == "bundled" else None,
            noise=self.noise,
        )
        skipped = count_reasons(sample.skipped)
        if sample.tokens is None:
            raise DataError(
                f"{self.data.name}: no window of {self.context} steps of context and a horizon of {self.horizon}: "
                f"{describe_reasons(skipped)}; shorten the horizon, or give longer series"
            )
        steps = sample.observed
        longest = longest_context(self.data.loaded.series, self.horizon)
        read_context = min(self.context, family.max_context or self.context)
        observed = Observed(read_context, int(steps.min()), float(np.median(steps)), longest)
        notes = [
            *reading_notes(self.model.name, family.max_context, self.context),
            *floor_notes(family, self.model.name, self.data.name, sample.near_floor, len(steps)),
        ]
        for note in notes:
            logger.warning(note)
        return Tokenized(sample.tokens, skipped, observed, notes)


def make_case(
    model: Model, data: NamedSeries, *, context: int | None, horizon: int | None, seed: int, noise: float = 0.0
) -> Case:
    """Return the case of a model and series. None: the context of CONTEXTS, the horizon of the data set.

    Raises ArgumentError if the model reads data of another modality.
    """
    kind = modality(data.dataset.source)
    if model.family.modality != kind:
        reads = model.family.modality
        raise ArgumentError(f"{data.name}: {kind} data, but model {model.name} reads {reads}; name other data")
    return Case(model, data, context or CONTEXTS[kind], horizon or data.dataset.horizon, seed, noise)


def reading_notes(name: str, max_context: int | None, context: int) -> Iterator[str]:
    """Yield a sentence if the model of this name reads only the last `max_context` steps of a context."""
    if max_context is not None and context > max_context:
        yield f"context {context}: {name} reads the last {max_context} steps"


def floor_notes(model: Family, name: str, dataset: str, n_near: int, n_contexts: int) -> Iterator[str]:
    """Yield a sentence if some contexts of a data set vary by little more than the family's floor."""
    if n_near:
        yield (
            f"{dataset}: {n_near} of {n_contexts} contexts have a standard deviation of at most "
            f"{NEAR * model.deviation_floor:.2g}, where results of {name} depend on the unit of the data; multiply the "
            "values, for example by 1000 (docs/models.md)"
        )
