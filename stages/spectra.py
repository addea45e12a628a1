"""Stage spectra: singular values of layers' inputs and weights, planes and angles of embedded tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stages import DATA
from stages.config.params import Params
from stages.planning import planning
from stages.planning.sweeping import PlannedJob, open_store, sweep
from store.dumps import layers, read_states, read_table
from tasks.job import Job, Task
from tasks.parts import CellIdentity, Spec
from tasks.spectra import ConstantSpec, PlaneSpec, RowAnglesSpec, TokenAnglesSpec, WeightsSpec
from tasks.state_spectra import GaussianSpec, InputSpec
from tsfmscope.models import registry

LOADER = "tasks.parts:load_model"
INPUT = Task("input_spectrum", 2, "tasks.state_spectra:input_spectrum", table="spectra")
GAUSSIAN = Task("gaussian_angles", 2, "tasks.state_spectra:gaussian_angles", table="angles")
WEIGHTS = Task("weight_spectra", 3, "tasks.spectra:weight_spectra", LOADER, table="spectra")
CONSTANT = Task("constant_spectra", 2, "tasks.spectra:constant_spectra", LOADER, table="spectra")
PLANE = Task("token_plane", 2, "tasks.spectra:token_plane", LOADER, table="planes")
TOKEN_ANGLES = Task("token_angles", 2, "tasks.spectra:token_angles", LOADER, table="angles")
ROW_ANGLES = Task("row_angles", 2, "tasks.spectra:row_angles", LOADER, table="angles")
# Tasks that read a token dump.
OF_TOKENS = {CONSTANT.name, PLANE.name, TOKEN_ANGLES.name}


def main(params: Params) -> None:
    """Write data/spectra."""
    with open_store("spectra") as out:
        sweep(out, plan(params), params, read)


def plan(params: Params) -> Iterator[PlannedJob]:
    """Yield one job per layer input, per model's weights or snapshot, per plane, and per set of angles."""
    models = planning.checkpoints()
    yield from _state_jobs(params)
    yield from _token_jobs(params, models)
    yield from _weight_jobs(params, models)


def read(job: Job) -> Any:
    """Return the data of a job: a layer's states, a token dump, or None."""
    if job.task.name == INPUT.name:
        return read_states(Path.cwd(), job)
    return read_table(Path.cwd(), job) if job.task.name in OF_TOKENS else None


def _state_jobs(params: Params) -> Iterator[PlannedJob]:
    cells = planning.cells(params, ["inputs"])
    for row in planning.dumps("embeddings"):
        studies = cells.get(planning.Cell(row["model"], row["dataset"], row["condition"]))
        if studies is None:
            continue
        path = Path(DATA, "embeddings", row["path"])
        layer_keys = layers(path)
        inputs = {path.as_posix(): row["fingerprint"]}
        cell, rounding = CellIdentity.part_of(row), planning.rounding(params, row["model"])
        for layer_key in layer_keys:
            if requesting := planning.studies_of_layer(params, studies, layer_key, layer_keys):
                stack, layer, normed = layer_key
                spec = InputSpec(**dict(cell), stack=stack, layer=layer, normed=normed, weights_dtype=rounding)
                yield PlannedJob(Job(INPUT, spec.to_dict(), inputs), requesting)


def _token_jobs(params: Params, models: Mapping[str, Mapping[str, Any]]) -> Iterator[PlannedJob]:
    measures = {CONSTANT: "constant", PLANE: "planes", TOKEN_ANGLES: "token_angles"}
    cells_by_task = {task: planning.cells(params, [measure]) for task, measure in measures.items()}
    for row in planning.dumps("tokens"):
        for task, cells in cells_by_task.items():
            cell = planning.Cell(row["model"], row["dataset"], row["condition"])
            if cell in cells and row["n_windows"]:
                model = models[row["model"]]
                subject = {**dict(CellIdentity.part_of(row)), **dict(planning.model_source(model))}
                spec: Spec = TokenAnglesSpec(**subject, tokens=params.spectra.angle_tokens)
                if task is CONSTANT:
                    spec = ConstantSpec(**subject, weights_dtype=planning.rounding(params, row["model"]))
                elif task is PLANE:
                    spec = PlaneSpec(**subject, tokens=params.spectra.plane_tokens, seed=params.seed)
                inputs = planning.inputs(model, Path(DATA, "tokens", row["path"]))
                yield PlannedJob(Job(task, spec.to_dict(), inputs, group=row["model"]), cells[cell])


def _weight_jobs(params: Params, models: Mapping[str, Mapping[str, Any]]) -> Iterator[PlannedJob]:
    weights, rows = (planning.studies_by_model(params, measure) for measure in ("weights", "row_angles"))
    for name, model in models.items():
        cell, source = planning.model_identity(params, name), planning.model_source(model)
        if name in weights:
            for step, snapshot in snapshots(model):
                spec = WeightsSpec(
                    **dict(cell),
                    **dict(source) | {"ref": snapshot["ref"]},
                    step=step,
                    weights_dtype=planning.rounding(params, name),
                )
                yield PlannedJob(Job(WEIGHTS, spec.to_dict(), planning.inputs(snapshot), name), weights[name])
        if name in rows:
            angles = RowAnglesSpec(**dict(cell), **dict(source), rows=params.spectra.angle_rows)
            yield PlannedJob(Job(ROW_ANGLES, angles.to_dict(), planning.inputs(model), name), rows[name])
    if studies := sorted({study for cell in planning.cells(params, ["token_angles"]).values() for study in cell}):
        for dimension in params.spectra.gaussian:
            gaussian = planning.without_cell(f"gaussian-{dimension}")
            vectors = GaussianSpec(**dict(gaussian), dimension=dimension, seed=params.seed)
            yield PlannedJob(Job(GAUSSIAN, vectors.to_dict()), studies)


def snapshots(model: Mapping[str, Any]) -> Iterator[tuple[int | None, dict[str, str]]]:
    """Yield the step and the reference and fingerprint of a model's weights.

    The finished model comes first, with step None; then the snapshots of its training.
    """
    yield None, {"ref": model["ref"], "fingerprint": model["fingerprint"]}
    for step, path in registry.snapshots(Path(model["ref"])).items():
        fingerprint = registry.with_code(model["family"], registry.fingerprint(path))
        yield step, {"ref": path.as_posix(), "fingerprint": fingerprint}
