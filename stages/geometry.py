"""Stage geometry: isotropy and effective dimension of every layer that a study asks for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stages import DATA
from stages.config.params import Params
from stages.planning import planning
from stages.planning.sweeping import PlannedJob, sweep_stage
from store.dumps import LayerKey, last_layers, layers, read_states
from tasks.geometry import GeometrySpec, MeasureSpec
from tasks.job import Job, Task
from tasks.parts import CellIdentity
from tsfmscope.geometry import measures
from tsfmscope.geometry.options import IsotropyOptions

TASK = Task("measure", measures.VERSION, "tasks.geometry:entry", table="geometry")


def main(params: Params) -> None:
    """Write data/geometry."""
    sweep_stage("geometry", plan(params), params, read_states)


def plan(params: Params) -> Iterator[PlannedJob]:
    """Yield one job per layer of an embedding dump.

    Studies that ask for the last layer get each stack's last state.
    """
    cells = planning.cells(params, ["isotropy"])
    for row in planning.dumps("embeddings"):
        studies = cells.get(planning.Cell(row["model"], row["dataset"], row["condition"]), [])
        path = Path(DATA, "embeddings", row["path"])
        layer_keys = layers(path)
        cell, last = CellIdentity.part_of(row), last_layers(layer_keys)
        for layer_key in layer_keys:
            if requesting := planning.studies_of_layer(params, studies, layer_key, layer_keys):
                layer_spec = spec(params, cell, layer_key, is_last=layer_key in last)
                yield PlannedJob(Job(TASK, layer_spec.to_dict(), {path.as_posix(): row["fingerprint"]}), requesting)


def spec(params: Params, cell: CellIdentity, layer_key: LayerKey, *, is_last: bool) -> GeometrySpec:
    """Return the spec of a layer's job; is_last: whether the layer is the last state of its stack."""
    block = params.geometry
    stack, layer, normed = layer_key
    adds_cai = block.cai == "all" or (block.cai == "last" and is_last)
    return GeometrySpec(
        **dict(cell),
        stack=stack,
        layer=layer,
        normed=normed,
        weights_dtype=params.models[cell.model].precision,
        tokens=block.rows,
        seed=params.seed,
        measure=MeasureSpec(**block.part(IsotropyOptions), presets=("isoscore", "cai") if adds_cai else ("isoscore",)),
    )
