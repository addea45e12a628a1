"""Tables of forecasts and their scores."""

from __future__ import annotations

import pyarrow as pa

from store.tables.columns import F32, F64, I32, I64, Table
from store.tables.columns import Column as C
from store.tables.shared import IDENTITY, KEY, REASON, SERIES

FORECAST = (
    *IDENTITY,
    SERIES,
    C("origin", I64, "first step of the forecast", "steps from the series' start"),
    C("horizon", I32, "steps that are forecast", "steps"),
    C("n_context", I32, "observed context steps", "steps"),
    C("n_future", I32, "observed targets", "steps"),
    C(
        "nmse",
        F64,
        "squared error divided by the squared distance from the mean of the context",
        "",
        "docs/science.md, Error",
        True,
        needs_reason=True,
    ),
    C("nmse_power", F64, "squared error divided by the sum of squared targets", "", "docs/science.md, Error", True),
    C("squared_error", F64, "sum of squared errors of the median forecast", "squared data units"),
    C("nmse_denominator", F64, "sum of squared distances from the mean of the context", "squared data units"),
    C(
        "wql_window",
        F64,
        "weighted quantile loss of this window; `scores.wql` instead divides sums over all windows",
        "",
        "Ansari et al. 2024, Appendix D",
        True,
    ),
    C("quantile_loss", F64, "sum of twice the pinball loss over levels and steps", "data units"),
    C("target_abs", F64, "sum of absolute targets", "data units"),
    C("mase", F64, "mean absolute error divided by seasonal_error", "", "Ansari et al. 2024, Appendix D", True),
    C("season", I32, "lag of seasonal_error: `datasets.season`, or 1 where the past is shorter", "steps", null=True),
    C(
        "seasonal_error",
        F64,
        "mean absolute difference of values one season apart, before the forecast",
        "data units",
        "docs/science.md, Error",
        True,
    ),
    C(
        "mase_gluonts",
        F64,
        "mase with GluonTS's season, 1 for days and weeks, for comparisons with printed numbers",
        "",
        "Ansari et al. 2024, Appendix D",
        True,
    ),
    REASON,
    C(
        "quantiles",
        pa.list_(pa.list_(F32)),
        "quantile forecasts, one list per level; null if not requested",
        "data units",
        null=True,
    ),
    C("levels", pa.list_(F64), "quantile levels"),
    C("samples", I32, "sample paths; null if the model forecasts quantiles", "paths", null=True),
    C("batch", I32, "windows in one forward pass", "windows"),
    KEY,
)

_WINDOW = ("model", "dataset", "condition", "series", "origin")

TABLES = (
    Table(
        "forecasts",
        "the forecast of one window of one (study, model, data set, condition, series)",
        FORECAST,
        stages=("forecasts",),
        key=_WINDOW,
        by_study=True,
    ),
    Table(
        "validation",
        "the forecast of the window one horizon before the last, whose score may select a model",
        FORECAST,
        stages=("forecasts",),
        key=_WINDOW,
        by_study=True,
    ),
)
