"""Stage heads: spectral alignment of attention heads, log-partition of softmax heads, bounds of Lemma 1.

Lemma 1 is that of Shelim et al. 2025. All measures are taken on the states that the heads read.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stages import DATA
from stages.config.params import Params
from stages.planning import planning
from stages.planning.sweeping import PlannedJob, open_store, sweep
from store.dumps import read_table
from tasks.heads import HeadsOptions, HeadsSpec, LemmaSpec
from tasks.job import Job, Task
from tasks.parts import CellIdentity, ModelSource
from tsfmscope.models import registry

LOADER = "tasks.loading:load_model"
ALIGN = Task("align", 2, "tasks.heads:align", LOADER, table="alignment")
PARTITION = Task("head_partition", 2, "tasks.heads:partition", LOADER, table="partition")
LEMMA = Task("lemma1", 2, "tasks.heads:lemma", LOADER, table="jacobian")


def main(params: Params) -> None:
    """Write data/heads."""
    with open_store("heads") as out:
        sweep(out, plan(params), params, functools.partial(read_table, Path.cwd()))


def plan(params: Params) -> Iterator[PlannedJob]:
    """Yield one job per token dump and measure that the model's family supports.

    A family that has neither plain q·k attention nor a softmax head supports none.
    """
    models, cells = planning.checkpoints(), planning.cells(params, ["isotropy"])
    for row in planning.dumps("tokens"):
        if planning.Cell(row["model"], row["dataset"], row["condition"]) not in cells or not row["n_windows"]:
            continue
        model = models[row["model"]]
        inputs = planning.inputs(model, Path(DATA, "tokens", row["path"]))
        for task, spec in _specs(params, CellIdentity.part_of(row), planning.model_source(model)):
            yield PlannedJob(Job(task, spec.to_dict(), inputs, group=row["model"]))


def _specs(params: Params, cell: CellIdentity, source: ModelSource) -> Iterator[tuple[Task, HeadsSpec | LemmaSpec]]:
    block, has = params.heads, registry.family_class(source.family)
    subject: dict[str, Any] = {**dict(cell), **dict(source), "seed": params.seed}
    heads = HeadsSpec(**subject, **block.part(HeadsOptions))
    if has.plain_attention:
        yield ALIGN, heads
        if block.lemma.windows:
            yield LEMMA, LemmaSpec(**subject, **dict(block.lemma))
    if has.softmax_head:
        yield PARTITION, heads
