"""Stage spectra: singular values of layers' inputs and weights, planes and angles of embedded tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tsfmscope.stages import DATA
from tsfmscope.stages.config.params import Params
from tsfmscope.stages.pipeline import planning
from tsfmscope.stages.pipeline.sweeping import Planned, environments, open_store, sweep
from tsfmscope.store.dumps import layers, read_states, read_table
from tsfmscope.tasks.job import Job, Task
from tsfmscope.tasks.models import registry

LOADER = "tsfmscope.tasks.models.registry:load_for_job"
INPUT = Task("input_spectrum", 1, "tsfmscope.tasks.entries.state_spectra:input_spectrum", table="spectra")
GAUSSIAN = Task("gaussian_angles", 1, "tsfmscope.tasks.entries.state_spectra:gaussian_angles", table="angles")
WEIGHTS = Task("weight_spectra", 2, "tsfmscope.tasks.entries.spectra:weight_spectra", LOADER, table="spectra")
CONSTANT = Task("constant_spectra", 1, "tsfmscope.tasks.entries.spectra:constant_spectra", LOADER, table="spectra")
PLANE = Task("token_plane", 1, "tsfmscope.tasks.entries.spectra:token_plane", LOADER, table="planes")
TOKEN_ANGLES = Task("token_angles", 1, "tsfmscope.tasks.entries.spectra:token_angles", LOADER, table="angles")
ROW_ANGLES = Task("row_angles", 1, "tsfmscope.tasks.entries.spectra:row_angles", LOADER, table="angles")
# Tasks that read a token dump.
OF_TOKENS = {CONSTANT.name, PLANE.name, TOKEN_ANGLES.name}
NO_DATA = dict.fromkeys(("dataset", "condition", "context", "noise"))


def main(params: Params) -> None:
    """Write data/spectra."""
    with open_store("spectra", ["spectra", "planes", "angles"], params) as out:
        sweep(out, plan(params), params, read)


def plan(params: Params) -> Iterator[Planned]:
    """Yield one job per layer input, per model's weights or snapshot, per plane, and per set of angles."""
    models = planning.checkpoints()
    yield from _of_states(params)
    yield from _of_tokens(params, models)
    yield from _of_weights(params, models)


def read(job: Job) -> Any:
    """Return the data of a job: a layer's states, a token dump, or None."""
    if job.task.name == INPUT.name:
        return read_states(Path.cwd(), job)
    return read_table(Path.cwd(), job) if job.task.name in OF_TOKENS else None


def _of_states(params: Params) -> Iterator[Planned]:
    asked = planning.cells(params, ["inputs"])
    for row in planning.dumps("embeddings"):
        studies = asked.get(planning.Cell(row["model"], row["dataset"], row["condition"]))
        if studies is None:
            continue
        path = Path(DATA, "embeddings", row["path"])
        held = layers(path)
        read_from = {path.as_posix(): row["fingerprint"]}
        for place in held:
            spec = {**planning.row_identity(row), **dict(zip(("stack", "layer", "normed"), place, strict=True))}
            spec |= planning.rounding(params, row["model"])
            if wanting := planning.studies_of_layer(params, studies, place, held):
                yield Planned(Job(INPUT, spec, read_from), wanting)


def _of_tokens(params: Params, models: Mapping[str, Mapping[str, Any]]) -> Iterator[Planned]:
    asked = {
        CONSTANT: (planning.cells(params, ["constant"]), {}),
        PLANE: (planning.cells(params, ["planes"]), {"tokens": params.spectra.plane_tokens, "seed": params.seed}),
        TOKEN_ANGLES: (planning.cells(params, ["token_angles"]), {"tokens": params.spectra.angle_tokens}),
    }
    for row in planning.dumps("tokens"):
        for task, (cells, how) in asked.items():
            cell = planning.Cell(row["model"], row["dataset"], row["condition"])
            if cell in cells and row["n_windows"]:
                model = models[row["model"]]
                spec = {**planning.row_identity(row), **planning.model_spec(model), **how}
                spec |= planning.rounding(params, row["model"]) if task is CONSTANT else {}
                inputs = planning.inputs(model, Path(DATA, "tokens", row["path"]))
                yield Planned(Job(task, spec, inputs, group=row["model"]), cells[cell])


def _of_weights(params: Params, models: Mapping[str, Mapping[str, Any]]) -> Iterator[Planned]:
    weights, rows = (_models(params, measure) for measure in ("weights", "row_angles"))
    for name, model in models.items():
        identity = {"model": name, "base_model": params.models[name].base_model, "rank": params.models[name].rank}
        spec = identity | NO_DATA | planning.model_spec(model)
        if name in weights:
            own = environments(params).get(name)
            for step, snapshot in _snapshots(model, own.digest if own else ""):
                inputs = planning.inputs(snapshot)
                of_step = spec | planning.rounding(params, name) | {"ref": snapshot["ref"], "step": step}
                yield Planned(Job(WEIGHTS, of_step, inputs, name), weights[name])
        if name in rows:
            how = {"rows": params.spectra.angle_rows}
            yield Planned(Job(ROW_ANGLES, spec | how, planning.inputs(model), name), rows[name])
    if studies := sorted({study for cell in planning.cells(params, ["token_angles"]).values() for study in cell}):
        for dimension in params.spectra.gaussian:
            spec = {"model": f"gaussian-{dimension}", "base_model": None, "rank": None, **NO_DATA}
            how = {"dimension": dimension, "seed": params.seed}
            yield Planned(Job(GAUSSIAN, spec | how), studies)


def _models(params: Params, measure: str) -> dict[str, list[str]]:
    """Return model -> the studies that ask for this measure of its weights."""
    asked: dict[str, list[str]] = {}
    for study, wanted in params.studies.items():
        for model in params.expand(study, "models") if measure in wanted.measures else ():
            asked.setdefault(model, []).append(study)
    return asked


def _snapshots(model: Mapping[str, Any], digest: str) -> Iterator[tuple[int | None, dict[str, str]]]:
    """Yield the step and the reference and fingerprint of a model's weights.

    The finished model comes first, with step None; then the snapshots of its training.
    """
    yield None, {"ref": model["ref"], "fingerprint": model["fingerprint"]}
    for step, path in registry.snapshots(Path(model["ref"])).items():
        fingerprint = registry.with_code(model["family"], registry.fingerprint(path), digest)
        yield step, {"ref": path.as_posix(), "fingerprint": fingerprint}
