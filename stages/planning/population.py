"""Jobs that measure the validation loss of every snapshot of the population."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stages.config.params import Params
from stages.planning import planning
from stages.planning.sweeping import PlannedJob
from tasks.checkpoints import PopulationSpec
from tasks.job import Job, Task

TASK = Task(
    "validation_loss", 2, "tasks.checkpoints:measure_validation_loss", "tasks.parts:load_model", table="population"
)


def population_jobs(params: Params, rows: Iterable[Mapping[str, Any]]) -> Iterator[PlannedJob]:
    """Yield a job for all weights of the population that are on this machine. rows: rows of `checkpoints`."""
    if params.population is None:
        return
    rows_by_model = {row["model"]: row for row in rows}
    for member in params.population.members():
        if (row := rows_by_model.get(member.model)) is None:
            continue
        spec = PopulationSpec(
            **{name: getattr(member, name) for name in ("model", "run", "size", "step", "is_final")},
            **dict(planning.model_source(row)),
            recipe=params.checkpoints.recipes[member.run],
            batches=params.population.validation_batches,
            seed=params.seed,
        )
        yield PlannedJob(Job(TASK, spec.to_dict(), planning.inputs(row), group=member.run))
