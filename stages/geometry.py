"""Isotropy and effective dimension of every layer that a study asks for."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

from stages import DATA, planning
from stages.params import Params
from stages.sweeping import Planned, opened, sweep
from store.dumps import last_layers, layers, read_states
from tasks.sweep.jobs import Job, Task

TASK = Task("measure", 2, "tasks.geometry.measure:entry", table="geometry")


def main(params: Params) -> None:
    """Write data/geometry."""
    with opened("geometry", ["geometry"], params) as out:
        sweep(out, plan(params), params, functools.partial(read_states, Path.cwd()))


def plan(params: Params) -> Iterator[Planned]:
    """One job a layer of a dump; studies that ask for the last layer take each stack's last state."""
    asked = planning.cells(params, ["isotropy"])
    measure = params.geometry.model_dump(exclude={"rows", "cai"})
    for row in planning.dumps("embeddings"):
        studies = asked.get(planning.Cell(row["model"], row["dataset"], row["condition"]), [])
        path = Path(DATA, "embeddings", row["path"])
        held = layers(path)
        last = last_layers(held)
        for stack, layer, normed in held:
            wanting = planning.wanting(params, studies, (stack, layer, normed), held)
            if not wanting:
                continue
            spec = {
                **planning.row_identity(row),
                "stack": stack,
                "layer": layer,
                "normed": normed,
                "weights_dtype": "float32",
                "tokens": params.geometry.rows,
                "measure": measure | {"presets": _presets(params.geometry.cai, (stack, layer, normed) in last)},
            }
            yield Planned(Job(TASK, spec, {path.as_posix(): row["fingerprint"]}), wanting)


def _presets(cai: str, is_last: bool) -> list[str]:
    return ["isoscore", "cai"] if cai == "all" or (cai == "last" and is_last) else ["isoscore"]
