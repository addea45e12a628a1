"""Work that a params file plans: sizes of its studies, and jobs, rows, bytes and seconds of every model."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from stages import DATA
from stages.config.blocks import WITHOUT_TOKENS, Measure
from stages.config.params import COMPRESSED, PARAMS_FILE, Params, ParamsError
from stages.planning import planning
from stages.planning.run_stage import read_params
from store.stage_outputs import read_rows
from tsfmscope.defaults import HELD_OUT
from tsfmscope.errors import DataError, ModelError
from tsfmscope.models import registry
from tsfmscope.series.catalog import modality
from tsfmscope.series.data_sets import load_data_set
from tsfmscope.series.synthetic.signals import draw_signal
from tsfmscope.series.types import Series
from tsfmscope.series.windows import Observed, last_windows, longest_context

TOKENIZED = sorted(set(get_args(Measure)) - WITHOUT_TOKENS)
# Stage that works on every cell -> its table, and the measures that ask for its cells.
STAGES: dict[str, tuple[str, Sequence[str]]] = {
    "tokens": ("dumps", TOKENIZED),
    "embeddings": ("dumps", TOKENIZED),
    "forecasts": ("forecasts", ("isotropy", "forecasts")),
    "geometry": ("geometry", ("isotropy",)),
}


def check_params(path: Path = Path(PARAMS_FILE)) -> Params:
    """Load a params file and check all that can be checked offline.

    Raises ParamsError for what the file must change, ModelError for a family that cannot be imported.
    """
    params = read_params(path)
    for name, model in params.models.items():
        registry.check_options(model.family, model.options, f"models.{name}.options")
        if not model.ref.startswith(("checkpoint:", COMPRESSED)):
            try:
                registry.check_reference(model.ref)
            except ModelError as error:
                raise ParamsError(f"models.{name}.ref: {error}") from None
    return params


def study_sizes(params: Params) -> list[dict[str, Any]]:
    """Return the numbers of models, data sets, conditions and cells of every study, in the order of the file.

    Cells are models x data sets x conditions within each modality. Data sets are counted whether or not their
    files are on this machine.
    """
    sizes = []
    for study in params.studies:
        models, datasets = params.expand(study, "models"), params.expand(study, "datasets")
        conditions = params.expand(study, "conditions")
        kinds = (
            Counter(registry.family_class(params.models[name].family).modality for name in models),
            Counter(modality(params.datasets.sets[name].source) for name in datasets),
            Counter(params.conditions[name].modality for name in conditions),
        )
        cells = sum(math.prod(kind[name] for kind in kinds) for name in kinds[0])
        counts = {"models": len(models), "datasets": len(datasets), "conditions": len(conditions), "cells": cells}
        sizes.append({"study": study, **counts})
    return sizes


def planned_work(params: Params, data: Path = Path(DATA)) -> list[dict[str, Any]]:
    """Return the work of each original model in each stage that works on cells; nothing is run or downloaded.

    cells: cells that the studies request. measured: those of the same model whose rows are stored. jobs, rows, bytes
    and seconds (of one worker) are None where no cell is measured or no time of its jobs is stored; else they are the
    measured means per cell times `cells`. A compressed model counts as the model that it was made from, as in the
    table `timings`.
    """
    kinds = {name: {"modality": registry.family_class(model.family).modality} for name, model in params.models.items()}
    work = []
    for stage, (table, measures) in STAGES.items():
        cells = planning.requested_cells(params, measures, kinds)
        counts = Counter(planning.find_original(params, cell.model) for cell in cells)
        stored, sums = _measure(params, data, stage, table)
        for model, count in counts.items():
            measured, total = len(stored[model]), sums[model]
            row: dict[str, Any] = {"stage": stage, "model": model, "cells": count, "measured": measured}
            row |= dict.fromkeys(("jobs", "rows", "bytes", "seconds"))
            if measured and total["jobs"]:
                factor = count / measured
                row |= {name: round(factor * total[name]) for name in ("jobs", "rows", "bytes")}
                row["seconds"] = factor * total["seconds"]
            work.append(row)
    return work


def _measure(
    params: Params, data: Path, stage: str, table: str
) -> tuple[defaultdict[str, set[tuple[Any, ...]]], defaultdict[str, defaultdict[str, float]]]:
    """Return the stored cells of a stage, and the sums of its jobs, rows, bytes and seconds, by original model."""
    cells: defaultdict[str, set[tuple[Any, ...]]] = defaultdict(set)
    sums: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    names = ["model", "dataset", "condition", *(["rows", "bytes"] if table == "dumps" else [])]
    for row in read_rows(data / stage, table).select(names).to_pylist():
        if row["model"] not in params.models:
            continue
        original = planning.find_original(params, row["model"])
        cells[original].add((row["model"], row["dataset"], row["condition"]))
        sums[original]["rows"] += row.get("rows", 1)
        sums[original]["bytes"] += row.get("bytes", 0)
    timings = read_rows(data / "timings" / stage, "timings").select(["key", "subject", "seconds"]).to_pylist()
    # A job that was run again has several rows.
    for row in {row["key"]: row for row in timings}.values():
        sums[row["subject"]]["jobs"] += 1
        sums[row["subject"]]["seconds"] += row["seconds"]
    return cells, sums


class PlannedContext(NamedTuple):
    """One context length on one data set. observed: None if no series gives a window."""

    dataset: str
    context: int
    observed: Observed | None


def planned_contexts(params: Params) -> tuple[list[PlannedContext], list[str]]:
    """Return the contexts that the studies ask for on time series, and the data sets that could not be read.

    Data sets are read without the network. The windows are those that are forecast: the last one of every
    series.
    """
    planned: list[PlannedContext] = []
    absent: list[str] = []
    by_dataset: dict[str, set[int]] = {}
    for study in params.studies:
        conditions = [params.conditions[name] for name in params.expand(study, "conditions")]
        contexts = {condition.context for condition in conditions if condition.modality == "series"}
        for name in params.expand(study, "datasets"):
            if modality(params.datasets.sets[name].source) == "series":
                by_dataset.setdefault(name, set()).update(contexts)
    for name, contexts in by_dataset.items():
        try:
            series = _local_series(name, params)
        except DataError:
            absent.append(name)
            continue
        counts = {context: _count_observed(name, context, series, params) for context in sorted(contexts)}
        planned += [PlannedContext(name, context, observed) for context, observed in counts.items()]
    return planned, absent


def _local_series(name: str, params: Params) -> list[Series]:
    """Return the usable series of a data set.

    A synthetic data set gives a single series, since all of its series have the same length. Raises DataError
    if the files are not on this machine or contain no usable series.
    """
    dataset = params.datasets.sets[name]
    if dataset.source == "kernelsynth":
        return [Series(name, name, np.zeros(params.kernelsynth.length, np.float32), "", "")]
    if dataset.source == "signals":
        return draw_signal(name, "constant", params.seed)
    series = load_data_set(
        name,
        dataset,
        root=params.data_root,
        max_series=params.datasets.max_series,
        seed=params.seed,
        min_length=params.datasets.min_length,
        offline=True,
    ).series
    if not series:
        raise DataError(f"data set {name}: expected a usable series, found none")
    return series


def _count_observed(name: str, context: int, series: Sequence[Series], params: Params) -> Observed | None:
    dataset = params.datasets.sets[name]
    windows, _ = last_windows(
        series,
        context=context,
        horizon=dataset.horizon,
        min_context=min(context, params.forecasts.min_context),
        held_out=HELD_OUT if dataset.source == "bundled" else None,
    )
    if not len(windows):
        return None
    observed = windows.count_observed(context)
    longest = longest_context(series, dataset.horizon)
    return Observed(context, int(observed.min()), float(np.median(observed)), longest)


def context_lines(contexts: Sequence[PlannedContext], absent: Sequence[str]) -> Iterator[str]:
    """Yield sentences on the contexts that no series fills, then one on the data that could not be read."""
    for context in sorted({item.context for item in contexts}):
        at_context = [item for item in contexts if item.context == context]
        short = [item for item in at_context if item.observed is None or not item.observed.is_filled]
        if short:
            yield f"context {context}: no series fills it in {', '.join(item.dataset for item in short)}"
    if absent:
        yield f"not on this machine, so their contexts are unknown: {', '.join(absent)}"
