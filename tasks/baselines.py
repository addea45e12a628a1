"""Local baselines on the windows that models see: the second sweep entry of stage forecasts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from tasks.forecasts import ScoreSpec, forecast_rows, unscored_columns
from tasks.job import Job, Result
from tsfmscope.forecasting.local_baselines import Local
from tsfmscope.series.tables import table_series

if TYPE_CHECKING:
    import pyarrow as pa

    from tsfmscope.models.base import Forecaster


def load_baseline(job: Job) -> str:
    """Return the baseline's name; import its package here, so that no job's time includes the import."""
    import statsforecast.models  # noqa: F401

    return ScoreSpec.from_job(job).model


def evaluate_locally(job: Job, data: pa.Table, model: str) -> Result:
    """Return the rows of `evaluate` for the baseline `model`; a series that fails gets the reason, no score."""
    local = Local(model)
    # Local has every attribute that `forecast_rows` uses.
    rows = forecast_rows(ScoreSpec.from_job(job), table_series(data), cast("Forecaster", local), key=job.key)
    return Result([{**row, **_without(row, local.failed.get(row["series"]))} for row in rows])


def _without(row: Mapping[str, Any], reason: str | None) -> dict[str, Any]:
    """Return the columns that replace scores if there is a reason; those of the window stay."""
    if reason is None:
        return {}
    names = ("origin", "n_context", "n_future")
    return unscored_columns(reason) | {name: row[name] for name in names}
