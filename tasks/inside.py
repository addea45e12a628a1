"""Entries of stage inside: probes of layers, ablation of parts, and similarity of the layers of two models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import Field

from tasks.job import LAYER, Job, Result, current_context
from tasks.parts import CellIdentity, Identity, ModelSource, WindowOptions, load_source
from tsfmscope.defaults import CONTEXT, MAX_CONTEXT
from tsfmscope.errors import DataError
from tsfmscope.series.synthetic.signals import with_noise
from tsfmscope.series.tables import table_series
from tsfmscope.series.windows import last_windows, spread_windows
from tsfmscope.strict import Strict

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from tsfmscope.functions.load import Model
    from tsfmscope.models.base import Family, Forecaster
    from tsfmscope.series.types import Series, Windows

# The functions are imported where they run: they import pandas and SciPy, which reading params.yaml does not need.
# Columns of `compare_windows` -> of `similarity`; and its values.
PLACES = {f"{name}_a": name for name in LAYER} | {f"{name}_b": f"other_{name}" for name in LAYER}
VALUES = ("cka", "cka_low", "cka_high", "procrustes", "n_rows", "n_series", "reason")
Part = Literal["layer", "attention", "mlp", "head", "directions", "exit"]
Way = Literal["skip", "mean", "resample"]


class ProbeOptions(Strict):
    """Options of measure probes: factors of drawn series, read from the states of every layer."""

    max_series: int = Field(1024, ge=100, description="drawn series with known factors")
    context: int = Field(CONTEXT, ge=64, le=MAX_CONTEXT, description="steps of a drawn series")


class AblationOptions(Strict):
    """Options of measure ablation: forecasts of the last windows without each part."""

    parts: list[Part] = Field([*get_args(Part)], min_length=1, description="kinds of parts")
    ways: list[Way] = Field(["skip"], min_length=1, description="values that replace what a part adds")
    max_series: int = Field(32, ge=1, description="largest number of series per data set: the first ones")


class SimilarityOptions(Strict):
    """Options of measure similarity: layers of two models on the same windows."""

    rows: int = Field(1024, ge=4, description="largest number of compared rows, a seeded sample")


class ProbeSpec(Identity, ModelSource, ProbeOptions):
    """Spec of `probe_layers`. context: of the drawn series. seed: of the series, folds and random weights."""

    context: int
    seed: int


class AblationSpec(Identity, ModelSource, AblationOptions):
    """Spec of `ablate_parts`. windows: how the windows of each data set are cut, by its series file."""

    context: int
    noise: float
    windows: Mapping[str, WindowOptions]
    seed: int


class SimilaritySpec(CellIdentity, WindowOptions, ModelSource, SimilarityOptions):
    """Spec of `compare_models`; the source is that of `model`. other: name and source of the other model."""

    other: str
    other_source: ModelSource


def probe_layers(job: Job, data: None, model: Family) -> Result:
    """Return the rows of `probes`: scores of all features, then those of the first directions of each layer."""
    import pandas as pd

    from tsfmscope.functions.probe import STATES, probe

    spec = ProbeSpec.from_job(job)
    report = probe(_as_model(spec, spec.model, model), max_series=spec.max_series, context=spec.context, seed=spec.seed)
    curves = report.directions.assign(features=STATES, width=model.width)
    return Result([spec.part(Identity) | row for row in _records(pd.concat([report.scores, curves]))])


def ablate_parts(job: Job, data: Mapping[str, pa.Table], model: Forecaster) -> Result:
    """Return the rows of `ablation`: one per part, over the last windows of all data sets; data: series by file.

    A data set without a usable window is left out; n_datasets counts the others.
    """
    from tsfmscope.functions.ablate import ablate_windows

    spec, items, history = AblationSpec.from_job(job), [], 0
    for path, options in spec.windows.items():
        series, history = table_series(data[path])[: spec.max_series], options.history
        windows = _cut_windows(last_windows, model, series, spec, options)
        items += [windows] if len(windows) else []
    subject = _as_model(spec, spec.model, model.with_condition(spec.context, history)[0])
    ablation = ablate_windows(subject, items, parts=spec.parts, ways=spec.ways, seed=spec.seed, notes=[])
    facts = spec.part(Identity) | {"n_datasets": len(items), "n_windows": ablation.n_windows, "units": ablation.units}
    return Result([facts | row for row in _records(ablation.parts.rename(columns={"name": "part"}))])


def load_pair(job: Job) -> tuple[Family, Family]:
    """Load the model of a job, and the other model that it is compared with."""
    spec = SimilaritySpec.from_job(job)
    return load_source(job, spec), load_source(job, spec.other_source)


def compare_models(job: Job, data: pa.Table, models: tuple[Family, Family]) -> Result:
    """Return the rows of `similarity`, one per pair of a layer of each model; data: series of a data set."""
    from tsfmscope.functions.compare import WINDOWS, compare_windows

    spec, series = SimilaritySpec.from_job(job), table_series(data)
    cut = partial(spread_windows, count=max(WINDOWS, len(series)), seed=spec.seed)
    windows = _cut_windows(cut, models[0], series, spec, spec)
    if not len(windows):
        raise DataError(f"data set {spec.dataset}: no series has a window of {spec.context} steps of context")
    first, second = (model.with_condition(spec.context, spec.history)[0] for model in models)
    pair = _as_model(spec, spec.model, first), _as_model(spec.other_source, spec.other, second)
    rows, _ = compare_windows(pair, windows, rows=spec.rows, seed=spec.seed)
    between = rows[rows["block"] == "between"].rename(columns=PLACES)
    facts = spec.part(CellIdentity) | {"other": spec.other, "n_windows": len(windows)}
    return Result([facts | row for row in _records(between[[*PLACES.values(), *VALUES]])])


def _cut_windows(
    cut: Callable[..., tuple[Windows, Any]], model: Family, series: Sequence[Series],
    spec: AblationSpec | SimilaritySpec, options: WindowOptions,
) -> Windows:  # fmt: skip
    """Return the windows of a cell, with the noise of its condition. cut: a function of `series.windows`."""
    names = ("horizon", "min_context", "held_out")
    _, steps = model.with_condition(spec.context, options.history)
    windows, _ = cut(series, context=steps, **{name: getattr(options, name) for name in names})
    return with_noise(windows, series, noise=spec.noise, seed=options.seed) if len(windows) else windows


def _as_model(source: ModelSource, name: str, family: Family) -> Model:
    from tsfmscope.compression.record import Calibration
    from tsfmscope.functions.load import Model
    from tsfmscope.models.references import Source

    place = Source(name, source.family, Path(source.ref), source.ref, source.options)
    return Model(name, family, place, current_context().device, Calibration())


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows with None for missing values."""
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]
