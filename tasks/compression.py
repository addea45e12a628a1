"""Entries of stage compression: compress a model and save it, and compare it with its base model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.job import Job, Result, current_context
from tasks.loading import load_source
from tasks.parts import CellIdentity, ModelSource, WindowOptions
from tasks.spec import FLAT, Spec
from tsfmscope.compression import fidelity
from tsfmscope.compression.compress import save_compressed
from tsfmscope.compression.fidelity import Pair
from tsfmscope.models.common.batches import pass_windows
from tsfmscope.series.tables import table_series
from tsfmscope.training.healing import healer

if TYPE_CHECKING:
    import pyarrow as pa

    from tsfmscope.models.base import Family


@dataclass(frozen=True, kw_only=True)
class MethodSpec(Spec):
    """Method of `truncation.compress` with its ranks.

    ranks: one rule, such as {"budget": 0.5}. univariate: whether forecasts are of single series. heal: steps of
    healing. bits: of every stored weight, 8 or 32.
    """

    method: str
    ranks: Mapping[str, Any]
    univariate: bool = False
    heal: int = 0
    bits: int = 32


@dataclass(frozen=True, kw_only=True)
class CalibrationSpec(Spec):
    """Options of `calibration_windows`, which describes them."""

    windows: int
    context: int
    horizon: int
    datasets: tuple[str, ...]
    seed: int
    held_out: float


@dataclass(frozen=True, kw_only=True)
class CompressSpec(Spec):
    """Spec of `compress`.

    model: name of the compressed model. source: the base model. calibration: only for a method that reads data
    or measures time.
    """

    model: str
    base_model: str
    source: ModelSource = field(metadata=FLAT)
    method: MethodSpec
    calibration: CalibrationSpec | None = None


@dataclass(frozen=True, kw_only=True)
class FidelityOptions(Spec):
    """windows: largest number of windows, from as many series. top: number of next tokens that overlap."""

    windows: int
    top: int


@dataclass(frozen=True, kw_only=True)
class FidelitySpec(Spec):
    """Spec of `measure_fidelity`. source: the compressed model. base: its base model."""

    cell: CellIdentity = field(metadata=FLAT)
    windows: WindowOptions = field(metadata=FLAT)
    source: ModelSource = field(metadata=FLAT)
    base: ModelSource
    fidelity: FidelityOptions


def compress(job: Job, data: Mapping[str, Any], model: Family) -> Result:
    """Compress a model in place, save it, and return its `compression` row.

    data: `folder`, the target folder, and `series`, tables of calibration series by data set. recipe.json in the
    folder contains the job's key.
    """
    spec = CompressSpec.from_job(job)
    method = spec.method.to_dict()
    calibration = spec.calibration.to_dict() if spec.calibration else None
    row = save_compressed(
        model,
        Path(data["folder"]),
        name=spec.model,
        base_model=spec.base_model,
        method=method,
        tables=data["series"],
        calibration=calibration,
        recipe={"key": job.key, "recipe": spec.to_dict()},
        heal=healer(model, method, data["series"], calibration),
    )
    return Result([row])


def load_pair(job: Job) -> Pair:
    """Load the compressed model of a job and its base model."""
    spec = FidelitySpec.from_job(job)
    return Pair(load_source(job, spec.source), load_source(job, spec.base))


def measure_fidelity(job: Job, data: pa.Table, models: Pair) -> Result:
    """Return the `fidelity` row of a compressed model on the last windows of a data set; data: the series.

    A data set without a usable window gives a row with the reason and no measures.
    """
    spec = FidelitySpec.from_job(job)
    series = table_series(data)[: spec.fidelity.windows]
    measured, tokens = fidelity.measure(
        models,
        series,
        context=spec.cell.context,
        noise=spec.cell.noise,
        **vars(spec.windows),
        top=spec.fidelity.top,
        batch_of=lambda tokens: current_context().batch(pass_windows(tokens, current_context().device)),
    )
    return Result([spec.cell.to_dict() | measured], tokens=tokens)
