"""Planning of jobs from studies: cells (model, data set, condition), and parts of specs and inputs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stages import DATA
from stages.config.params import Params
from store.dumps import LayerKey, last_layers
from store.files import fingerprint, verify
from store.stage_outputs import read_dumps, read_rows
from tasks.parts import CellIdentity, Identity, ModelSource, WindowOptions
from tsfmscope.compression.options import requested_size
from tsfmscope.defaults import HELD_OUT, PRECISION
from tsfmscope.series.catalog import modality


class Cell(NamedTuple):
    """One model on one data set under one condition."""

    model: str
    dataset: str
    condition: str


def cells(
    params: Params,
    measures: Collection[str],
    models: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    instead: Sequence[str] | None = None,
) -> dict[Cell, list[str]]:
    """Return every cell that a study requests and whose series are on this machine, with its studies.

    The cells are sorted, so those of one model are together. A data set and a condition form a cell if they
    have the same modality.
    measures: only studies that take at least one of these measures count.
    models: rows of `checkpoints` by model. If given, a model must have a row, since one without could not be
    made, and the modality of the cell. instead: names that replace the studies' models, on time series only:
    baselines.
    """
    requested = requested_cells(params, measures, models, instead=instead)
    # The stage that reads a data set counts a missing one in the table `skipped`.
    return {cell: studies for cell, studies in requested.items() if series_file(params, cell.dataset).exists()}


def requested_cells(
    params: Params,
    measures: Collection[str],
    models: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    instead: Sequence[str] | None = None,
) -> dict[Cell, list[str]]:
    """Return what `cells` returns, and also the cells whose series are not on this machine."""
    studies_by_cell: dict[Cell, list[str]] = {}
    for study, study_params in params.studies.items():
        if not set(measures) & set(study_params.measures):
            continue
        models_of_study = params.expand(study, "models") if instead is None else instead
        names = (params.expand(study, block) for block in ("datasets", "conditions"))
        for cell in itertools.starmap(Cell, itertools.product(models_of_study, *names)):
            kind = params.conditions[cell.condition].modality
            if kind != modality(params.datasets.sets[cell.dataset].source):
                continue
            if instead is not None and kind != "series":
                continue
            if models is not None and (cell.model not in models or models[cell.model]["modality"] != kind):
                continue
            studies_by_cell.setdefault(cell, []).append(study)
    return dict(sorted(studies_by_cell.items()))


def studies_by_model(params: Params, measure: str) -> dict[str, list[str]]:
    """Return model -> the studies that ask for this measure of the model alone."""
    studies_by_name: dict[str, list[str]] = {}
    for study, study_params in params.studies.items():
        for model in params.expand(study, "models") if measure in study_params.measures else ():
            studies_by_name.setdefault(model, []).append(study)
    return studies_by_name


def studies_of_layer(params: Params, studies: Iterable[str], layer: LayerKey, layers: Sequence[LayerKey]) -> list[str]:
    """Return the studies, in their order, that request this layer. layers: all layers of the activation file."""
    selections = {"all": True, "first": layer == layers[0], "last": layer in last_layers(layers)}
    return [name for name in studies if selections[params.studies[name].layers]]


def series_file(params: Params, dataset: str) -> Path:
    """Return the path of a data set's series, relative to the repository's root."""
    stage = "kernelsynth" if params.datasets.sets[dataset].source == "kernelsynth" else "datasets"
    return Path(DATA, stage, "series", f"{dataset}.parquet")


def identity(params: Params, cell: Cell) -> CellIdentity:
    """Return the columns that every result row of a cell begins with."""
    # A baseline is not among the models.
    model, condition = params.models.get(cell.model), params.conditions[cell.condition]
    return CellIdentity(
        model=cell.model,
        base_model=model.base_model if model else None,
        **(model.size if model else requested_size(None)),
        dataset=cell.dataset,
        condition=cell.condition,
        context=condition.context,
        noise=condition.noise,
    )


def model_identity(params: Params, name: str) -> Identity:
    """Return the columns that rows about a model alone begin with."""
    model = params.models[name]
    return without_cell(name, model.base_model, **model.size)


def without_cell(
    model: str, base_model: str | None = None, *, size_parameter: float | None = None, size_rule: str | None = None
) -> Identity:
    """Return the columns that rows without a data set and a condition begin with."""
    return Identity(
        model=model,
        base_model=base_model,
        size_parameter=size_parameter,
        size_rule=size_rule,
        dataset=None,
        condition=None,
        context=None,
        noise=None,
    )


def window_options(params: Params, cell: Cell, min_context: int) -> WindowOptions:
    """Return how the windows of a cell are cut. min_context: fewest observed steps of a window of series."""
    dataset, condition = params.datasets.sets[cell.dataset], params.conditions[cell.condition]
    # The one window of an image or a table is the whole item; a part of an image is no input.
    is_whole = modality(dataset.source) in ("image", "table")
    return WindowOptions(
        horizon=dataset.horizon,
        min_context=condition.context if is_whole else min_context,
        held_out=HELD_OUT if dataset.source == "bundled" else None,
        seed=params.seed,
        history=condition.history,
    )


def checkpoints(*, compressed: bool = True) -> dict[str, dict[str, Any]]:
    """Return the rows of the table `checkpoints` by model.

    The stage checkpoints writes them, and the stage compression writes those of compressed models.
    compressed: False leaves the latter out.
    """
    outs = ("checkpoints", "compression") if compressed else ("checkpoints",)
    return {row["model"]: row for out in outs for row in read_rows(Path(DATA, out), "checkpoints").to_pylist()}


def model_source(row: Mapping[str, Any]) -> ModelSource:
    """Return what a worker needs to load a model. row: the model's row of `checkpoints`."""
    options = json.loads(row["options"]) if row["options"] else {}
    return ModelSource(family=row["family"], ref=row["ref"], options=options)


