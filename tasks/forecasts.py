"""Sweep entries of stage forecasts: models, and local baselines, on the last window of every series of one cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from tasks.job import Job, Result
from tasks.parts import CellIdentity, ModelSource, WindowOptions
from tsfmscope.errors import DataError
from tsfmscope.forecasting import scores
from tsfmscope.forecasting.baselines import Local
from tsfmscope.forecasting.options import ScoreOptions
from tsfmscope.series.tables import table_series

if TYPE_CHECKING:
    import pyarrow as pa

    from tsfmscope.models.base import Forecaster
    from tsfmscope.series.types import Series


class ScoreSpec(CellIdentity, WindowOptions, ScoreOptions):
    """Windows and scores of one cell; all that the spec of a baseline contains. seed: also that of the noise."""


class ForecastSpec(ScoreSpec, ModelSource):
    """Spec of `evaluate`.

    max_series: number of first series that are forecast; None for all. earlier: steps by which the window
    lies before the last one, for a score that was known before the last window. seeded_as: key of the job
    whose seeds the samples have; None for this job.
    """

    max_series: int | None = None
    earlier: int = 0
    seeded_as: str | None = None


def evaluate(job: Job, data: pa.Table, model: Forecaster) -> Result:
    """Return one `forecasts` row per series, in the table's order; data: the series of one data set.

    A series without a usable last window gets a row with the reason and no scores. DataError if there are no
    series.
    """
    spec = ForecastSpec.from_job(job)
    series = table_series(data)[: spec.max_series]
    return Result(forecast_rows(spec, series, model, key=spec.seeded_as or job.key, earlier=spec.earlier))


def forecast_rows(
    spec: ScoreSpec, series: Sequence[Series], model: Forecaster, *, key: str, earlier: int = 0
) -> list[dict[str, Any]]:
    """Return one `forecasts` row per series; key: the job's key, from which seeds of samples are made."""
    if not series:
        raise DataError(f"data set {spec.dataset}: expected at least one series, got none")
    scored, skipped = scores.score_forecasts(
        model,
        series,
        spec,
        context=spec.context,
        noise=spec.noise,
        **spec.part(WindowOptions),
        earlier=earlier,
        seed_of=lambda name: scores.window_seed(key, name),
    )
    rows = {skip.series: unscored_columns(skip.reason) for skip in skipped} | scored
    levels, samples = list(spec.levels), None if model.direct_quantiles else spec.samples
    shared = {"levels": levels, "samples": samples, "batch": spec.batch}
    written = []
    for item in series:
        row = spec.part(CellIdentity) | {"series": item.series, "horizon": spec.horizon} | rows[item.series] | shared
        # Without a window, the origin that it would have had.
        if row["origin"] is None:
            row["origin"] = max(0, len(item.values) - spec.horizon - earlier)
        written.append(row)
    return written


def unscored_columns(reason: str) -> dict[str, Any]:
    """Return the scores of a window without a forecast: sums of 0, null ratios, and the reason."""
    sums = {"squared_error": 0.0, "nmse_denominator": 0.0, "quantile_loss": 0.0, "target_abs": 0.0}
    names = ("nmse", "nmse_power", "wql_window", "mase", "season", "seasonal_error", "mase_gluonts", "quantiles")
    ratios = dict.fromkeys(names)
    return {"origin": None, "n_context": 0, "n_future": 0, **sums, **ratios, "reason": f"not forecast: {reason}"}


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
