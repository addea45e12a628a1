"""Stage geometry: isotropy and effective dimension of every layer that a study asks for."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tsfmscope.stages import DATA
from tsfmscope.stages.config.params import Params
from tsfmscope.stages.pipeline import planning
from tsfmscope.stages.pipeline.sweeping import Planned, open_store, sweep
from tsfmscope.store.dumps import LayerKey, last_layers, layers, read_states
from tsfmscope.tasks.job import Job, Task

TASK = Task("measure", 3, "tsfmscope.tasks.entries.geometry:entry", table="geometry")


def main(params: Params) -> None:
    """Write data/geometry."""
    with open_store("geometry", params) as out:
        sweep(out, plan(params), params, functools.partial(read_states, Path.cwd()))


def plan(params: Params) -> Iterator[Planned]:
    """Yield one job per layer of an embedding dump.

    Studies that ask for the last layer get each stack's last state.
    """
    asked = planning.cells(params, ["isotropy"])
    for row in planning.dumps("embeddings"):
        studies = asked.get(planning.Cell(row["model"], row["dataset"], row["condition"]), [])
        path = Path(DATA, "embeddings", row["path"])
        held = layers(path)
        last = last_layers(held)
        for place in held:
            if wanting := planning.wanting(params, studies, place, held):
                of_layer = spec(params, row, place, is_last=place in last)
                yield Planned(Job(TASK, of_layer, {path.as_posix(): row["fingerprint"]}), wanting)


def spec(params: Params, row: Mapping[str, Any], place: LayerKey, *, is_last: bool) -> dict[str, Any]:
    """Return the spec of a layer's job.

    row: the row of its embedding dump in `dumps`. is_last: whether the layer is the last state of its stack.
    """
    measure = params.geometry.model_dump(exclude={"rows", "cai"})
    return {
        **planning.row_identity(row),
        **dict(zip(("stack", "layer", "normed"), place, strict=True)),
        "weights_dtype": params.models[row["model"]].precision,
        "tokens": params.geometry.rows,
        "seed": params.seed,
        "measure": measure | {"presets": _presets(params.geometry.cai, is_last)},
    }


def _presets(cai: str, is_last: bool) -> list[str]:
    return ["isoscore", "cai"] if cai == "all" or (cai == "last" and is_last) else ["isoscore"]
