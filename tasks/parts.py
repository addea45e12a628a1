"""Specs of jobs: their base class and the parts that several share; the loader of a job's model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field

from tasks.job import Job, current_context
from tsfmscope.models import registry
from tsfmscope.strict import Strict

if TYPE_CHECKING:
    from tsfmscope.models.base import Family


class Spec(Strict):
    """Base class of the specs of jobs, which plan and run a job with the same names and types.

    A spec inherits the parts that it shares with others, such as `CellIdentity`, and the options that it takes from
    params.yaml, or contains them as a field.
    """

    @classmethod
    def from_job(cls, job: Job) -> Self:
        """Return the spec of a job. ValueError for an entry that is unknown, missing or of another type."""
        return cls.model_validate(job.spec)

    @classmethod
    def part_of(cls, entries: Mapping[str, Any]) -> Self:
        """Return the spec from entries that may contain others; raises what `from_job` raises."""
        return cls.model_validate({name: entries[name] for name in cls.model_fields if name in entries})


class Identity(Spec):
    """Columns of `job.IDENTITY`; data set and condition are None in rows about a model alone.

    size_parameter, size_rule: what a compressed model was asked for.
    """

    model: str
    base_model: str | None
    size_parameter: float | None
    size_rule: str | None
    dataset: str | None
    condition: str | None
    context: int | None
    noise: float | None


class CellIdentity(Identity):
    """Columns of `job.IDENTITY` that name a cell: a model on a data set under one condition.

    context: steps. noise: standard deviation, in standard deviations of the series.
    """

    dataset: str
    condition: str
    context: int
    noise: float


class LayerPlace(Spec):
    """Layer of hidden states, as in `job.LAYER`; 0 is the embedding. normed: states after the final norm."""

    stack: str
    layer: int
    normed: bool


class ModelSource(Spec):
    """Model to load: name of its family, ref (folder or hub reference), and keywords of `registry.load`."""

    family: str
    ref: str
    options: Mapping[str, Any] = Field(default_factory=dict)


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


def load_model(job: Job) -> Family:
    """Load the model of a job on the actor's device; raises what `registry.load_planned` raises."""
    return load_source(job, ModelSource.part_of(job.spec))


def load_source(job: Job, source: ModelSource) -> Family:
    """Load a model that is among a job's inputs; raises what `registry.load_planned` raises."""
    context = current_context()
    return registry.load_planned(
        source.family,
        source.ref,
        planned=job.inputs.get(f"model:{source.ref}"),
        device=context.device,
        options=source.options,
    )
