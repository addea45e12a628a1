"""Stage compression: the compressed models that studies name as BASE@METHOD, and their fidelity.

Each compressed model is saved as a checkpoint and compared with its base.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stages.config.params import Params
from stages.planning import planning
from stages.planning.compressed_models import (
    MODELS,
    calibration_datasets,
    calibration_spec,
    checkpoint_row,
    keep_or_forget,
    method_of,
    print_missing,
    read_recipe,
)
from stages.planning.model_folders import prune, publish, work_folder
from stages.planning.sweeping import PlannedJob, open_store, resources, run, sweep
from store.dumps import read_table
from store.files import read_parquet
from tasks.compression import CompressSpec, FidelitySpec
from tasks.job import Job, Task
from tsfmscope.compression.options import Method

COMPRESS = Task("compress", 8, "tasks.compression:compress", "tasks.parts:load_model", table="compression")
FIDELITY = Task("fidelity", 2, "tasks.compression:measure_fidelity", "tasks.compression:load_pair", table="fidelity")


def main(params: Params) -> None:
    """Write data/compression: models/NAME; tables checkpoints, compression, compressed_heads, fidelity."""
    bases = planning.checkpoints(compressed=False)
    # A base without a row failed in the stage checkpoints.
    names = (name for name, model in params.compressed.items() if model.base_model in bases)
    jobs = {name: compression_job(params, name, bases) for name in names}
    print_missing(params)
    with open_store("compression") as out:
        for name, job in jobs.items():
            keep_or_forget(out, MODELS / name, job)
        run(out, [PlannedJob(job) for job in jobs.values()], resources(params), read)
        published = {name: job for name, job in jobs.items() if publish(MODELS / name, job)}
        prune(MODELS, jobs)
        rows = {name: checkpoint_row(bases, params, name) for name in published}
        out.write("checkpoints", rows.values())
        out.write("compressed_heads", [row for name in published for row in read_recipe(MODELS / name)["parts"]])
        sweep(out, [*map(PlannedJob, jobs.values()), *_fidelity(params, bases | rows)], params, read)


def compression_job(params: Params, name: str, bases: Mapping[str, Mapping[str, Any]]) -> Job:
    """Return the job that makes a compressed model.

    Its key depends on the base's files, the method and, if the method uses them, the calibration series.
    Raises ParamsError if the method needs calibration series and none is on this machine.
    """
    model, base = params.models[name], bases[str(params.models[name].base_model)]
    method, files, calibration = method_of(params, name), [], None
    if method.reads_data:
        datasets = calibration_datasets(params, name, base["modality"])
        files = [planning.series_file(params, dataset) for dataset in datasets]
        calibration = calibration_spec(params, datasets)
    spec = CompressSpec(
        model=name,
        base_model=str(model.base_model),
        **dict(planning.stored_source(base)),
        method=Method(**method.part(Method)),
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


def _fidelity(params: Params, models: Mapping[str, Mapping[str, Any]]) -> Iterator[PlannedJob]:
    """Yield one job per cell of a compressed model that a study asks for."""
    for cell, studies in planning.cells(params, ["fidelity"], models).items():
        if cell.model not in params.compressed:
            continue
        model, base = models[cell.model], models[str(params.models[cell.model].base_model)]
        series = planning.series_file(params, cell.dataset)
        # Series shorter than the context are skipped, as Yu et al. 2026 do.
        context = params.conditions[cell.condition].context
        spec = FidelitySpec(
            **dict(planning.identity(params, cell)),
            **dict(planning.window_options(params, cell, context)),
            **dict(planning.model_source(model)),
            base=planning.model_source(base),
            fidelity=params.compression.fidelity,
        )
        inputs = planning.inputs(model, series) | planning.inputs(base)
        yield PlannedJob(Job(FIDELITY, spec.to_dict(), inputs, group=cell.model), studies)
