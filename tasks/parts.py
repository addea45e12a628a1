"""Parts that the specs of several tasks have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from tasks.spec import Spec


@dataclass(frozen=True, kw_only=True)
class CellIdentity(Spec):
    """Columns of `job.IDENTITY` that name a cell: a model on a data set under one condition.

    size_parameter, size_rule: what a compressed model was asked for. context: steps. noise: standard
    deviation, in standard deviations of the series.
    """

    model: str
    base_model: str | None
    size_parameter: float | None
    size_rule: str | None
    dataset: str
    condition: str
    context: int
    noise: float


@dataclass(frozen=True, kw_only=True)
class ModelIdentity(Spec):
    """Columns of `job.IDENTITY` in rows about a model alone, without a data set and a condition."""

    model: str
    base_model: str | None
    size_parameter: float | None
    size_rule: str | None
    dataset: None
    condition: None
    context: None
    noise: None

    @classmethod
    def of(
        cls,
        model: str,
        base_model: str | None = None,
        *,
        size_parameter: float | None = None,
        size_rule: str | None = None,
    ) -> Self:
        """Return the columns of a model."""
        return cls(
            model=model,
            base_model=base_model,
            size_parameter=size_parameter,
            size_rule=size_rule,
            dataset=None,
            condition=None,
            context=None,
            noise=None,
        )


@dataclass(frozen=True, kw_only=True)
class LayerPlace(Spec):
    """Columns that name a layer of hidden states, as `job.LAYER` lists them.

    layer: 0 is the embedding. normed: whether the states are those after the final norm.
    """

    stack: str
    layer: int
    normed: bool


@dataclass(frozen=True, kw_only=True)
class ModelSource(Spec):
    """Model that a worker loads.

    family: name in the registry. ref: folder or hub reference of the checkpoint. options: keywords of
    `registry.load`.
    """

    family: str
    ref: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class WindowOptions(Spec):
    """Options by which windows are cut from series.

    horizon: steps after the context. min_context: smallest number of observed steps in a context. held_out:
    share at the end of a series in which the future must lie, or None. seed: seed of windows and noise.
    history: steps before the context that a lagged family reads.
    """

    horizon: int
    min_context: int
    held_out: float | None
    seed: int
    history: int = 0
