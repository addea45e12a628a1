"""Entries of stage checkpoints that score models and local baselines on the last windows of one data set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.job import Job, Result
from tasks.parts import ModelSource, WindowOptions
from tsfmscope.errors import DataError
from tsfmscope.forecasting.baselines import Local
from tsfmscope.forecasting.skill import dataset_errors, sample_seed, spread_rows
from tsfmscope.models.base import QUANTILES
from tsfmscope.series.tables import table_series
from tsfmscope.series.windows import last_windows

if TYPE_CHECKING:
    import pyarrow as pa

    from tsfmscope.models.base import Forecaster


class DatasetSkillSpec(WindowOptions):
    """Windows and identity of one row of `dataset_skill`; all that the spec of a baseline contains.

    is_real, trained_on: columns of the row. context: steps. samples: number of sample paths, for families that draw
    them. max_series: largest number of series. seed: also that of the samples.
    """

    model: str
    dataset: str
    is_real: bool
    trained_on: bool | None
    context: int
    samples: int
    max_series: int


class ModelSkillSpec(DatasetSkillSpec, ModelSource):
    """Spec of `measure_model`."""


def measure_model(job: Job, data: pa.Table, model: Forecaster) -> Result:
    """Measure the `dataset_skill` row of a model; data: the series of one data set."""
    return Result([_row(ModelSkillSpec.from_job(job), data, model)])


def measure_baseline(job: Job, data: pa.Table, model: str) -> Result:
    """Measure the `dataset_skill` row of a local baseline; data: as in `measure_model`.

    Windows that the baseline does not forecast, such as those with a constant context, are left out of both errors.
    """
    return Result([_row(DatasetSkillSpec.from_job(job), data, Local(model))])


def _row(spec: DatasetSkillSpec, data: pa.Table, model: Forecaster | Local) -> dict[str, Any]:
    series = table_series(data)
    if not series:
        raise DataError(f"data set {spec.dataset}: expected at least one series, got none")
    forecaster, steps = model.with_condition(spec.context, spec.history)
    usable, _ = last_windows(
        series, context=steps, horizon=spec.horizon, min_context=spec.min_context, held_out=spec.held_out
    )
    windows = spread_rows(usable, spec.max_series)
    quantiles = np.zeros((0, len(QUANTILES), spec.horizon))
    if len(windows):
        seeds = [sample_seed(spec.seed, row) for row in range(len(windows))]
        quantiles = forecaster.forecast(windows, levels=QUANTILES, samples=spec.samples, seeds=seeds).values
    failed = forecaster.failed if isinstance(forecaster, Local) else {}
    scored = [row for row, name in enumerate(windows.series) if name not in failed]
    errors = dataset_errors(windows.take(scored), quantiles[np.array(scored, dtype=np.intp)], QUANTILES)
    if not scored and failed:
        errors["reason"] = next(iter(failed.values()))
    names = ("model", "dataset", "is_real", "trained_on", "context", "horizon", "seed")
    counts = {"n_series": len(series), "n_windows": len(scored)}
    row = {name: getattr(spec, name) for name in names} | counts
    return row | {"domain": series[0].domain, "season": windows.season, **errors}
