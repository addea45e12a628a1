"""Planning of jobs from studies: cells (model, data set, condition), and parts of specs and inputs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tsfmscope.stages import DATA
from tsfmscope.stages.config import PRECISION
from tsfmscope.stages.config.params import Params
from tsfmscope.store.dumps import LayerKey, last_layers
from tsfmscope.store.files import fingerprint, verify
from tsfmscope.store.stage_outputs import read_dumps, read_rows
from tsfmscope.tasks.job import IDENTITY
from tsfmscope.tasks.series.catalog import modality

# Share of every bundled series, at its end, in which targets lie: checkpoints are pretrained on the
# first 80 %.
BUNDLED_HELD_OUT = 0.2


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
    """Return every cell that a study asks for and whose series are on this machine, with these studies.

    The cells are sorted, so those of one model are together. A data set and a condition form a cell if they
    have the same modality.
    measures: only studies that take at least one of these measures count.
    models: rows of `checkpoints` by model. If given, a model must have a row, since one without could not be
    made, and the modality of the cell. instead: names that replace the studies' models, on time series only:
    baselines.
    """
    asked: dict[Cell, list[str]] = {}
    for study, wanted in params.studies.items():
        if not set(measures) & set(wanted.measures):
            continue
        asking = params.asked(study, "models") if instead is None else instead
        names = (params.asked(study, block) for block in ("datasets", "conditions"))
        for cell in itertools.starmap(Cell, itertools.product(asking, *names)):
            kind = params.conditions[cell.condition].modality
            if kind != modality(params.datasets.sets[cell.dataset].source):
                continue
            if instead is not None and kind != "series":
                continue
            if models is not None and (cell.model not in models or models[cell.model]["modality"] != kind):
                continue
            # The stage that reads a data set counts a missing one in the table `skipped`.
            if series_file(params, cell.dataset).exists():
                asked.setdefault(cell, []).append(study)
    return dict(sorted(asked.items()))


def wanting(params: Params, studies: Iterable[str], place: LayerKey, held: Sequence[LayerKey]) -> list[str]:
    """Return the studies, in their order, that request this layer. held: all layers of the dump."""
    asked = {"all": True, "first": place == held[0], "last": place in last_layers(held)}
    return [name for name in studies if asked[params.studies[name].layers]]


def series_file(params: Params, dataset: str) -> Path:
    """Return the path of a data set's series, relative to the repository's root."""
    stage = "kernelsynth" if params.datasets.sets[dataset].source == "kernelsynth" else "datasets"
    return Path(DATA, stage, "series", f"{dataset}.parquet")


def identity(params: Params, cell: Cell) -> dict[str, Any]:
    """Return the columns that every result row of a cell begins with: those of IDENTITY."""
    # A baseline is not among the models.
    model, condition = params.models.get(cell.model), params.conditions[cell.condition]
    return {
        "model": cell.model,
        "base_model": model.base_model if model else None,
        "rank": model.rank if model else None,
        "dataset": cell.dataset,
        "condition": cell.condition,
        "context": condition.context,
        "noise": condition.noise,
    }


def row_identity(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of IDENTITY from a row that contains them."""
    return {name: row[name] for name in IDENTITY}


def windows_spec(params: Params, cell: Cell, min_context: int) -> dict[str, Any]:
    """Return the part of a job's spec from which the windows of a cell are cut.

    min_context: fewest observed steps of a window.
    """
    dataset = params.datasets.sets[cell.dataset]
    condition = params.conditions[cell.condition]
    history = condition.history
    # The one window of an image or a table is the whole item; a part of an image is no input.
    if modality(dataset.source) in ("image", "table"):
        min_context = condition.context
    return {
        **({"history": history} if history else {}),
        "horizon": dataset.horizon,
        "min_context": min_context,
        "held_out": BUNDLED_HELD_OUT if dataset.source == "bundled" else None,
        "seed": params.seed,
    }


def checkpoints(*, compressed: bool = True) -> dict[str, dict[str, Any]]:
    """Return the rows of the table `checkpoints` by model.

    The stage checkpoints writes them, and the stage compression writes those of compressed models.
    compressed: False leaves the latter out.
    """
    outs = ("checkpoints", "compression") if compressed else ("checkpoints",)
    return {row["model"]: row for out in outs for row in read_rows(Path(DATA, out), "checkpoints").to_pylist()}


def model_spec(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a job's spec that a worker needs to load a model. row: its row of `checkpoints`."""
    options = {"options": json.loads(row["options"])} if row["options"] else {}
    return {"family": row["family"], "ref": row["ref"], **options}


def stored_spec(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return `model_spec` without the precision, for a model that the worker changes and saves."""
    spec = model_spec(row)
    options = {name: value for name, value in spec.pop("options", {}).items() if name != PRECISION}
    return spec | ({"options": options} if options else {})


def same_but_precision(row: Mapping[str, Any], base: Mapping[str, Any]) -> bool:
    """Return whether two rows of `checkpoints` have the same weights and, except the precision, options."""
    options, of_base = (stored_spec(one).get("options") for one in (row, base))
    return bool(row["fingerprint"] == base["fingerprint"] and options == of_base)


def first_of(params: Params, name: str) -> str:
    """Follow `base_model` to the original model, the last one in the chain that params.yaml contains."""
    while (base := params.models[name].base_model) in params.models:
        name = str(base)
    return name


def rounding(params: Params, name: str) -> dict[str, str]:
    """Return `weights_dtype` for the spec of a job on spectra; empty if the weights are in float32."""
    dtype = params.models[name].precision
    return {} if dtype == "float32" else {"weights_dtype": dtype}


def inputs(model: Mapping[str, Any], *files: Path) -> dict[str, str]:
    """Return the inputs of a model's job, with their fingerprints: the model's files and the given files."""
    return {f"model:{model['ref']}": model["fingerprint"], **file_inputs(*files)}


def file_inputs(*files: Path) -> dict[str, str]:
    """Return the fingerprints of series files and dumps by path.

    Raises DamagedFile if the content of a series file (.parquet) differs from its checksum.
    """
    for path in files:
        if path.suffix == ".parquet":
            verify(path)
    return {path.as_posix(): fingerprint(path) for path in files}


def dumps(stage: str) -> list[dict[str, Any]]:
    """Return the rows of `dumps` that a stage wrote, in the order of their cells.

    Raises DamagedFile if a dump is damaged.
    """
    rows = read_dumps(Path(DATA, stage))
    return sorted(rows, key=lambda row: (row["model"], row["dataset"], row["condition"]))
