"""Heads on what they read: spectral alignment, the softmax head's log-partition, and Lemma 1's bounds."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stages import DATA, planning
from stages.params import Params
from stages.sweeping import Planned, opened, sweep
from store.dumps import read_table
from tasks.models import registry
from tasks.sweep.jobs import Job, Task

LOADER = "tasks.models.registry:load_for_job"
ALIGN = Task("align", 1, "tasks.models.heads:align", LOADER, table="alignment")
PARTITION = Task("head_partition", 1, "tasks.models.heads:partition", LOADER, table="partition")
LEMMA = Task("lemma1", 1, "tasks.models.heads:lemma", LOADER, table="jacobian")


def main(params: Params) -> None:
    """Write data/heads."""
    with opened("heads", ["alignment", "partition", "jacobian"], params) as out:
        sweep(out, plan(params), params, functools.partial(read_table, Path.cwd()))


def plan(params: Params) -> Iterator[Planned]:
    """For each token dump, a job a measure that its family has; none for rotary attention without a softmax head."""
    models, asked = planning.checkpoints(), planning.cells(params, ["isotropy"])
    for row in planning.dumps("tokens"):
        if planning.Cell(row["model"], row["dataset"], row["condition"]) not in asked or not row["n_windows"]:
            continue
        model = models[row["model"]]
        spec = {**planning.row_identity(row), **planning.model_spec(model)}
        inputs = planning.inputs(model, Path(DATA, "tokens", row["path"]))
        for task, wanted in _asked(params, model["family"]):
            yield Planned(Job(task, spec | wanted, inputs, group=row["model"]))


def _asked(params: Params, family: str) -> Iterator[tuple[Task, dict[str, Any]]]:
    block, has = params.heads, registry.family_class(family)
    if has.plain_attention:
        yield ALIGN, {"rows": block.rows, "batch": block.batch}
        if block.lemma.windows:
            yield LEMMA, block.lemma.model_dump()
    if has.softmax_head:
        yield PARTITION, {"rows": block.rows, "batch": block.batch}
