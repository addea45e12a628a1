"""Stage embeddings: hidden states of every layer of every stack, from the token dump of each cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stages import DATA
from stages.config.params import Params
from stages.planning import planning
from stages.planning.sweeping import PlannedJob, sweep_stage
from store.dumps import read_table
from tasks.embeddings import EmbedSpec, SampledModel
from tasks.job import Job, Task
from tasks.parts import CellIdentity

TASK = Task("embed", 5, "tasks.embeddings:embed", "tasks.parts:load_model", table="dumps")


def main(params: Params) -> None:
    """Write data/embeddings."""
    sweep_stage("embeddings", plan(params), params, read_table)


def plan(params: Params) -> Iterator[PlannedJob]:
    """Yield one job per token dump that has windows."""
    models = planning.checkpoints()
    for row in planning.dumps("tokens"):
        if row["model"] not in params.models or not row["n_windows"]:
            continue
        dump = Path(DATA, "tokens", row["path"])
        inputs = planning.inputs(models[row["model"]], dump)
        of_dump = spec(params, CellIdentity.part_of(row), models).to_dict()
        yield PlannedJob(Job(TASK, of_dump, inputs, group=row["model"]))


def spec(params: Params, cell: CellIdentity, models: Mapping[str, Mapping[str, Any]]) -> EmbedSpec:
    """Return the spec of a token dump's job; models: rows of `checkpoints` by model."""
    original, sampled_as = planning.find_original(params, cell.model), None
    # A model made from another one samples the same tokens, so that only the model differs.
    if original != cell.model and original in models:
        source = planning.model_source(models[original])
        sampled_as = SampledModel(model=original, base_model=None, **dict(source))
    return EmbedSpec(
        **dict(cell),
        **dict(planning.model_source(models[cell.model])),
        **dict(params.embeddings),
        seed=params.seed,
        format="arrow",
        sampled_as=sampled_as,
    )
