"""Loaders that tasks of several stages share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.job import Job, current_context
from tasks.parts import ModelSource
from tsfmscope.models import registry

if TYPE_CHECKING:
    from tsfmscope.models.base import Family


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