def stored_source(row: Mapping[str, Any]) -> ModelSource:
    """Return `model_source` without the precision, for a model that the worker changes and saves."""
    source = model_source(row)
    options = {name: value for name, value in source.options.items() if name != PRECISION}
    return source.model_copy(update={"options": options})


def differ_only_in_precision(row: Mapping[str, Any], base: Mapping[str, Any]) -> bool:
    """Return whether two rows of `checkpoints` have the same weights and options, except for the precision."""
    options, base_options = (stored_source(checkpoint).options for checkpoint in (row, base))
    return bool(row["fingerprint"] == base["fingerprint"] and options == base_options)


def find_original(params: Params, name: str) -> str:
    """Follow `base_model` to the original model, the last one in the chain that params.yaml contains."""
    while (base := params.models[name].base_model) in params.models:
        name = str(base)
    return name


def rounding(params: Params, name: str) -> str | None:
    """Return the precision of a model for the spec of a job on spectra; None if it is float32."""
    dtype = params.models[name].precision
    return None if dtype == "float32" else dtype


def inputs(model: Mapping[str, Any], *files: Path) -> dict[str, str]:
    """Return the inputs of a model's job, with their fingerprints: the model's files and the given files."""
    return {f"model:{model['ref']}": model["fingerprint"], **file_inputs(*files)}


def file_inputs(*files: Path) -> dict[str, str]:
    """Return the fingerprints of series files and activation files by path.

    Raises DamagedFile if the content of a series file (.parquet) differs from its checksum.
    """
    for path in files:
        if path.suffix == ".parquet":
            verify(path)
    return {path.as_posix(): fingerprint(path) for path in files}


def dumps(stage: str) -> list[dict[str, Any]]:
    """Return the rows of `dumps` that a stage wrote, in the order of their cells.

    Raises DamagedFile if an activation file is damaged.
    """
    rows = read_dumps(Path(DATA, stage))
    return sorted(rows, key=lambda row: (row["model"], row["dataset"], row["condition"]))
