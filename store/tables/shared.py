"""Columns that several tables share."""

from __future__ import annotations

from store.tables.columns import F64, FLAG, I16, I32, I64, TEXT, Column

KEY = Column("job_key", TEXT, "key of the job that wrote the row: SHA-256 of its task, version, spec and inputs")
# Models of measurements: checkpoints, and local baselines, which have no checkpoint.
KNOWN = ("checkpoints.model", "baselines.model")
MODEL = Column("model", TEXT, "model, by its name in params")
DATASET = Column("dataset", TEXT, "data set, by its name in params")
CONDITION = Column("condition", TEXT, "condition (context length and noise), by its name in params")
SERIES = Column("series", TEXT, "series id, unique in its data set")
STACK = Column("stack", TEXT, "stack of Transformer layers: encoder or decoder")
LAYER = Column("layer", I16, "layer: 0 is the output of the input embedding, l the output of block l")
NORMED = Column("normed", FLAG, "whether the stack's final norm was applied (the last layer only)")
DOMAIN = Column("domain", TEXT, "subject area of the series, such as finance")
REASON = Column("reason", TEXT, "reason for each null measure or score of the row", null=True)
SEED = Column("seed", I64, "random seed of the numbers")
STAGE = Column("stage", TEXT, "stage of the pipeline")
# What a compressed model was asked for.
SIZE = (
    Column("size_parameter", F64, "number that a compressed model was asked for; size_rule defines it", null=True),
    Column(
        "size_rule",
        TEXT,
        "key of `ranks` in params.yaml of size_parameter: share, flat, flow, epsilon, time, budget or bytes",
        null=True,
    ),
)
IDENTITY = (
    MODEL,
    Column("base_model", TEXT, "original of a compressed model", null=True, references=KNOWN, if_null="model"),
    *SIZE,
    DATASET,
    CONDITION,
    Column("context", I32, "requested context length", "steps"),
    Column("noise", F64, "standard deviation of the noise added to the context", "s.d. of the series"),
)
