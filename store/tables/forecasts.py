"""Tables of forecasts and their scores."""

from __future__ import annotations

import pyarrow as pa

from tsfmscope.store.tables.columns import F32, F64, I32, I64, IDENTITY, KEY, REASON, SERIES, Table
from tsfmscope.store.tables.columns import Column as C

FORECAST = (
    *IDENTITY,
    SERIES,
    C("origin", I64, "first forecast step", "steps from the series' start"),
    C("horizon", I32, "steps forecast", "steps"),
    C("n_context", I32, "observed steps of context", "steps"),
    C("n_future", I32, "observed targets", "steps"),
    C(
        "nmse",
        F64,
        "squared error over squared distance from the context's mean",
        "",
        "science.md 5",
        True,
        needs_reason=True,
    ),
    C("nmse_power", F64, "squared error over the sum of squared targets", "", "science.md 5", True),
    C("squared_error", F64, "sum of squared errors of the median", "squared data units"),
    C("nmse_denominator", F64, "sum of squared distances from the context's mean", "squared data units"),
    C(
        "wql_window",
        F64,
        "weighted quantile loss of this window alone; `scores.wql` pools windows: it divides sums over all of them",
        "",
        "Ansari et al. 2024, Appendix D",
        True,
    ),
    C("quantile_loss", F64, "sum of twice the pinball loss over levels and steps", "data units"),
    C("target_abs", F64, "sum of absolute targets", "data units"),
    C(
        "mase",
        F64,
        "absolute error over seasonal_error",
        "",
        "Ansari et al. 2024, App. D",
        True,
    ),
    C(
        "seasonal_error",
        F64,
        "mean absolute difference of steps one season (`datasets.season`) apart, over the history before the forecast",
        "data units",
        "science.md 5",
        True,
    ),
    REASON,
    C(
        "quantiles",
        pa.list_(pa.list_(F32)),
        "a list a level, where asked for",
        "data units",
        null=True,
    ),
    C("levels", pa.list_(F64), "quantile levels"),
    C("samples", I32, "sample paths; null where quantiles are direct", "paths", null=True),
    C("batch", I32, "windows in one forward pass", "windows"),
    KEY,
)

_WINDOW = ("model", "dataset", "condition", "series", "origin")

TABLES = (
    Table(
        "forecasts",
        "the forecast of one window: one (study, model, dataset, condition, series, origin)",
        FORECAST,
        stages=("forecasts",),
        key=_WINDOW,
        by_study=True,
    ),
    Table(
        "validation",
        "the forecast of the window before the last, a horizon earlier, by whose score a model may be chosen",
        FORECAST,
        stages=("forecasts",),
        key=_WINDOW,
        by_study=True,
    ),
)
