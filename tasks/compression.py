"""Entries of stage compression: compress a model and save it, and compare it with its base model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.job import Job, Result, current_context
from tasks.parts import CellIdentity, ModelSource, WindowOptions, load_source
from tsfmscope.compression import fidelity
from tsfmscope.compression.compress import save_compressed
from tsfmscope.compression.options import Calibration, FidelityOptions, Method
from tsfmscope.models.common.capture import pass_windows
from tsfmscope.series.tables import table_series
from tsfmscope.training.healing import healer

if TYPE_CHECKING:
    import pyarrow as pa

    from tsfmscope.models.base import Family


class CompressSpec(ModelSource):
    """Spec of `compress`.

    model: name of the compressed model; the source is the base model. calibration: only for a method that reads data
    or measures time.
    """

    model: str
    base_model: str
    method: Method
    calibration: Calibration | None = None


class FidelitySpec(CellIdentity, WindowOptions, ModelSource):
    """Spec of `measure_fidelity`; the source is the compressed model. base: its base model."""

    base: ModelSource
    fidelity: FidelityOptions


def compress(job: Job, data: Mapping[str, Any], model: Family) -> Result:
    """Compress a model in place, save it, and return its `compression` row.

    data: `folder`, the target folder, and `series`, tables of calibration series by data set. recipe.json in the
    folder contains the job's key.
    """
    spec = CompressSpec.from_job(job)
    row = save_compressed(
        model,
        Path(data["folder"]),
        name=spec.model,
        base_model=spec.base_model,
        method=spec.method,
        tables=data["series"],
        calibration=spec.calibration,
        recipe={"key": job.key, "recipe": spec.to_dict()},
        heal=healer(model, spec.method, data["series"], spec.calibration),
    )
    return Result([row])


def load_pair(job: Job) -> tuple[Family, Family]:
    """Load the compressed model of a job and its base model."""
    spec = FidelitySpec.from_job(job)
    return load_source(job, spec), load_source(job, spec.base)


def measure_fidelity(job: Job, data: pa.Table, models: tuple[Family, Family]) -> Result:
    """Return the `fidelity` row of a compressed model on the last windows of a data set; data: the series.

    A data set without a usable window gives a row with the reason and no measures.
    """
    spec = FidelitySpec.from_job(job)
    series = table_series(data)[: spec.fidelity.windows]
    measured, tokens = fidelity.measure(
        *models,
        series,
        context=spec.context,
        noise=spec.noise,
        **spec.part(WindowOptions),
        top=spec.fidelity.top,
        batch_of=lambda tokens: current_context().batch(pass_windows(tokens, current_context().device)),
    )
    return Result([spec.part(CellIdentity) | measured], tokens=tokens)
