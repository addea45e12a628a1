"""Entries of stage checkpoints that measure the skill of forecasters and the validation loss of snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.job import Job, Result
from tasks.parts import ModelSource
from tsfmscope.forecasting.skill import sine_errors
from tsfmscope.training import held_out
from tsfmscope.training.options import Recipe, SkillOptions

if TYPE_CHECKING:
    from tsfmscope.models.base import Family, Forecaster


class SkillSpec(ModelSource):
    """Spec of `measure_skill`.

    recipe: key of the training job, or None where the training data are unknown. seed: seed of windows and
    samples.
    """

    model: str
    recipe: str | None
    seed: int
    skill: SkillOptions


def measure_skill(job: Job, data: None, model: Forecaster) -> Result:
    """Measure the `skill` row of a model.

    Without a recipe the training data are unknown, so only sines are forecast; the other columns are null.
    """
    spec = SkillSpec.from_job(job)
    clean = sine_errors(model, context=spec.skill.context, samples=spec.skill.samples, seed=spec.seed)
    row = {"model": spec.model, "recipe": spec.recipe, "seed": spec.seed, **clean}
    if spec.recipe is None:
        return Result([row])
    return Result([row | held_out.measure_skill(model, spec.skill, seed=spec.seed)])


class PopulationSpec(ModelSource):
    """Spec of `measure_validation_loss`.

    run, size, step, is_final: columns of the row. recipe: the recipe of the training. batches: number of batches. seed:
    seed of their series.
    """

    model: str
    run: str
    size: str
    step: int
    is_final: bool
    recipe: Recipe
    batches: int
    seed: int


def measure_validation_loss(job: Job, data: None, model: Family) -> Result:
    """Measure the `population` row of a snapshot: the loss of its weights on series of its recipe's mixture."""
    spec = PopulationSpec.from_job(job)
    loss, n_windows = held_out.validation_loss(model, spec.recipe, batches=spec.batches, seed=spec.seed)
    row = {
        "model": spec.model,
        "run": spec.run,
        "family": spec.family,
        "size": spec.size,
        "run_seed": spec.recipe.seed,
        "step": spec.step,
        "is_final": spec.is_final,
        "validation_loss": loss,
        "n_windows": n_windows,
        "seed": spec.seed,
    }
    return Result([row])
