"""Entry of stage checkpoints that measures the skill of forecasters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tsfmscope.tasks.entries.parts import ModelSource
from tsfmscope.tasks.entries.spec import FLAT, Spec
from tsfmscope.tasks.forecasting.sine import sine_errors
from tsfmscope.tasks.job import Job, Result
from tsfmscope.tasks.training import held_out

if TYPE_CHECKING:
    from tsfmscope.tasks.models.base import Forecaster


@dataclass(frozen=True, kw_only=True)
class SkillOptions(Spec):
    """The block checkpoints.skill: options of `held_out.measure_skill`, which describes them."""

    windows: int
    context: int
    samples: int
    bootstrap: int


@dataclass(frozen=True, kw_only=True)
class SkillSpec(Spec):
    """Spec of `measure_skill`.

    recipe: key of the training job, or None where the training data are unknown. seed: seed of windows and
    samples.
    """

    model: str
    source: ModelSource = field(metadata=FLAT)
    recipe: str | None
    seed: int
    skill: SkillOptions


def measure_skill(job: Job, data: None, model: Forecaster) -> Result:
    """Measure the `skill` row of a model.

    Without a recipe the training data are unknown, so only sines are forecast and the other columns are
    null.
    """
    spec = SkillSpec.from_job(job)
    clean = sine_errors(model, context=spec.skill.context, samples=spec.skill.samples, seed=spec.seed)
    row = {"model": spec.model, "recipe": spec.recipe, "seed": spec.seed, **clean}
    if spec.recipe is None:
        return Result([row])
    return Result([row | held_out.measure_skill(model, **spec.skill.to_dict(), seed=spec.seed)])
