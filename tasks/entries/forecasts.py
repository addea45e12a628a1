"""Sweep entry of stage forecasts: forecast and score the last window of every series of one cell."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tsfmscope.tasks import lens
from tsfmscope.tasks.errors import DataError
from tsfmscope.tasks.job import IDENTITY, Job, Result
from tsfmscope.tasks.series.tables import table_series

if TYPE_CHECKING:
    import pyarrow as pa

    from tsfmscope.tasks.models.base import Forecaster
    from tsfmscope.tasks.series.types import Series

# Entries of the spec that `lens.score_forecasts` takes.
FORECASTS = (
    *("context", "horizon", "min_context", "held_out", "noise", "seed"),
    *("levels", "samples", "batch", "keep_quantiles"),
)
OPTIONAL = ("history", "earlier")
# prefix of the reason of a window without a forecast
UNSCORED = "not forecast: "


def evaluate(job: Job, data: pa.Table, model: Forecaster) -> Result:
    """Return one `forecasts` row per series, in the table's order.

    A series without a usable last window gets a row with the reason and no scores.
    data: the series of one data set.
    job.spec: identity, horizon, min_context, held_out (share at the end in which the future must lie, or
    null), seed (of the noise), levels, samples, batch (windows per call), keep_quantiles.
    Optional in job.spec: history (steps before the context that lagged families read), max_series (the first
    ones), earlier (number of steps by which the window lies before the last one, for a score that was known
    before the last window) and seeded_as (the key that seeds samples; by default the job's).
    DataError if there are no series.
    """
    spec = job.spec
    series = table_series(data)[: spec.get("max_series")]
    if not series:
        raise DataError(f"data set {spec['dataset']}: expected at least one series, got none")
    how = {name: spec[name] for name in FORECASTS} | {name: spec[name] for name in OPTIONAL if name in spec}
    scored, skipped = lens.score_forecasts(
        model, series, **how, seed_of=lambda name: window_seed(spec.get("seeded_as", job.key), name)
    )
    rows = {skip.series: unscored(skip.reason) for skip in skipped} | scored
    return Result([_row(job, model, one, rows[one.series]) for one in series])


def window_seed(key: str, series: str) -> int:
    """Return a 63-bit seed for the samples of one series, from the job's key and the series' id.

    It does not depend on the position of the series in a batch.
    """
    digest = hashlib.sha256(f"{key}/{series}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def unscored(reason: str) -> dict[str, Any]:
    """Return the scores of a window without a forecast: sums of 0, null ratios, and the reason."""
    sums = {"squared_error": 0.0, "nmse_denominator": 0.0, "quantile_loss": 0.0, "target_abs": 0.0}
    ratios = dict.fromkeys(("nmse", "nmse_power", "wql_window", "mase", "seasonal_error", "quantiles"))
    return {"origin": None, "n_context": 0, "n_future": 0, **sums, **ratios, "reason": f"{UNSCORED}{reason}"}


def _row(job: Job, model: Forecaster, one: Series, scored: Mapping[str, Any]) -> dict[str, Any]:
    spec = job.spec
    row = {name: spec[name] for name in IDENTITY} | {"series": one.series, "horizon": spec["horizon"], **scored}
    # Without a window, the origin that it would have had.
    if row["origin"] is None:
        row["origin"] = max(0, len(one.values) - spec["horizon"] - spec.get("earlier", 0))
    samples = None if model.direct_quantiles else spec["samples"]
    return row | {"levels": list(spec["levels"]), "samples": samples, "batch": spec["batch"]}
