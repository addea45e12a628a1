"""Local baselines on the windows that models see: the second sweep entry of stage forecasts."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tasks.forecasts import ScoreSpec, forecast_rows, unscored_columns
from tasks.job import Job, Result
from tsfmscope.forecasting.baselines import Local
from tsfmscope.series.tables import table_series

if TYPE_CHECKING:
    import pyarrow as pa

    from tsfmscope.models.base import Forecaster


def load_baseline(job: Job) -> str:
    """Return the baseline's name; import its package here, so that no job's time includes the import."""
    import statsforecast.models  # noqa: F401

    return str(job.spec["model"])


def evaluate_locally(job: Job, data: pa.Table, model: str) -> Result:
    """Return the rows of `evaluate` for the baseline `model`; a series that fails gets the reason, no score."""
    local = Local(model)
    # Local has every attribute that `forecast_rows` uses.
    rows = forecast_rows(ScoreSpec.from_job(job), table_series(data), cast("Forecaster", local), key=job.key)
    for row in rows:
        if reason := local.failed.get(row["series"]):
            # The columns of the window stay.
            row |= unscored_columns(reason) | {name: row[name] for name in ("origin", "n_context", "n_future")}
    return Result(rows)
