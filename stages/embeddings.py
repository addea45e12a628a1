"""Hidden states of every layer of every stack: one dump a cell, read from the token dump alone."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stages import DATA, planning
from stages.params import Params
from stages.sweeping import Planned, opened, sweep
from store.dumps import read_table
from tasks.sweep.jobs import Job, Task

TASK = Task("embed", 4, "tasks.models.embed:embed", "tasks.models.registry:load_for_job", table="dumps")


def main(params: Params) -> None:
    """Write data/embeddings."""
    with opened("embeddings", ["dumps"], params) as out:
        sweep(out, plan(params), params, functools.partial(read_table, Path.cwd()))


def plan(params: Params) -> Iterator[Planned]:
    """One job a token dump that has windows."""
    models = planning.checkpoints()
    for row in planning.dumps("tokens"):
        if row["model"] not in params.models or not row["n_windows"]:
            continue
        dump = Path(DATA, "tokens", row["path"])
        inputs = planning.inputs(models[row["model"]], dump)
        yield Planned(Job(TASK, spec(params, row, models), inputs, group=row["model"]))


def spec(params: Params, row: Mapping[str, Any], models: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Of the job of a token dump. row: its row of `dumps`; models: rows of `checkpoints` by model."""
    found: dict[str, Any] = {
        **planning.row_identity(row),
        **planning.model_spec(models[row["model"]]),
        "rows": params.embeddings.rows,
        "batch": params.embeddings.batch,
        "store_dtype": params.embeddings.store_dtype,
        "format": "arrow",
    }
    first = planning.first_of(params, row["model"])
    if first != row["model"] and first in models:  # the same tokens: what differs is the model and not the sample
        base = {"model": first, "base_model": None, "rank": None}
        found["sampled_as"] = base | planning.model_spec(models[first])
    return found
