"""Stage heads: spectral alignment of attention heads, log-partition of softmax heads, bounds of Lemma 1.

Lemma 1 is that of Shelim et al. 2025. All measures are taken on the states that the heads read.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tsfmscope.stages import DATA
from tsfmscope.stages.config.params import Params
from tsfmscope.stages.pipeline import planning
from tsfmscope.stages.pipeline.sweeping import Planned, open_store, sweep
from tsfmscope.store.dumps import read_table
from tsfmscope.tasks.job import Job, Task
from tsfmscope.tasks.models import registry

LOADER = "tsfmscope.tasks.models.registry:load_for_job"
ALIGN = Task("align", 1, "tsfmscope.tasks.entries.heads:align", LOADER, table="alignment")
PARTITION = Task("head_partition", 1, "tsfmscope.tasks.entries.heads:partition", LOADER, table="partition")
LEMMA = Task("lemma1", 1, "tsfmscope.tasks.entries.heads:lemma", LOADER, table="jacobian")


def main(params: Params) -> None:
    """Write data/heads."""
    with open_store("heads", params) as out:
        sweep(out, plan(params), params, functools.partial(read_table, Path.cwd()))


def plan(params: Params) -> Iterator[Planned]:
    """Yield one job per token dump and measure that the model's family supports.

    A family that has neither plain q·k attention nor a softmax head supports none.
    """
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
        yield ALIGN, {"rows": block.rows, "batch": block.batch, "seed": params.seed}
        if block.lemma.windows:
            yield LEMMA, block.lemma.model_dump() | {"seed": params.seed}
    if has.softmax_head:
        yield PARTITION, {"rows": block.rows, "batch": block.batch, "seed": params.seed}
