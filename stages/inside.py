"""Stage inside: probes of every layer, ablation of every part, and similarity of the layers of two models."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stages.config.params import Params
from stages.planning import planning
from stages.planning.sweeping import PlannedJob, open_store, sweep
from store.dumps import read_table
from store.files import read_parquet
from tasks.inside import AblationSpec, ProbeSpec, SimilaritySpec
from tasks.job import Job, Task
from tsfmscope.models import registry
from tsfmscope.models.base import BlockFamily, Forecaster

LOADER = "tasks.parts:load_model"
PROBE = Task("probe", 1, "tasks.inside:probe_layers", LOADER, table="probes")
ABLATE = Task("ablate", 1, "tasks.inside:ablate_parts", LOADER, table="ablation")
COMPARE = Task("compare", 1, "tasks.inside:compare_models", "tasks.inside:load_pair", table="similarity")

Models = Mapping[str, Mapping[str, Any]]


def main(params: Params) -> None:
    """Write data/inside."""
    with open_store("inside") as out:
        sweep(out, plan(params), params, read)


def read(job: Job) -> Any:
    """Return the data of a job: series by file, the series of one data set, or None."""
    if job.task.name == ABLATE.name:
        return {path: read_parquet(Path(path)) for path in job.inputs if path.endswith(".parquet")}
    return read_table(Path.cwd(), job) if job.task.name == COMPARE.name else None


def plan(params: Params) -> Iterator[PlannedJob]:
    """Yield one job per probed model, per ablated model and condition, and per compared pair and cell.

    Only models of time series are probed, and only those whose forecast has parts that can be separated are ablated.
    """
    models = {name: row for name, row in planning.checkpoints().items() if row["modality"] == "series"}
    for name, studies in planning.studies_by_model(params, "probes").items():
        if name in models:
            of_model = dict(planning.model_source(models[name])) | dict(params.inside.probes)
            where = dict(planning.model_identity(params, name)) | {"context": params.inside.probes.context}
            spec = ProbeSpec(**where | of_model, seed=params.seed)
            yield PlannedJob(Job(PROBE, spec.to_dict(), planning.inputs(models[name]), group=name), studies)
    yield from _ablations(params, models)
    yield from _comparisons(params, models)


def _ablations(params: Params, models: Models) -> Iterator[PlannedJob]:
    cells = planning.cells(params, ["ablation"], models)
    planned: dict[str, tuple[Job, list[str]]] = {}
    for study, model, condition in dict.fromkeys((s, c.model, c.condition) for c in cells for s in cells[c]):
        family = registry.family_class(models[model]["family"])
        if not (issubclass(family, BlockFamily) and issubclass(family, Forecaster)):
            continue
        own = [cell for cell in cells if (cell.model, cell.condition) == (model, condition) and study in cells[cell]]
        files, cut = {planning.series_file(params, cell.dataset): cell for cell in own}, planning.window_options
        spec = AblationSpec(
            **dict(planning.identity(params, own[0])) | {"dataset": None},
            **dict(planning.model_source(models[model])),
            **dict(params.inside.ablation),
            windows={path.as_posix(): cut(params, cell, params.forecasts.min_context) for path, cell in files.items()},
            seed=params.seed,
        )
        job = Job(ABLATE, spec.to_dict(), planning.inputs(models[model], *files), group=model)
        # Studies with the same data sets share the job.
        planned.setdefault(job.key, (job, []))[1].append(study)
    yield from itertools.starmap(PlannedJob, planned.values())


def _comparisons(params: Params, models: Models) -> Iterator[PlannedJob]:
    cells = planning.cells(params, ["similarity"], models)
    planned: dict[tuple[planning.Cell, str], list[str]] = {}
    for study in params.studies:
        own = {cell: None for cell in cells if study in cells[cell]}
        for first, second in list_pairs(params, [*dict.fromkeys(cell.model for cell in own)]):
            for cell in own:
                if cell.model == first and cell._replace(model=second) in own:
                    planned.setdefault((cell, second), []).append(study)
    for (cell, other), studies in planned.items():
        spec = SimilaritySpec(
            **dict(planning.identity(params, cell)),
            **dict(planning.window_options(params, cell, params.forecasts.min_context)),
            **dict(planning.model_source(models[cell.model])),
            **dict(params.inside.similarity),
            other=other,
            other_source=planning.model_source(models[other]),
        )
        series = planning.series_file(params, cell.dataset)
        inputs = planning.inputs(models[cell.model], series) | planning.inputs(models[other])
        yield PlannedJob(Job(COMPARE, spec.to_dict(), inputs, group=f"{cell.model} {other}"), studies)


def list_pairs(params: Params, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of models that a study compares: a changed model and its original, and originals with each other.

    The original of a snapshot has the last weights of its training.
    """
    origin = {member.model: member.run for member in params.population.members()} if params.population else {}
    origin |= {name: base for name in names if (base := params.models[name].base_model)}
    changed = {name: base for name in names if (base := origin.get(name, name)) != name and base in names}
    yield from changed.items()
    yield from itertools.combinations((name for name in names if name not in changed), 2)
