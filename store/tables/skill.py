"""Tables of the skill of forecasters: on clean sines, on unseen windows, and on whole data sets."""

from __future__ import annotations

from dataclasses import replace

from store.tables.columns import F64, FLAG, I32, TEXT, Table
from store.tables.columns import Column as C
from store.tables.shared import DATASET, DOMAIN, KEY, KNOWN, MODEL, REASON, SEED

WQL, SEASONAL = "Ansari et al. 2024, section 5.4", "point seasonal naive on the same windows"
INTERVAL = "lower end of its 95 % bootstrap interval over data sets; null for fewer than 6"
SCORED = replace(MODEL, meaning="model, by its name in params, or local baseline", references=KNOWN)

TABLES = (
    Table(
        "skill",
        "the skill of one forecasting model: on a noiseless sine and, if pretrained here, on held-out windows",
        (
            MODEL,
            C(
                "sine_error",
                F64,
                "absolute error of the median on noiseless sines of period 24, divided by the error of forecasting 0",
                "ratio",
            ),
            C(
                "sine_error_max",
                F64,
                "largest such error of 12 periods from 3 to 168, of which those count that the context holds twice",
                "ratio",
            ),
            C("sine_period_max", I32, "period with the largest error", "steps"),
            C("n_windows", I32, "scored windows; null if the model was not pretrained here", "windows", null=True),
            C("n_datasets", I32, "data sets of these windows", "data sets", null=True),
            C(
                "n_seasonal",
                I32,
                "data sets with a season; on others, seasonal naive is the last value",
                "data sets",
                null=True,
            ),
            C(
                "wql_vs_median",
                F64,
                "geometric mean of WQL divided by the WQL of the context median",
                "ratio",
                null=True,
            ),
            C("low", F64, "lower end of its 95 % bootstrap interval", "ratio", null=True),
            C("high", F64, "upper end of its 95 % bootstrap interval", "ratio", null=True),
            C(
                "wql_vs_seasonal",
                F64,
                "geometric mean of WQL divided by the WQL of point seasonal naive (last season, all quantiles equal)",
                "ratio",
                null=True,
            ),
            C("seasonal_low", F64, "lower end of its 95 % bootstrap interval", "ratio", null=True),
            C("seasonal_high", F64, "upper end of its 95 % bootstrap interval", "ratio", null=True),
            C("bootstrap", I32, "bootstrap resamples", "resamples", null=True),
            SEED,
            C("recipe", TEXT, "SHA-256 of the training recipe; null if not pretrained here", null=True),
            KEY,
        ),
        stages=("checkpoints",),
        key=("model",),
    ),
    Table(
        "dataset_skill",
        "one model or local baseline on the last windows of one data set, one window per series",
        (
            SCORED,
            DATASET,
            DOMAIN,
            C("is_real", FLAG, "whether the series were observed; false for generated series"),
            C(
                "trained_on",
                FLAG,
                "whether the model's training data contain earlier parts of these series; null if they are not known",
                null=True,
            ),
            C("n_series", I32, "series of the data set", "series"),
            C("n_windows", I32, "scored windows, at most checkpoints.skill.max_series", "windows"),
            C("context", I32, "requested context length", "steps"),
            C("horizon", I32, "steps that are forecast", "steps"),
            C("season", I32, "lag of point seasonal naive; 1: it repeats the last value", "steps"),
            C("wql", F64, "weighted quantile loss, pooled over the windows", "", WQL, True, needs_reason=True),
            C(
                "mae",
                F64,
                "mean absolute error of the median over all observed targets",
                "data units",
                null=True,
                needs_reason=True,
            ),
            C("wql_seasonal", F64, f"wql of {SEASONAL}, all quantiles equal", "", WQL, True),
            C("mae_seasonal", F64, f"mae of {SEASONAL}", "data units", null=True),
            C(
                "wql_ratio",
                F64,
                "wql divided by wql_seasonal; below 1 the model is better",
                "ratio",
                null=True,
                needs_reason=True,
            ),
            C("mae_ratio", F64, "mae divided by mae_seasonal", "ratio", null=True, needs_reason=True),
            REASON,
            SEED,
            KEY,
        ),
        stages=("checkpoints",),
        key=("model", "dataset"),
    ),
    Table(
        "mean_skill",
        "one model or local baseline on all real, or on all synthetic, data sets of `dataset_skill`",
        (
            SCORED,
            C("kind", TEXT, "kind of the data sets: real or synthetic"),
            C(
                "n_datasets",
                I32,
                "data sets with a ratio, without those that the model is known to be trained on",
                "data sets",
                range=(1, None),
            ),
            C("wql", F64, "geometric mean of wql_ratio over the data sets; below 1 the model is better", "ratio"),
            C("wql_low", F64, INTERVAL, "ratio", null=True),
            C("wql_high", F64, "upper end", "ratio", null=True),
            C("mae", F64, "geometric mean of mae_ratio over the data sets", "ratio"),
            C("mae_low", F64, INTERVAL, "ratio", null=True),
            C("mae_high", F64, "upper end", "ratio", null=True),
            C("bootstrap", I32, "bootstrap resamples", "resamples"),
            SEED,
        ),
        stages=("checkpoints",),
        key=("model", "kind"),
    ),
)
