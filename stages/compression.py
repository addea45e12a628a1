"""Stage compression: the compressed models that studies name as BASE@METHOD, and their fidelity.

Each compressed model is saved as a checkpoint and compared with its base.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tsfmscope.stages import DATA
from tsfmscope.stages.config.compression import Method
from tsfmscope.stages.config.params import Params, ParamsError
from tsfmscope.stages.pipeline import planning
from tsfmscope.stages.pipeline.model_folders import key_of, prune, publish, recipe, set_damaged_aside, work_folder
from tsfmscope.stages.pipeline.sweeping import Planned, environments, open_store, resources, run, sweep
from tsfmscope.store.dumps import read_table
from tsfmscope.store.files import read_parquet
from tsfmscope.store.stage_store import StageStore
from tsfmscope.tasks.defaults import HELD_OUT
from tsfmscope.tasks.entries.compression import (
    CalibrationSpec,
    CompressSpec,
    FidelityOptions,
    FidelitySpec,
    MethodSpec,
)
from tsfmscope.tasks.job import Job, Task
from tsfmscope.tasks.models import registry
from tsfmscope.tasks.series.catalog import modality

COMPRESS = Task(
    "compress",
    4,
    "tsfmscope.tasks.entries.compression:compress",
    "tsfmscope.tasks.entries.loading:load_model",
    table="compression",
)
FIDELITY = Task(
    "fidelity",
    1,
    "tsfmscope.tasks.entries.compression:measure_fidelity",
    "tsfmscope.tasks.entries.compression:load_pair",
    table="fidelity",
)
MODELS = Path(DATA, "compression", "models")


def main(params: Params) -> None:
    """Write data/compression: models/NAME; tables checkpoints, compression, compressed_heads, fidelity."""
    bases = planning.checkpoints(compressed=False)
    # A base without a row failed in the stage checkpoints.
    whole = (name for name, model in params.compressed.items() if model.base_model in bases)
    jobs = {name: compression_job(params, name, bases) for name in whole}
    _tell_of_missing(params)
    with open_store("compression") as out:
        for name, job in jobs.items():
            _keep_or_forget(out, MODELS / name, job)
        run(out, [Planned(job) for job in jobs.values()], resources(params), read)
        made = {name: job for name, job in jobs.items() if publish(MODELS / name, job)}
        prune(MODELS, jobs)
        rows = {name: _checkpoint(bases, params, name) for name in made}
        out.write("checkpoints", rows.values())
        out.write("compressed_heads", [row for name in made for row in _made(name)["parts"]])
        sweep(out, [*map(Planned, jobs.values()), *_fidelity(params, bases | rows)], params, read)


def compression_job(params: Params, name: str, bases: Mapping[str, Mapping[str, Any]]) -> Job:
    """Return the job that makes a compressed model.

    Its key depends on the base's files, the method and, if the method uses them, the calibration series.
    Raises ParamsError if the method needs calibration series and none is on this machine.
    """
    model, base = params.models[name], bases[str(params.models[name].base_model)]
    method, files, calibration = _method(params, name), [], None
    if method.reads_data:
        datasets = _calibration(params, name, base["modality"])
        files = [planning.series_file(params, dataset) for dataset in datasets]
        block = params.compression.calibration
        calibration = CalibrationSpec(
            windows=block.windows,
            context=block.context,
            horizon=block.horizon,
            datasets=tuple(datasets),
            seed=params.seed,
            held_out=HELD_OUT,
        )
    spec = CompressSpec(
        model=name,
        base_model=str(model.base_model),
        rank=model.rank,
        source=planning.stored_source(base),
        method=MethodSpec.parse(method.plain()),
        calibration=calibration,
    )
    # The job changes the model in place, so two jobs must not share a loaded model: each has a
    # group of its own.
    return Job(COMPRESS, spec.to_dict(), planning.inputs(base, *files), group=name)


def read(job: Job) -> Any:
    """Return the data of a job.

    A fidelity job gets the series of one data set. A compress job gets its folder and the calibration series
    by data set.
    """
    if job.task.name == FIDELITY.name:
        return read_table(Path.cwd(), job)
    series = {Path(path).stem: read_parquet(Path(path)) for path in job.inputs if path.endswith(".parquet")}
    return {"folder": work_folder(job), "series": series}


def _method(params: Params, name: str) -> Method:
    return params.compression.methods[name.rpartition("@")[2]]


def _calibration(params: Params, name: str, kind: str) -> list[str]:
    """Return the calibration data sets of a modality whose series are on this machine.

    Raises ParamsError if there is none.
    """
    named = params.compression.calibration.datasets
    alike = [one for one in named if modality(params.datasets.sets[one].source) == kind]
    found = [one for one in alike if planning.series_file(params, one).exists()]
    if not found:
        raise ParamsError(
            f"compression.calibration.datasets: got {named}, of which none at hand is of modality {kind!r}, which "
            f"{name} reads; name one that is"
        )
    return found


def _tell_of_missing(params: Params) -> None:
    """Print the calibration data sets without series, because models calibrated on other series differ."""
    named = params.compression.calibration.datasets
    missing = [one for one in named if not planning.series_file(params, one).exists()]
    if missing and any(_method(params, name).reads_data for name in params.compressed):
        print(f"compression: calibrated without {', '.join(missing)}, of which no series are at hand", flush=True)


def _keep_or_forget(out: StageStore, folder: Path, job: Job) -> None:
    """Store the row that a whole folder contains; delete rows without a folder, which are of no use."""
    for one in (folder, work_folder(job)):
        set_damaged_aside(one, "compression")
    if key_of(folder) == job.key:
        out.adopt("compression", job.key, [_recipe(folder)["row"]])
    elif key_of(work_folder(job)) != job.key:
        out.forget([job.key])


def _recipe(folder: Path) -> dict[str, Any]:
    found = recipe(folder)
    assert found is not None
    return found


def _made(name: str) -> dict[str, Any]:
    return _recipe(MODELS / name)


def _checkpoint(bases: Mapping[str, Mapping[str, Any]], params: Params, name: str) -> dict[str, Any]:
    """Return the row of `checkpoints` of a compressed model: its base's row with the model's own files."""
    found, own = registry.resolve((MODELS / name).as_posix()), environments(params).get(name)
    base = bases[str(params.models[name].base_model)]
    return {
        **{"model": name, "source": "compressed"},
        **{column: base[column] for column in ("family", "modality", "input_stack", "output_stack")},
        "ref": (MODELS / name).as_posix(),
        "fingerprint": registry.with_code(base["family"], found.fingerprint, own.digest if own else ""),
        "environment": own.described if own else None,
        **registry.facts(found.folder),
        **{"license": base["license"], "recipe": _made(name)["key"], "options": base["options"]},
    }


def _fidelity(params: Params, models: Mapping[str, Mapping[str, Any]]) -> Iterator[Planned]:
    """Yield one job per cell of a compressed model that a study asks for."""
    block = params.compression.fidelity
    for cell, studies in planning.cells(params, ["fidelity"], models).items():
        if cell.model not in params.compressed:
            continue
        model, base = models[cell.model], models[str(params.models[cell.model].base_model)]
        series = planning.series_file(params, cell.dataset)
        # Series shorter than the context are skipped, as Yu et al. 2026 do.
        whole = params.conditions[cell.condition].context
        spec = FidelitySpec(
            cell=planning.identity(params, cell),
            windows=planning.window_options(params, cell, whole),
            source=planning.model_source(model),
            base=planning.model_source(base),
            fidelity=FidelityOptions(windows=block.windows, top=block.top),
        )
        inputs = planning.inputs(model, series) | planning.inputs(base)
        yield Planned(Job(FIDELITY, spec.to_dict(), inputs, group=cell.model), studies)
