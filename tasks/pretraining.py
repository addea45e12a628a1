"""Entry of the trainings of stages checkpoints and pretraining."""

from __future__ import annotations

from pathlib import Path

from tasks.job import Job, Result, current_context, report
from tasks.parts import Spec
from tsfmscope.training import pretraining
from tsfmscope.training.options import Recipe


class EmbeddingSource(Spec):
    """Checkpoint whose embedding is copied: its folder and the key of the job that made it."""

    folder: str
    key: str


class PretrainSpec(Spec):
    """Spec of `pretrain`; code: version of the package that adds the family."""

    model: str
    recipe: Recipe
    code: str | None = None
    embedding: EmbeddingSource | None = None


def pretrain(job: Job, folder: Path, model: None) -> Result:
    """Train a model by a recipe, save it under `folder`, and return its rows of `training`."""
    spec = PretrainSpec.from_job(job)
    embedding = dict(spec.embedding) if spec.embedding else None
    context = current_context()
    result = pretraining.pretrain(
        spec.recipe, folder, model=spec.model, key=job.key, embedding=embedding,
        device=context.device, processes=context.processes, report=report,
    )  # fmt: skip
    return Result(result.rows, tokens=result.n_values)
