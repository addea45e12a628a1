"""Stage heads: spectral alignment of attention heads, log-partition of softmax heads, bounds of Lemma 1.

Lemma 1 is that of Shelim et al. 2025. All measures are taken on the states that the heads read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stages import DATA
from stages.config.params import Params
from stages.planning import planning
from stages.planning.sweeping import PlannedJob, sweep_stage
from store.dumps import read_table
from tasks.heads import HeadsOptions, HeadsSpec, LemmaSpec
from tasks.job import Job, Task
from tasks.parts import CellIdentity, Spec
from tsfmscope.models import registry

LOADER = "tasks.parts:load_model"
ALIGN = Task("align", 2, "tasks.heads:align", LOADER, table="alignment")
PARTITION = Task("head_partition", 2, "tasks.heads:partition", LOADER, table="partition")
LEMMA = Task("lemma1", 2, "tasks.heads:lemma", LOADER, table="jacobian")


def main(params: Params) -> None:
    """Write data/heads."""
    sweep_stage("heads", plan(params), params, read_table)


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
        source, block, has = planning.model_source(model), params.heads, registry.family_class(model["family"])
        subject: dict[str, Any] = {**dict(CellIdentity.part_of(row)), **dict(source), "seed": params.seed}
        heads, lemma = HeadsSpec(**subject, **block.part(HeadsOptions)), LemmaSpec(**subject, **dict(block.lemma))
        specs: list[tuple[Task, Spec]] = []
        if has.plain_attention:
            specs += [(ALIGN, heads), *([(LEMMA, lemma)] if block.lemma.windows else [])]
        if has.softmax_head:
            specs.append((PARTITION, heads))
        for task, spec in specs:
            yield PlannedJob(Job(task, spec.to_dict(), inputs, group=row["model"]))
