"""From studies to what must be done: cells of model, data set and condition, and what identifies them in a row."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stages import DATA
from stages.blocks import PRECISION
from stages.params import Params
from store.dumps import Place, last_layers
from store.files import fingerprint
from store.published import read_rows
from tasks.series.catalog import modality

BUNDLED_HELD_OUT = 0.2  # checkpoints are pretrained on the first 80 % of the bundled series: targets lie in the rest
IDENTITY = ("model", "base_model", "rank", "dataset", "condition", "context", "noise")


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
    """Every cell that a study asks for and whose series are at hand, with those studies; one model's cells together.

    measures: of studies that take any of these alone. A data set and a condition meet where they are of one modality,
    and a model where models, the rows of `checkpoints` by model, say so too; one without a row could not be made.
    instead: names of what stands in the place of the studies' models, on series alone: baselines.
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
            if series_file(params, cell.dataset).exists():  # else counted in `skipped` by the stage that reads it
                asked.setdefault(cell, []).append(study)
    return dict(sorted(asked.items()))


def wanting(params: Params, studies: Iterable[str], place: Place, held: Sequence[Place]) -> list[str]:
    """Those of the studies that ask for this layer of a dump that holds such layers, in their order."""
    asked = {"all": True, "first": place == held[0], "last": place in last_layers(held)}
    return [name for name in studies if asked[params.studies[name].layers]]


def series_file(params: Params, dataset: str) -> Path:
    """Where a data set's series lie, relative to the repository's root."""
    stage = "kernelsynth" if params.datasets.sets[dataset].source == "kernelsynth" else "datasets"
    return Path(DATA, stage, "series", f"{dataset}.parquet")


def identity(params: Params, cell: Cell) -> dict[str, Any]:
    """The columns that every result row of a cell begins with."""
    model, condition = params.models.get(cell.model), params.conditions[cell.condition]  # a baseline is no model
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
    """The same, taken from a row that has it."""
    return {name: row[name] for name in IDENTITY}


def windows_spec(params: Params, cell: Cell, min_context: int) -> dict[str, Any]:
    """What cutting windows of a cell needs."""
    dataset = params.datasets.sets[cell.dataset]
    condition = params.conditions[cell.condition]
    history = condition.history
    if modality(dataset.source) in ("image", "table"):  # all of an item is its one window: part of a picture is none
        min_context = condition.context
    return {
        **({"history": history} if history else {}),
        "horizon": dataset.horizon,
        "min_context": min_context,
        "held_out": BUNDLED_HELD_OUT if dataset.source == "bundled" else None,
        "seed": params.seed,
    }


def checkpoints(*, compressed: bool = True) -> dict[str, dict[str, Any]]:
    """Rows of the table `checkpoints` by model, which the stage of that name writes, and compression of its models."""
    outs = ("checkpoints", "compression") if compressed else ("checkpoints",)
    return {row["model"]: row for out in outs for row in read_rows(Path(DATA, out), "checkpoints").to_pylist()}


def model_spec(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a worker needs to load a model, from its row of `checkpoints`."""
    options = {"options": json.loads(row["options"])} if row["options"] else {}
    return {"family": row["family"], "ref": row["ref"], **options}


def stored_spec(row: Mapping[str, Any]) -> dict[str, Any]:
    """The same of a model that the worker changes and saves: how it runs is left out."""
    spec = model_spec(row)
    options = {name: value for name, value in spec.pop("options", {}).items() if name != PRECISION}
    return spec | ({"options": options} if options else {})


def same_but_precision(row: Mapping[str, Any], base: Mapping[str, Any]) -> bool:
    """Whether two rows of `checkpoints` are of the same weights, read in the same way but for the precision."""
    options, of_base = (stored_spec(one).get("options") for one in (row, base))
    return bool(row["fingerprint"] == base["fingerprint"] and options == of_base)


def first_of(params: Params, name: str) -> str:
    """The model that a model is made from, and that one from, to the one that is made from none that is here."""
    while (base := params.models[name].base_model) in params.models:
        name = str(base)
    return name


def rounding(params: Params, name: str) -> dict[str, str]:
    """`weights_dtype` of the spec of a job on spectra, where a model's weights are rounded; else nothing."""
    dtype = params.models[name].precision
    return {} if dtype == "float32" else {"weights_dtype": dtype}


def inputs(model: Mapping[str, Any], *files: Path) -> dict[str, str]:
    """What a job of a model reads, with fingerprints: the model's files, and these."""
    return {f"model:{model['ref']}": model["fingerprint"], **{path.as_posix(): fingerprint(path) for path in files}}


def dumps(stage: str) -> list[dict[str, Any]]:
    """Rows of `dumps` that a stage wrote, in the order of their cells."""
    rows = read_rows(Path(DATA, stage), "dumps").to_pylist()
    return sorted(rows, key=lambda row: (row["model"], row["dataset"], row["condition"]))
